# frozen_string_literal: true

require "securerandom"

module Penstock
  # The settings of one producer, set in the block of {Producer#initialize} and frozen after it.
  #
  # Durations are in milliseconds, like Kafka's own.
  class Config
    include ConfigChecks
    include AsJson

    # What a message Hash may hold.
    MESSAGE_KEYS = %i[topic payload key partition partition_key timestamp headers label].freeze

    # librdkafka settings that differ from its defaults unless they are given.
    KAFKA_DEFAULTS = {
      "client.id": "penstock",
      "enable.idempotence": true, # unless other settings contradict it
      "log_level": 4, # warnings and worse
      "message.timeout.ms": 150_000, # below max_wait_timeout, so that a wait ends with a delivery result
      "socket.nagle.disable": true,
      "transaction.timeout.ms": 165_000 # librdkafka wants it above message.timeout.ms
    }.freeze

    # Identifies the producer in errors, logs and metrics. Several producers and processes may share an id
    # (docs/forking.md).
    # @return [String] default "penstock-" and 12 hex digits
    attr_accessor :id
    # librdkafka's settings by name: Symbol or String to Integer, Float, String, true or false.
    # "bootstrap.servers" is required.
    # @return [Hash]
    attr_accessor :kafka
    # Receives librdkafka's log lines and errors, on the dispatcher thread. Default nil: they go to stderr, and no Ruby
    # thread is needed.
    # @return [Logger, nil]
    attr_accessor :logger
    # @return [Integer] maximum bytes of payload in a message; default 1_000_012
    attr_accessor :max_payload_size
    # How long a sync call or {DeliveryHandle#wait} waits for delivery results. Also the time in which a transactional
    # producer must get its first answers from the cluster when it connects.
    # @return [Integer, nil] ms; nil: no limit; default 180_000
    attr_accessor :max_wait_timeout
    # How long brokers may reject the client (certificate, password, protocol) before its messages fail. If no connection
    # works for this time, the messages in flight, waits and flushes fail with the cause ({BrokerRejectedError}), instead of
    # waiting for `message.timeout.ms`. The producer continues: once brokers accept it, new messages are delivered.
    # @return [Integer, nil] ms; nil: messages wait for their timeout; default 10_000
    attr_accessor :rejection_timeout
    # How long messages wait while no broker can be reached. The time begins with the first attempt to connect after the
    # last working connection was lost. Then the messages in flight, waits and flushes fail ({BrokersUnreachableError}).
    # Later messages fail at once, without being queued. As soon as one broker can be reached, messages are delivered again.
    # The setting has an effect only if it is below `message.timeout.ms`. See docs/waiting.md, "While Kafka is away".
    # @return [Integer] ms, at least 100, checked every `polling.fd.periodic_poll_interval`; 0: messages wait for their
    #   timeout; default 0
    attr_accessor :unreachable_timeout
    # @return [Integer] ms to continue delivering when a producer is closed without a timeout, is garbage-collected, or is
    #   still open at the end of the process; default 30_000
    attr_accessor :close_timeout
    # What happens when librdkafka's queue has no space (`queue.buffering.max.messages`, `queue.buffering.max.kbytes`):
    # - `:wait`: the call waits for space, without the GVL. After `wait_timeout_on_queue_full` it raises {QueueFullError}
    # - `:raise`: the call raises {QueueFullError} at once
    # - `:drop`: the message is not sent. It gets a delivery result at once: :queue_full, not persisted. This failure is
    #   published like any other ("error.occurred" of the type `librdkafka.dispatch_error`)
    # @return [:wait, :raise, :drop] default :wait
    attr_accessor :on_queue_full
    # How long a call waits for queue space; see {#on_queue_full}.
    # @return [Integer, nil] ms; nil: no limit; default 10_000
    attr_accessor :wait_timeout_on_queue_full
    # Has no effect: a waiting call is woken when there is space. It exists for configurations that set it for another
    # client.
    # @return [Integer] default 0
    attr_accessor :wait_backoff_on_queue_full
    # Has no effect: a waiting call does not retry, so there is nothing to publish. See {#wait_backoff_on_queue_full}.
    # @return [Boolean] default false
    attr_accessor :instrument_on_wait_queue_full
    # Whether an idempotent producer makes a new client after a fatal error (librdkafka lost track of what the broker has).
    # The message that met the error is sent again if it certainly is not in the topic. All other messages keep their
    # delivery results.
    # @return [Boolean] default true
    attr_accessor :reload_on_idempotent_fatal_error
    # @return [Integer] ms before the new client connects; default 5_000
    attr_accessor :wait_backoff_on_idempotent_fatal_error
    # @return [Integer] maximum number of new clients in a row with no message delivered in between; default 5
    attr_accessor :max_attempts_on_idempotent_fatal_error
    # Whether a transactional producer makes a new client after a fatal error. The error is raised in any case.
    # @return [Boolean] default true
    attr_accessor :reload_on_transaction_fatal_error
    # @return [Integer] ms before the new client connects; default 1_000
    attr_accessor :wait_backoff_on_transaction_fatal_error
    # @return [Integer] maximum number of new clients in a row with no message delivered in between; default 10
    attr_accessor :max_attempts_on_transaction_fatal_error
    # @return [Integer] ms before a command of a transaction is repeated, multiplied by the number of the attempt; default
    #   500
    attr_accessor :wait_backoff_on_transaction_command
    # @return [Integer] maximum number of attempts of a command of a transaction; default 5
    attr_accessor :max_attempts_on_transaction_command
    # How long an abort waits for the delivery of the messages in flight. An abort that overtakes the first message of a
    # partition can cost the producer its client (librdkafka issue 4849). 0: the abort does not wait; the messages are
    # purged.
    # @return [Integer] ms; default 1_000
    attr_accessor :wait_timeout_on_transaction_abort
    # Codes of fatal errors after which the producer makes no new client. librdkafka reports the brokers' producer_fenced
    # and invalid_producer_epoch as :fenced.
    # @return [Array<Symbol>] default [:fenced]
    attr_accessor :non_reloadable_errors
    # @return [Integer] ms without a message after which the producer disconnects. The next message connects again. At least
    #   30_000; 0, the default: never. One Ruby thread serves all such producers.
    attr_accessor :idle_disconnect_timeout
    # @return [Boolean] false: messages are checked and get a delivery result, but are not sent ({Clients::Dummy}); default
    #   true
    attr_accessor :deliver
    # Replaces librdkafka, for example by {Clients::Buffered}: a class whose `new(config, monitor)` has the methods of
    # Native::ProducerClient.
    # @return [Class, nil] default nil
    attr_accessor :client_class
    # @return [Monitor, nil] publishes the events of the producer; nil: a new monitor
    attr_accessor :monitor
    # @return [Middleware, nil] nil: a new one
    attr_accessor :middleware
    # Makes the bytes of each payload that is not nil, so that the payload of a message may be any object:
    #
    #     config.serializer = Penstock::MessagePack # or a Factory or Pool of it, JSON, ->(object) { ... }
    #
    # It has a method `dump(object)` or `call(object)` that returns a new String. If it has both, `dump` is called. A String
    # is serialized too, so that a consumer can deserialize every message of the topic. nil stays nil, a tombstone. Keys and
    # headers are not serialized.
    #
    # It runs once for each message, in the thread and fiber that sends. Buffered messages are serialized when they are
    # flushed. The order: middleware (gets the object), serializer, then hooks ({Producer#around}), listeners and
    # {#client_class}, which get the String that is sent. A hook that replaces a payload must give a String. Neither the
    # message Hash nor its payload is changed.
    #
    # If it raises, or returns something that is no String, the sending call raises {SerializationError}; the serializer's
    # error is its `cause`. Nothing was sent, also of a batch, and the buffer is unchanged. {Producer#shareable} requires a
    # shareable serializer.
    # @return [#dump, #call, nil] nil: payloads are Strings; default nil
    attr_accessor :serializer
    # How long a listener may run before "listener.slow" is published with its name.
    # @return [Integer] ms; default 1_000
    attr_accessor :listener_budget
    # How many events may wait for the listeners of the producer, without those of a call.
    # @return [Integer] default 100_000
    attr_accessor :event_queue_limit
    # Which events are dropped and counted ({Producer#metrics}) when that queue is full.
    # @return [:drop_oldest, :drop_newest] default :drop_oldest
    attr_accessor :event_queue_full
    # @return [Polling]
    attr_reader :polling
    # @return [OAuth]
    attr_reader :oauth

    # Settings of {Config#polling}.
    class Polling
      include AsJson

      # Which poller serves this producer (docs/waiting.md compares them):
      # - `:fd`: {#poller}, one native thread for many producers
      # - `:thread`: a poller, and so a native thread, of the producer's own
      # @return [:fd, :thread] default :fd
      attr_accessor :mode
      # @return [Poller, nil] the poller that serves this producer. nil: {Poller.instance} in mode :fd, a new one in mode
      #   :thread. Mode :thread requires nil
      attr_accessor :poller
      # @return [Fd]
      attr_reader :fd

      def initialize
        @mode = :fd
        @poller = nil
        @fd = Fd.new
      end

      # Freezes its settings too.
      def freeze
        fd.freeze
        super
      end
    end

    # Settings of {Polling#fd}, in any mode.
    class Fd
      include AsJson

      # @return [Integer] ms that the poller serves one producer while others wait; default 100, at least 1
      attr_accessor :max_time
      # @return [Integer] ms after which the poller checks a producer without a signal; default 1000, at least 100
      attr_accessor :periodic_poll_interval

      def initialize
        @max_time = 100
        @periodic_poll_interval = 1_000
      end
    end

    def initialize
      @id = "penstock-#{SecureRandom.hex(6)}"
      @given = nil # until the configuration is finished
      @kafka = {}
      @logger = nil
      @max_payload_size = 1_000_012
      @max_wait_timeout = 180_000
      @close_timeout = 30_000
      @rejection_timeout = 10_000
      @unreachable_timeout = 0
      @on_queue_full = :wait
      @wait_timeout_on_queue_full = 10_000
      @wait_backoff_on_queue_full = 0
      @instrument_on_wait_queue_full = false
      defaults_of_recovery
      @idle_disconnect_timeout = 0
      @deliver = true
      @client_class = @monitor = @middleware = @serializer = nil
      @listener_budget = 1_000
      @event_queue_limit = 100_000
      @event_queue_full = :drop_oldest
      @polling = Polling.new
      @oauth = OAuth.new
    end

    # @return [Boolean] whether {#on_queue_full} is :wait
    def wait_on_queue_full = on_queue_full == :wait

    # @param wait [Boolean] false: {#on_queue_full} becomes :raise
    def wait_on_queue_full=(wait)
      @on_queue_full = wait ? :wait : :raise
    end

    # @param name [Symbol]
    # @return [Boolean] whether the user set this setting of {#kafka}; false: it is a default of Penstock
    def given?(name) = @given ? @given.include?(name) : [name, name.to_s].any? { |given| kafka.key?(given) }

    # @return [String] without the values of settings, which may be secret
    def inspect
      "#<#{self.class} id=#{id.inspect} kafka=#{kafka.respond_to?(:keys) ? kafka.keys.inspect : "?"}>"
    end

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(id:)

    private

    # @raise [ConfigurationInvalidError] when a setting is invalid; the message names the first
    # @return [self] frozen
    def finish
      check_identity
      check_limits
      check_queue
      check_recovery
      check_parts
      check_listening
      check_polling
      check_oauth
      check_kafka
      @kafka = checked(with_defaults(defaults), role: :producer, token_provider: oauth.token_provider_listener)
      check_unreachable_timeout_has_effect
      polling.freeze
      freeze
    end

    def defaults_of_recovery
      @reload_on_idempotent_fatal_error = @reload_on_transaction_fatal_error = true
      @wait_backoff_on_idempotent_fatal_error = 5_000
      @max_attempts_on_idempotent_fatal_error = 5
      @wait_backoff_on_transaction_fatal_error = 1_000
      @max_attempts_on_transaction_fatal_error = 10
      @wait_backoff_on_transaction_command = 500
      @max_attempts_on_transaction_command = 5
      @wait_timeout_on_transaction_abort = 1_000
      @non_reloadable_errors = [:fenced]
    end

    def check_limits
      check_integer("max_payload_size", max_payload_size, 0)
      check_integer("max_wait_timeout", max_wait_timeout, 0) unless max_wait_timeout.nil?
      check_close_timeout
      check_rejection_timeout
      check_unreachable_timeout
    end

    def check_queue
      check_one_of("on_queue_full", on_queue_full, %i[wait raise drop])
      check_integer("wait_timeout_on_queue_full", wait_timeout_on_queue_full, 0) unless wait_timeout_on_queue_full.nil?
      check_integer("wait_backoff_on_queue_full", wait_backoff_on_queue_full, 0)
      check_one_of("instrument_on_wait_queue_full", instrument_on_wait_queue_full, [true, false])
    end

    def check_recovery
      %w[reload_on_idempotent_fatal_error reload_on_transaction_fatal_error deliver].each do |name|
        check_one_of(name, public_send(name), [true, false])
      end
      %w[
        wait_backoff_on_idempotent_fatal_error wait_backoff_on_transaction_fatal_error wait_backoff_on_transaction_command
        max_attempts_on_idempotent_fatal_error max_attempts_on_transaction_fatal_error wait_timeout_on_transaction_abort
      ].each { |name| check_integer(name, public_send(name), 0) }
      check_integer("max_attempts_on_transaction_command", max_attempts_on_transaction_command, 1)
      check("non_reloadable_errors", non_reloadable_errors, "an Array of Symbols") do
        non_reloadable_errors.is_a?(Array) && non_reloadable_errors.all?(Symbol)
      end
    end

    def check_parts
      check("idle_disconnect_timeout", idle_disconnect_timeout, "0 or an Integer of at least 30000") do
        Seconds.integer?(idle_disconnect_timeout) && (idle_disconnect_timeout.zero? || idle_disconnect_timeout >= 30_000)
      end
      check("client_class", client_class, "a Class or nil") { client_class.nil? || client_class.respond_to?(:new) }
      check("monitor", monitor, "a Penstock::Monitor or nil") { monitor.nil? || monitor.respond_to?(:instrument) }
      check("middleware", middleware, "a Penstock::Middleware or nil") { middleware.nil? || middleware.respond_to?(:run) }
      check("serializer", serializer, "nil or an object with a method dump or call that takes the payload") do
        serializer.nil? || Serializer.method_of(serializer)
      end
    end

    def check_listening
      check_integer("listener_budget", listener_budget, 1)
      check_integer("event_queue_limit", event_queue_limit, 1, (2**32) - 1)
      check_one_of("event_queue_full", event_queue_full, %i[drop_oldest drop_newest])
    end

    def check_polling
      modes = "one of :fd, :thread"
      modes += " (:fd is suitable for fibers: their waits yield to the scheduler)" if polling.mode == :reactor
      check("polling.mode", polling.mode, modes) { %i[fd thread].include?(polling.mode) }
      check_poller
      check_integer("polling.fd.max_time", polling.fd.max_time, 1)
      check_integer("polling.fd.periodic_poll_interval", polling.fd.periodic_poll_interval, 100)
    end

    def check_poller
      poller = polling.poller
      check("polling.poller", poller, "a Penstock::Poller or nil") { poller.nil? || poller.is_a?(Poller) }
      return if poller.nil?

      check("polling.poller", poller, "nil in mode :thread, where each producer has a poller of its own") { polling.mode == :fd }
    end

    def defaults
      given = Settings.by_symbols(kafka)
      @given = given.keys.freeze
      without = []
      without << :"enable.idempotence" if contradicts_idempotence?(given)
      transaction_timeout = Integer(given[:"transaction.timeout.ms"], exception: false)
      without << :"message.timeout.ms" if transaction_timeout&.<(KAFKA_DEFAULTS[:"message.timeout.ms"])
      KAFKA_DEFAULTS.except(*without)
    end

    # Then idempotence is not turned on by default: librdkafka would raise for the combination.
    def contradicts_idempotence?(given)
      acks = read(given, :acks, :"request.required.acks")
      in_flight = given.values_at(:"max.in.flight", :"max.in.flight.requests.per.connection").compact.first
      retries = given.values_at(:retries, :"message.send.max.retries").compact.first
      (acks && acks != "-1") || in_flight.to_i > 5 || retries.to_s == "0" || read(given, :"queuing.strategy") == "lifo"
    end

    # @return [String, nil] the value that librdkafka uses for the first given name
    def read(given, *names)
      name = names.find { |candidate| given.key?(candidate) }
      name && Settings.read(name, given[name])
    end
  end
end

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
      "message.timeout.ms": 150_000, # below max_wait_timeout, so that a wait ends with a verdict
      "socket.nagle.disable": true,
      "transaction.timeout.ms": 165_000 # librdkafka wants it above message.timeout.ms
    }.freeze

    # Names the producer in errors, logs and metrics. Several producers and processes may share an id (docs/forking.md).
    # @return [String] default "penstock-" and 12 hex digits
    attr_accessor :id
    # librdkafka's settings by name: Symbol or String to Integer, Float, String, true or false.
    # "bootstrap.servers" is required.
    # @return [Hash]
    attr_accessor :kafka
    # Gets librdkafka's log lines and errors, on the dispatcher thread. Default nil: they go to stderr, and no
    # Ruby thread is needed.
    # @return [Logger, nil]
    attr_accessor :logger
    # @return [Integer] bytes of payload a message may have; default 1_000_012
    attr_accessor :max_payload_size
    # Also the time in which a transactional producer has to get its first answers from the cluster when it connects.
    # @return [Integer, nil] ms that a sync call or {DeliveryHandle#wait} waits for verdicts; nil: without limit;
    #   default 180_000
    attr_accessor :max_wait_timeout
    # What brokers may refuse: a certificate, a password, the protocol. After so long without a connection that worked, the
    # messages in flight fail with the cause ({BrokerRejectedError}), and so do waits and flushes, instead of waiting for
    # `message.timeout.ms`. The producer goes on: once brokers accept it, new messages are delivered.
    # @return [Integer, nil] ms; nil: messages wait for their timeout; default 10_000
    attr_accessor :rejection_timeout
    # How long messages wait while no broker can be reached: no connection works, counted from the first attempt to connect after
    # the last working one was lost. Then the messages in flight fail ({BrokersUnreachableError}), and so do waits and flushes.
    # Messages that are sent afterwards fail at once, without being queued. As soon as one broker can be reached, all this ends by
    # itself. The setting has an effect if it is below `message.timeout.ms`. See docs/waiting.md, "While Kafka is away".
    # @return [Integer] ms, at least 100, looked at every `polling.fd.periodic_poll_interval`; 0: messages wait for their timeout;
    #   default 0
    attr_accessor :unreachable_timeout
    # @return [Integer] ms to go on delivering when a producer is closed without a timeout of its own, dropped, or
    #   still open at the end of the process; default 30_000
    attr_accessor :close_timeout
    # What happens when librdkafka's queue has no room (`queue.buffering.max.messages`, `queue.buffering.max.kbytes`):
    # - `:wait`: the call waits, without the GVL, and is woken when there is room; {QueueFullError} when there was none
    #   for `wait_timeout_on_queue_full`
    # - `:raise`: {QueueFullError} at once
    # - `:drop`: the message gets a verdict at once, :queue_full and not persisted, instead of being sent; listeners are told of
    #   it like of any other that failed ("error.occurred" of the type `librdkafka.dispatch_error`)
    # @return [:wait, :raise, :drop] default :wait
    attr_accessor :on_queue_full
    # @return [Integer, nil] ms; nil: without limit; default 10_000
    attr_accessor :wait_timeout_on_queue_full
    # Has no effect: who waits is woken when there is room. It is here for configurations that set it for another client.
    # @return [Integer] default 0
    attr_accessor :wait_backoff_on_queue_full
    # Has no effect: nothing is tried again while a call waits for room, so there is nothing to tell. See
    # {#wait_backoff_on_queue_full}.
    # @return [Boolean] default false
    attr_accessor :instrument_on_wait_queue_full
    # Whether a fatal error of an idempotent producer (librdkafka lost track of what the broker has) makes it go on with a
    # new client. The message that met the error is sent again if it certainly is not in the topic; every other one
    # keeps its verdict.
    # @return [Boolean] default true
    attr_accessor :reload_on_idempotent_fatal_error
    # @return [Integer] ms before the new client connects; default 5_000
    attr_accessor :wait_backoff_on_idempotent_fatal_error
    # @return [Integer] new clients in a row, with no message delivered in between; default 5
    attr_accessor :max_attempts_on_idempotent_fatal_error
    # Whether a fatal transactional error makes the producer go on with a new client. The error is raised all the same.
    # @return [Boolean] default true
    attr_accessor :reload_on_transaction_fatal_error
    # @return [Integer] ms before the new client connects; default 1_000
    attr_accessor :wait_backoff_on_transaction_fatal_error
    # @return [Integer] new clients in a row, with no message delivered in between; default 10
    attr_accessor :max_attempts_on_transaction_fatal_error
    # @return [Integer] ms before a transaction's command is repeated, times the number of the attempt; default 500
    attr_accessor :wait_backoff_on_transaction_command
    # @return [Integer] default 5
    attr_accessor :max_attempts_on_transaction_command
    # Before a transaction is aborted, its messages in flight are sent and waited for, at most so long: an abort that
    # overtakes a partition's first message can cost the producer its client (librdkafka issue 4849). 0: not at all; they are
    # purged.
    # @return [Integer] ms; default 1_000
    attr_accessor :wait_timeout_on_transaction_abort
    # Codes of fatal errors after which no new client is made. What brokers call producer_fenced or invalid_producer_epoch is
    # told by librdkafka as :fenced.
    # @return [Array<Symbol>] default [:fenced]
    attr_accessor :non_reloadable_errors
    # @return [Integer] ms without a message after which the producer disconnects, until the next one; at least 30_000; 0,
    #   the default: never. It takes one Ruby thread for all such producers.
    attr_accessor :idle_disconnect_timeout
    # @return [Boolean] false: messages are checked and acknowledged, and go nowhere ({Clients::Dummy}); default true
    attr_accessor :deliver
    # What stands in for librdkafka, such as {Clients::Buffered}: a class whose `new(config, monitor)` has the methods of
    # Native::ProducerClient.
    # @return [Class, nil] default nil
    attr_accessor :client_class
    # @return [Monitor, nil] the producer's events; nil: a monitor of its own
    attr_accessor :monitor
    # @return [Middleware, nil] nil: one of its own
    attr_accessor :middleware
    # Makes the bytes of each payload that is not nil, so that a message's payload may be any object:
    #
    #     config.serializer = Penstock::MessagePack # or a Factory or Pool of it, JSON, ->(object) { ... }
    #
    # It has `dump(object)` or `call(object)`, of which the first is called if it has both, and returns a new String. A String is
    # serialized too, so that what unpacks the topic's messages can unpack each of them. nil stays nil, a tombstone. Keys and
    # headers are not serialized.
    #
    # It runs once for each message, in the thread and fiber that sends; for what is in the buffer, when that is flushed: so after
    # the middleware, whose steps get the object, and before hooks ({Producer#around}), listeners and
    # {#client_class}, which get the String that is sent. A hook that replaces a payload replaces it by a String.
    # Neither the message Hash nor its payload is changed.
    #
    # What it raises is the cause of a {SerializationError} to who sends, and so is what it returns if that is no String; nothing
    # was sent, of a batch neither, and the buffer is as it was. For {Producer#shareable} it has to be shareable.
    # @return [#dump, #call, nil] nil: payloads are Strings; default nil
    attr_accessor :serializer
    # How long a listener may take before "listener.slow" tells its name.
    # @return [Integer] ms; default 1_000
    attr_accessor :listener_budget
    # How many events that happen by themselves may wait for the producer's listeners.
    # @return [Integer] default 100_000
    attr_accessor :event_queue_limit
    # Which events are dropped, and counted, when more happen ({Producer#metrics}).
    # @return [:drop_oldest, :drop_newest] default :drop_oldest
    attr_accessor :event_queue_full
    # @return [Polling]
    attr_reader :polling
    # @return [OAuth]
    attr_reader :oauth

    # Settings of {Config#polling}.
    class Polling
      include AsJson

      # Who takes this producer's events (docs/waiting.md compares them):
      # - `:fd`: {#poller}, one native thread for many producers
      # - `:thread`: a poller, and so a native thread, of the producer's own
      # @return [:fd, :thread] default :fd
      attr_accessor :mode
      # @return [Poller, nil] the poller that serves this producer; nil: in mode :fd {Poller.instance}, in mode :thread one of
      #   the producer's own. Mode :thread requires nil
      attr_accessor :poller
      # @return [Fd]
      attr_reader :fd

      def initialize
        @mode = :fd
        @poller = nil
        @fd = Fd.new
      end

      # With all its settings.
      def freeze
        fd.freeze
        super
      end
    end

    # Settings of {Polling#fd}, in any mode.
    class Fd
      include AsJson

      # @return [Integer] ms the poller serves one producer at a time while others wait; default 100, at least 1
      attr_accessor :max_time
      # @return [Integer] ms after which the poller looks at a producer that gave no sign; default 1000, at least 100
      attr_accessor :periodic_poll_interval

      def initialize
        @max_time = 100
        @periodic_poll_interval = 1_000
      end
    end

    def initialize
      @id = "penstock-#{SecureRandom.hex(6)}"
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

    # @return [Boolean] whether a setting of {#kafka} is the user's and not a default of ours
    def given?(name) = @given.include?(name)

    # @return [String] without the values of settings: they may be secret
    def inspect
      "#<#{self.class} id=#{id.inspect} kafka=#{kafka.respond_to?(:keys) ? kafka.keys.inspect : "?"}>"
    end

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(id:)

    private

    # @raise [ConfigurationInvalidError] naming the first setting that is wrong
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
      modes += " (:fd does for fibers, too: their waits yield to the scheduler)" if polling.mode == :reactor
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

    # Then it is not turned on by default; librdkafka would refuse the combination.
    def contradicts_idempotence?(given)
      acks = read(given, :acks, :"request.required.acks")
      in_flight = given.values_at(:"max.in.flight", :"max.in.flight.requests.per.connection").compact.first
      retries = given.values_at(:retries, :"message.send.max.retries").compact.first
      (acks && acks != "-1") || in_flight.to_i > 5 || retries.to_s == "0" || read(given, :"queuing.strategy") == "lifo"
    end

    # @return [String, nil] what librdkafka makes of the one that is given
    def read(given, *names)
      name = names.find { |one| given.key?(one) }
      name && Settings.read(name, given[name])
    end
  end
end

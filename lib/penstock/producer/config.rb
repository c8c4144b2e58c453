# frozen_string_literal: true

require "securerandom"

module Penstock
  # The settings of one producer, set in the block of {Producer#initialize} and frozen after it.
  #
  # Durations are in milliseconds, like Kafka's own.
  class Config < ConfigSection
    include ConfigChecks

    # What a message Hash may hold.
    MESSAGE_KEYS = %i[topic payload key partition partition_key timestamp headers label].freeze

    # librdkafka settings that differ from its defaults unless they are given. docs/configuration.md quotes the reasons.
    KAFKA_DEFAULTS = {
      "client.id": "penstock", # brokers show it in logs, metrics and quotas
      "enable.idempotence": true, # retries store no message twice and keep the order
      log_level: 4, # warnings and worse
      "message.timeout.ms": 150_000, # below `config.max_wait_timeout`, so that a wait ends with a delivery result
      "socket.nagle.disable": true, # requests are not delayed
      "transaction.timeout.ms": 165_000 # above `message.timeout.ms`, as librdkafka requires
    }.freeze

    # Settings of {Fd}: {Polling#fd}, in any mode.
    class Fd < ConfigSection
      # How long the poller serves one producer while others wait.
      # @return [Integer]
      setting :max_time, milliseconds(1..), default: 100
      # How often the poller checks a producer without a signal.
      # @return [Integer]
      setting :periodic_poll_interval, milliseconds(100..), default: 1_000
    end

    # Settings of {Config#polling}.
    class Polling < ConfigSection
      # Which poller serves this producer. docs/waiting.md compares them.
      # - `:fd`: one native thread for many producers; {#poller} names another one
      # - `:thread`: a poller, and so a native thread, of the producer's own
      # @return [:fd, :thread]
      setting :mode, one_of(:fd, :thread), default: :fd
      # The poller that serves this producer. nil: {Poller.instance} in mode `:fd`, a new one in mode `:thread`. Mode
      # `:thread` requires nil.
      # @return [Poller, nil]
      setting :poller, checked_values("Poller", "nil")
      # @return [Fd]
      group :fd, Fd
    end

    # ---- Identity and connection ----

    # Identifies the producer in errors, logs and metrics. Several producers and processes may share an id
    # (docs/forking.md). The default is "penstock-" and 12 hex digits.
    # @return [String]
    setting :id, checked_values("String")
    # librdkafka's settings by name: Symbol or String to Integer, Float, String, true or false. "bootstrap.servers" is
    # required.
    # @return [Hash]
    setting :kafka, checked_values("Hash"), default: {}
    # Receives librdkafka's log lines and errors, on the dispatcher thread. nil: they go to stderr, and no Ruby thread is
    # needed.
    # @return [Logger, nil]
    setting :logger, object_with(:add, "Logger", "a Logger")
    # @return [OAuth]
    group :oauth, OAuth
    # How long the producer stays connected without a message. Then it disconnects. The next message connects again. One
    # Ruby thread serves all such producers.
    # @return [Integer]
    setting :idle_disconnect_timeout, milliseconds(30_000.., zero: "for ever"), default: 0
    # @return [Polling]
    group :polling, Polling

    # ---- Limits ----

    # Maximum size of the payload of a message. A larger one raises {MessageInvalidError}.
    # @return [Integer]
    setting :max_payload_size, bytes(0..), default: 1_000_012
    # How long a sync call or {DeliveryHandle#wait} waits for delivery results. Also the time in which a transactional
    # producer must get its first answers from the cluster when it connects.
    # @return [Integer, nil]
    setting :max_wait_timeout, milliseconds(0.., none: "no limit"), default: 180_000
    # Whether librdkafka sends at once, instead of after `linger.ms`, when a caller waits for delivery results: in a sync
    # call, {DeliveryHandle#wait} or `flush_sync`. One of two native threads of the process, or the caller, calls
    # librdkafka's flush. While other callers send asynchronous messages, few calls are flushed, so that those messages
    # still share batches. See docs/performance.md. With `linger.ms` 0 the setting has no effect.
    # @return [Boolean]
    setting :flush_on_wait, boolean, default: true
    # How long brokers may reject the client (certificate, password, protocol) before its messages fail. If no connection
    # works for this time, the messages in flight, waits and flushes fail with the cause ({BrokerRejectedError}), instead of
    # waiting for `message.timeout.ms`. The producer continues: once brokers accept it, new messages are delivered.
    # @return [Integer, nil]
    setting :rejection_timeout, milliseconds(0.., none: "messages wait for their timeout"), default: 10_000
    # How long messages wait while no broker can be reached. Then the messages in flight, waits and flushes fail
    # ({BrokersUnreachableError}). The time begins with the first attempt to connect after the last working connection was
    # lost. Later messages fail at once, without being queued. As soon as one broker can be reached, messages are delivered
    # again. The setting has an effect only if it is below `message.timeout.ms`. It is checked every
    # `polling.fd.periodic_poll_interval`. See docs/waiting.md, "While Kafka is away".
    # @return [Integer]
    setting :unreachable_timeout, milliseconds(100.., zero: "messages wait for their timeout"), default: 0
    # How long closing takes at most, when the producer is closed without a timeout, is garbage-collected, or is still open at
    # the end of the process. See {Producer#close}.
    # @return [Integer]
    setting :close_timeout, milliseconds(0..), default: 30_000

    # ---- The queue ----

    # What happens when librdkafka's queue has no space (`queue.buffering.max.messages`, `queue.buffering.max.kbytes`).
    # - `:wait`: the call waits for space, without the GVL. After `wait_timeout_on_queue_full` it raises {QueueFullError}
    # - `:raise`: the call raises {QueueFullError} at once
    # - `:drop`: the message is not sent. It gets a delivery result at once: :queue_full, not persisted. This failure is
    #   published like any other ("error.occurred" of the type `librdkafka.dispatch_error`)
    #
    # `wait_on_queue_full = true` and `false` set `:wait` and `:raise`.
    # @return [:wait, :raise, :drop]
    setting :on_queue_full, one_of(:wait, :raise, :drop), default: :wait
    # How long a call waits for queue space; see {#on_queue_full}.
    # @return [Integer, nil]
    setting :wait_timeout_on_queue_full, milliseconds(0.., none: "no limit"), default: 10_000
    # Has no effect: a waiting call is woken when there is space. It exists for configurations that set it for another
    # client.
    # @return [Integer]
    setting :wait_backoff_on_queue_full, milliseconds(0..), default: 0
    # Has no effect: a waiting call does not retry, so there is nothing to publish. See {#wait_backoff_on_queue_full}.
    # @return [Boolean]
    setting :instrument_on_wait_queue_full, boolean, default: false

    # ---- After fatal errors ----

    # Whether an idempotent producer makes a new client after a fatal error (librdkafka lost track of what the broker has).
    # The message that met the error is sent again if it certainly is not in the topic. All other messages keep their
    # delivery results.
    # @return [Boolean]
    setting :reload_on_idempotent_fatal_error, boolean, default: true
    # How long it waits before the new client connects.
    # @return [Integer]
    setting :wait_backoff_on_idempotent_fatal_error, milliseconds(0..), default: 5_000
    # Maximum number of new clients in a row with no message delivered in between.
    # @return [Integer]
    setting :max_attempts_on_idempotent_fatal_error, integers(0..), default: 5
    # Whether a transactional producer makes a new client after a fatal error. The error is raised in any case.
    # @return [Boolean]
    setting :reload_on_transaction_fatal_error, boolean, default: true
    # How long it waits before the new client connects.
    # @return [Integer]
    setting :wait_backoff_on_transaction_fatal_error, milliseconds(0..), default: 1_000
    # Maximum number of new clients in a row with no message delivered in between.
    # @return [Integer]
    setting :max_attempts_on_transaction_fatal_error, integers(0..), default: 10
    # Codes of fatal errors after which the producer makes no new client. librdkafka reports the brokers' producer_fenced
    # and invalid_producer_epoch as :fenced.
    # @return [Array<Symbol>]
    setting :non_reloadable_errors, checked_values("Array<Symbol>"), default: [:fenced]

    # ---- Transactions ----

    # How long the producer waits before it repeats a command of a transaction, multiplied by the number of the attempt.
    # @return [Integer]
    setting :wait_backoff_on_transaction_command, milliseconds(0..), default: 500
    # Maximum number of attempts of a command of a transaction.
    # @return [Integer]
    setting :max_attempts_on_transaction_command, integers(1..), default: 5
    # How long an abort waits for the delivery of the messages in flight. 0: it does not wait, and the messages are purged.
    # An abort that overtakes the first message of a partition can cost the producer its client (librdkafka issue 4849).
    # @return [Integer]
    setting :wait_timeout_on_transaction_abort, milliseconds(0..), default: 1_000

    # ---- Messages ----

    # Steps that each message passes before it is checked and sent. nil: a new {Middleware}, which {Producer#middleware}
    # returns.
    # @return [Middleware, nil]
    setting :middleware, object_with(:run, "Middleware", "a Penstock::Middleware")
    # Makes the bytes of each payload that is not nil, so that the payload of a message may be any object.
    #
    #     config.serializer = Penstock::MessagePack # or a Factory or Pool of it, :json, ->(object) { ... }
    #
    # `:json` stands for JSON.generate. Anything else has a method `dump(object)` or `call(object)` that returns a new String.
    # If it has both, `dump` is called. A String is serialized too, so that a consumer can deserialize every message of the
    # topic. nil stays nil, a tombstone. Keys and headers are not serialized.
    #
    # It runs once for each message, in the thread and fiber that sends. Buffered messages are serialized when they are
    # flushed. The order: middleware (gets the object), serializer, then hooks ({Producer#around}), listeners and
    # {#client_class}, which get the String that is sent. A hook that replaces a payload must give a String. Neither the
    # message Hash nor its payload is changed.
    #
    # If it raises, or returns something that is no String, the sending call raises {SerializationError}; the serializer's
    # error is its `cause`. Nothing was sent, also of a batch, and the buffer is unchanged. {Producer#shareable} requires a
    # shareable serializer.
    # A consumer reads the objects with the same value of {ConsumerConfig#deserializer}.
    # @return [:json, #dump, #call, nil]
    setting :serializer, checked_values(":json", "#dump", "#call", "nil")

    # ---- Events ----

    # Publishes the events of the producer. nil: a new {Monitor}, which {Producer#monitor} returns.
    # @return [Monitor, nil]
    setting :monitor, object_with(:instrument, "Monitor", "a Penstock::Monitor")
    # How long a listener may run before "listener.slow" is published with its name.
    # @return [Integer]
    setting :listener_budget, milliseconds(1..), default: 1_000
    # How many events may wait for the listeners of the producer, without those of a call.
    # @return [Integer]
    setting :event_queue_limit, integers(1..((2**32) - 1)), default: 100_000
    # Which events are dropped and counted ({Producer#metrics}) when that queue is full.
    # @return [:drop_oldest, :drop_newest]
    setting :event_queue_full, one_of(:drop_oldest, :drop_newest), default: :drop_oldest

    # ---- Tests ----

    # Whether messages are sent. false: they are checked and get a delivery result, but are not sent ({Clients::Dummy}).
    # @return [Boolean]
    setting :deliver, boolean, default: true
    # Replaces librdkafka, for example by {Clients::Buffered}: a class whose `new(config, monitor)` has the methods of
    # Native::ProducerClient.
    # @return [Class, nil]
    setting :client_class, object_with(:new, "Class", "a Class")

    def initialize
      super
      @id = "penstock-#{SecureRandom.hex(6)}"
      @given = nil # until the configuration is finished
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
      check_settings
      check_id
      warn_of_short_times
      check_parts
      check_poller
      check_kafka
      @kafka = checked(with_defaults(defaults), role: :producer, token_provider: oauth.token_provider_listener)
      check_unreachable_timeout_has_effect
      freeze
    end

    def hint(name, value)
      seconds = name == "unreachable_timeout" && Seconds.integer?(value) && value.between?(1, SHORTEST_MS - 1)
      return "; for #{value} seconds, write #{value}_000" if seconds
      return "; :fd is suitable for fibers: their waits yield to the scheduler" if name == "polling.mode" && value == :reactor

      super
    end

    def check_parts
      check("non_reloadable_errors", non_reloadable_errors, "an Array of Symbols") do
        non_reloadable_errors.is_a?(Array) && non_reloadable_errors.all?(Symbol)
      end
      check("serializer", serializer, "nil, :json or an object with a method dump or call that takes the payload") do
        serializer.nil? || Codec.method_of(serializer, :dump)
      end
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
      without << :"message.timeout.ms" if given.key?(:"transactional.id") && short_transaction?(given)
      KAFKA_DEFAULTS.except(*without)
    end

    # Then librdkafka makes message.timeout.ms as long as the transaction.
    def short_transaction?(given)
      Integer(given[:"transaction.timeout.ms"], exception: false)&.<(KAFKA_DEFAULTS[:"message.timeout.ms"])
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

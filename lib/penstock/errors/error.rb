# frozen_string_literal: true

module Penstock
  # The base of every error that Penstock raises. There are eight groups, and each other class is in one of them:
  # {UsageError}, {ConfigurationError}, {ProduceError}, {TransactionError}, {ConsumeError}, {AdminError}, {ClusterError}, and
  # {MessagePack::UnpackError}. docs/errors.md has the table.
  #
  # Pattern matching works: `rescue Penstock::Error => e; case e; in {code: :queue_full}`.
  class Error < StandardError
    include AsJson

    # The name of the error in Kafka or librdkafka, such as :msg_timed_out; nil when it has none.
    # @return [Symbol, nil]
    attr_reader :code
    # @return [Integer] the code as a number: Kafka's protocol code, or librdkafka's own when negative; 0 when there is none
    attr_reader :number
    # @return [String, nil] the code as librdkafka spells it, such as "_MSG_TIMED_OUT"
    attr_reader :name
    # @return [String, nil] the id of the producer concerned
    attr_reader :producer_id
    # @return [String, nil] the id of the consumer concerned
    attr_reader :consumer_id
    # @return [String, nil] the id of the admin client concerned
    attr_reader :admin_id
    # @return [String, nil]
    attr_reader :topic
    # @return [Integer, nil]
    attr_reader :partition
    # @return [Integer, nil] the offset at which a consumer met the error
    attr_reader :offset
    # @return [String, nil] the id of the consumer group that an admin client asked for, or that does not let a consumer join, as
    #   the program gave it; the message escapes control characters
    attr_reader :group

    KEYWORDS = %i[code number name producer_id topic partition fatal retriable abortable consumer_id admin_id offset group].freeze
    private_constant :KEYWORDS

    # Penstock builds its errors itself. A program makes errors only in its tests, for example for a client of {Clients}.
    #
    # @example Penstock::QueueFullError.new("The queue is full.", code: :queue_full, topic: "events", retriable: true)
    # @param message [String, nil] nil: the name of the class
    # @param code [Symbol, nil] see {#code}; each other keyword has a reader or predicate of the same name
    # @raise [ArgumentError] when a keyword is unknown
    def initialize(message = nil, code: nil, number: 0, name: nil, producer_id: nil, topic: nil, partition: nil,
                   fatal: false, retriable: false, abortable: false, consumer_id: nil, admin_id: nil, offset: nil, group: nil,
                   **wrong)
      Keywords.check("new(message, code: :queue_full)", KEYWORDS, [], wrong)
      super(message.nil? ? nil : Text.printable(message)) # M:text_error_messages
      @code = code
      @number = number
      @name = name
      @producer_id = producer_id
      @consumer_id = consumer_id
      @admin_id = admin_id
      @topic = topic
      @partition = partition
      @offset = offset
      @group = group
      @fatal = fatal
      @retriable = retriable
      @abortable = abortable
    end

    # @return [Boolean] whether the producer or consumer can do nothing more
    def fatal? = @fatal

    # @return [Boolean] whether the same call may succeed and cannot store a message twice
    def retriable? = @retriable

    # @return [Boolean] whether the running transaction must be aborted
    def abortable? = @abortable

    # @!method freeze
    #   Makes the error suitable for Ractor.make_shareable: keeps the backtrace as Strings, so that `backtrace_locations` is
    #   nil.
    #   @return [self]

    # @return [Hash] for pattern matching
    def deconstruct_keys(_keys)
      { code:, number:, name:, producer_id:, topic:, partition:,
        fatal: fatal?, retriable: retriable?, abortable: abortable?,
        consumer_id:, admin_id:, offset:, group: }
    end

    # (see AsJson#as_json)
    def as_json(_options = nil)
      json(code: code&.to_s, message:, producer_id:, consumer_id:, admin_id:, group:, topic:, partition:, fatal: fatal?,
           retriable: retriable?)
    end
  end

  # Time ran out: for a wait ({WaitTimeoutError}), a message ({MessageTimedOutError}), a transaction
  # ({TransactionTimedOutError}) or a call of a consumer ({ConsumeTimeoutError}). These errors are in several groups; a `rescue`
  # of this module catches them all.
  module TimeoutError; end

  # The client has no usable connection: brokers reject it ({BrokerRejectedError}), or none can be reached
  # ({BrokersUnreachableError}). Messages fail with these errors, so they are {ProduceError}s. A consumer and an admin client
  # raise {BrokerRejectedError} too; an admin client that reaches no broker raises {AdminUnreachableError}. A `rescue` of this
  # module catches all of them.
  module ConnectionError; end
end

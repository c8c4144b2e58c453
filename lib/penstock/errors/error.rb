# frozen_string_literal: true

module Penstock
  # The base of every error that Penstock raises. Seven groups are below it, and each other class is in one of them:
  # {UsageError}, {ConfigurationError}, {ProduceError}, {TransactionError}, {ConsumeError}, {ClusterError}, and
  # {MessagePack::UnpackError}. docs/errors.md has the table.
  #
  # Pattern matching works: `rescue Penstock::Error => e; case e; in {code: :queue_full}`.
  class Error < StandardError
    include AsJson

    # Kafka's or librdkafka's name of the error, such as :msg_timed_out; nil when it has none.
    # @return [Symbol, nil]
    attr_reader :code
    # @return [Integer] the same as a number: Kafka's protocol code, or librdkafka's own when negative; 0 when none
    attr_reader :number
    # @return [String, nil] the same as librdkafka spells it, such as "_MSG_TIMED_OUT"
    attr_reader :name
    # @return [String, nil] the id of the producer it happened to
    attr_reader :producer_id
    # @return [String, nil] the id of the consumer it happened to
    attr_reader :consumer_id
    # @return [String, nil]
    attr_reader :topic
    # @return [Integer, nil]
    attr_reader :partition
    # @return [Integer, nil] where in the partition a consumer met it
    attr_reader :offset

    KEYWORDS = %i[code number name producer_id topic partition fatal retriable abortable consumer_id offset].freeze
    private_constant :KEYWORDS

    # Penstock builds its errors itself. A program makes one in its own tests: a client of {Clients} can fail with it.
    #
    # @example
    #   Penstock::QueueFullError.new("The queue is full.", code: :queue_full, topic: "events", retriable: true)
    # @param message [String, nil] nil: the name of the class
    # @param code [Symbol, nil] see {#code}; each other keyword has a reader or a predicate of its name too
    # @raise [ArgumentError] there is no such keyword
    def initialize(message = nil, code: nil, number: 0, name: nil, producer_id: nil, topic: nil, partition: nil,
                   fatal: false, retriable: false, abortable: false, consumer_id: nil, offset: nil, **wrong)
      Keywords.check("new(message, code: :queue_full)", KEYWORDS, [], wrong)
      super(message.nil? ? nil : Text.printable(message))
      @code = code
      @number = number
      @name = name
      @producer_id = producer_id
      @consumer_id = consumer_id
      @topic = topic
      @partition = partition
      @offset = offset
      @fatal = fatal
      @retriable = retriable
      @abortable = abortable
    end

    # @return [Boolean] the producer or consumer can do nothing more
    def fatal? = @fatal

    # @return [Boolean] doing the same again may succeed, and cannot repeat a message
    def retriable? = @retriable

    # @return [Boolean] the running transaction has to be aborted
    def abortable? = @abortable

    # @!method freeze
    #   So that Ractor.make_shareable can: where it was raised is kept as Strings, and `backtrace_locations` is nil then.
    #   @return [self]

    # @return [Hash] what pattern matching sees
    def deconstruct_keys(_keys)
      { code:, number:, name:, producer_id:, topic:, partition:,
        fatal: fatal?, retriable: retriable?, abortable: abortable?,
        consumer_id:, offset: }
    end

    # (see AsJson#as_json)
    def as_json(_options = nil)
      json(code: code&.to_s, message:, producer_id:, consumer_id:, topic:, partition:, fatal: fatal?, retriable: retriable?)
    end
  end

  # Time ran out for a wait ({WaitTimeoutError}), for a message ({MessageTimedOutError}) or for a consumer's question
  # ({ConsumeTimeoutError}). These errors of two groups include it, so that one `rescue` catches them all.
  module TimeoutError; end

  # A client has no usable connection: brokers reject it ({BrokerRejectedError}), or none can be reached
  # ({BrokersUnreachableError}). Messages fail with these errors, so they are {ProduceError}s. A consumer raises
  # {BrokerRejectedError} too, and one `rescue` of this
  # module catches it on both sides.
  module ConnectionError; end
end

# frozen_string_literal: true

module Penstock
  # What every error of Penstock is. Pattern matching works: `rescue Penstock::Error => e; case e; in {code: :queue_full}`.
  class Error < StandardError
    # Kafka's or librdkafka's name of the error, such as :msg_timed_out; nil when it has none.
    # @return [Symbol, nil]
    attr_reader :code
    # @return [Integer] the same as a number: Kafka's protocol code, or librdkafka's own when negative; 0 when none
    attr_reader :number
    # @return [String, nil] the same as librdkafka spells it, such as "_MSG_TIMED_OUT"
    attr_reader :name
    # @return [String, nil] the id of the producer it happened to
    attr_reader :producer_id
    # @return [String, nil]
    attr_reader :topic
    # @return [Integer, nil]
    attr_reader :partition

    # What to do about it, by code. One sentence each, the last of the error's message.
    ADVICE = {
      queue_full: "Produce more slowly, wait for handles, or raise queue.buffering.max.messages.",
      msg_timed_out: "Check that the brokers are up and reachable from here, and that message.timeout.ms is long enough.",
      timed_out: "Check that the brokers are up and reachable from here.",
      transport: "Check that the brokers are up and reachable from here, and that security.protocol fits the port.",
      all_brokers_down: "Check bootstrap.servers, and that the brokers are up and reachable from here.",
      unknown_topic: "Create the topic, or allow the cluster to create it.",
      unknown_topic_or_part: "Create the topic, or allow the cluster to create it.",
      unknown_partition: "Use a partition from 0 to partition_count(topic) - 1.",
      topic_authorization_failed: "Grant this client the right to write to the topic.",
      msg_size_too_large: "Send less in one message, or raise message.max.bytes here and on the topic.",
      purge_queue: "It was dropped before it was sent; send it again if it is still wanted.",
      purge_inflight: "It was dropped after it was sent, so it may be in the topic; sending it again may duplicate it.",
      fatal: "The producer cannot go on; close it and make a new one.",
      fenced: "Another producer with the same transactional.id has taken over; this one must not go on."
    }.freeze
    private_constant :ADVICE

    # @api private
    def initialize(message = nil, code: nil, number: 0, name: nil, producer_id: nil, topic: nil, partition: nil,
                   fatal: false, retriable: false, abortable: false)
      super(message)
      @code = code
      @number = number
      @name = name
      @producer_id = producer_id
      @topic = topic
      @partition = partition
      @fatal = fatal
      @retriable = retriable
      @abortable = abortable
    end

    # @return [Boolean] the producer can do nothing more
    def fatal? = @fatal

    # @return [Boolean] doing the same again may succeed, and cannot repeat a message
    def retriable? = @retriable

    # @return [Boolean] the running transaction has to be aborted
    def abortable? = @abortable

    # @return [Hash] what pattern matching sees
    def deconstruct_keys(_keys)
      { code:, number:, name:, producer_id:, topic:, partition:, fatal: fatal?, retriable: retriable?, abortable: abortable? }
    end

    # Called by error.c, the only place errors come from.
    # @api private
    def self.build(text, number, name, description, producer, brokers, problem, topic, partition, fatal, retriable, abortable)
      code = name&.delete_prefix("_")&.downcase&.to_sym
      message = [
        sentence(text, description, code),
        context(producer, topic, partition, network?(code) ? brokers : nil),
        network?(code) && problem ? "Last problem: #{problem}." : nil,
        self::CONSEQUENCE,
        ADVICE[code]
      ].compact.join(" ")
      new(message, code:, number:, name:, producer_id: producer, topic:, partition:, fatal:, retriable:, abortable:)
    end

    # What it means for the message.
    # @api private
    CONSEQUENCE = nil

    class << self
      private

      def sentence(text, description, code)
        cause = description && "#{description} (#{code})"
        parts = text == description ? [cause] : [text, cause]
        "#{parts.compact.join(": ")}."
      end

      def context(producer, topic, partition, brokers)
        parts = []
        parts << "producer #{producer}" if producer
        parts << "topic #{topic}" if topic
        parts << "partition #{partition}" if partition
        parts << "brokers #{brokers}" if brokers && !brokers.empty?
        "[#{parts.join(", ")}]" unless parts.empty?
      end

      def network?(code)
        %i[msg_timed_out timed_out transport all_brokers_down resolve].include?(code)
      end
    end
  end

  # Time ran out: for a wait ({WaitTimeoutError}) or for a message ({MessageTimedOutError}). For `rescue`.
  module TimeoutError; end

  # A setting is unknown, contradicts another, or has a value it cannot have. Nothing was made or connected.
  class ConfigurationInvalidError < Error; end

  # A message cannot be sent as it is. Nothing was sent, of a batch neither.
  class MessageInvalidError < Error; end

  # The producer or cluster was closed. Nothing was sent.
  class ProducerClosedError < Error; end

  # Something belongs to the process this one was forked from.
  class ForkedError < Error; end

  # The librdkafka in use lacks what was asked for.
  class UnsupportedError < Error; end

  # A message was not sent, or got no good verdict; see the subclasses and the code.
  class ProduceError < Error; end

  # librdkafka holds as many messages or bytes as it may (queue.buffering.max.*). The message was not taken.
  class QueueFullError < ProduceError
    # @api private
    CONSEQUENCE = "The message was not taken."
  end

  # The message was taken, and its verdict is a failure. {#retriable?} says whether it is certain not to be in the topic.
  class DeliveryError < ProduceError; end

  # message.timeout.ms passed before a broker acknowledged the message.
  class MessageTimedOutError < DeliveryError
    include TimeoutError
  end

  # The wait was over before the verdict came. The message is still on its way and may be delivered later.
  class WaitTimeoutError < ProduceError
    include TimeoutError

    # @api private
    CONSEQUENCE = "What has no verdict is still on its way and may be delivered later."
  end

  # A batch failed in part.
  class ProduceManyError < ProduceError
    # @return [Array<DeliveryHandle>] one for each message that was taken, in order
    attr_reader :dispatched

    # @api private
    def self.from(error, dispatched, size)
      message = "#{dispatched.size} of #{size} messages were taken. First error: #{error.message}"
      new(message, **error.deconstruct_keys(nil)).tap { |made| made.instance_variable_set(:@dispatched, dispatched) }
    end
  end
end

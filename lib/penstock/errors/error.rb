# frozen_string_literal: true

module Penstock
  # What every error of Penstock is. Pattern matching works: `rescue Penstock::Error => e; case e; in {code: :queue_full}`.
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

    FENCED = "Another producer with the same transactional.id has taken over; this one must not go on. " \
             "Do not send again from here, and give each producer a transactional.id of its own. " \
             "A transaction that lasts longer than transaction.timeout.ms ends in the same way."
    private_constant :FENCED

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
      cluster_authorization_failed: "Grant this client the right to write idempotently, or set enable.idempotence to false.",
      transactional_id_authorization_failed: "Grant this client the right to use and describe the transactional.id.",
      group_authorization_failed: "Grant this client the right to use the group.",
      msg_size_too_large: "Send less in one message, or raise message.max.bytes here and on the topic.",
      purge_queue: "It was dropped before it was sent; send it again if it is still wanted.",
      purge_inflight: "It was dropped after it was sent, so it may be in the topic; sending it again may duplicate it.",
      fatal: "The producer cannot go on; close it and make a new one.",
      fenced: FENCED,
      producer_fenced: FENCED,
      invalid_producer_epoch: FENCED
    }.freeze
    private_constant :ADVICE

    # @api private
    def initialize(message = nil, code: nil, number: 0, name: nil, producer_id: nil, topic: nil, partition: nil,
                   fatal: false, retriable: false, abortable: false, consumer_id: nil, offset: nil)
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

    # Called by error.c, the only place errors come from.
    # @api private
    def self.build(text, number, name, description, owner, brokers, problem, place, fatal, retriable, abortable)
      producer, consumer = owner
      topic, partition, offset = place
      code = name&.delete_prefix("_")&.downcase&.to_sym
      message = [
        sentence(text && Text.printable(text), description, code),
        context(producer, consumer, [topic && Text.printable(topic), partition, offset], network?(code) ? brokers : nil),
        network?(code) && problem ? "Last problem: #{problem}." : nil,
        consequence(fatal, retriable, abortable),
        advice(code)
      ].compact.join(" ")
      new(message, code:, number:, name:, producer_id: producer, topic:, partition:, fatal:, retriable:, abortable:,
                   consumer_id: consumer, offset:)
    end

    # What it means for the message.
    # @api private
    CONSEQUENCE = nil

    class << self
      private

      def consequence(_fatal, _retriable, _abortable) = self::CONSEQUENCE

      def sentence(text, description, code)
        cause = description && "#{description} (#{code})"
        parts = text == description ? [cause] : [text, cause]
        "#{parts.compact.join(": ")}."
      end

      def advice(code) = ADVICE[code]

      def context(producer, consumer, (topic, partition, offset), brokers)
        parts = []
        parts << "producer #{producer}" if producer
        parts << "consumer #{consumer}" if consumer
        parts << "topic #{topic}" if topic
        parts << "partition #{partition}" if partition
        parts << "offset #{offset}" if offset
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

  # `config.serializer` raised, then that is the `cause`; or it returned no String. Nothing was sent, of a batch neither.
  class SerializationError < MessageInvalidError; end

  # The producer or cluster was closed. Nothing was sent.
  class ProducerClosedError < Error; end

  # {Producer#setup} was not called yet. Nothing was sent.
  class ProducerNotConfiguredError < Error; end

  # {Producer#setup} was called before. Nothing was changed.
  class ProducerAlreadyConfiguredError < Error; end

  # {Producer#close} was called inside the producer's own transaction. Nothing was closed.
  class ProducerTransactionalCloseAttemptError < Error; end

  # A transaction was asked of a producer without `transactional.id`.
  class ProducerNotTransactionalError < Error; end

  # Something needs a running transaction of this fiber.
  class TransactionRequiredError < Error; end

  # What was given to {Producer#transaction_mark_as_consumed} is no consumed message. Nothing was marked.
  class TransactionalOffsetInvalidError < Error; end

  # A transaction's block was left by return, break or throw. The transaction was aborted.
  class EarlyTransactionExitNotAllowedError < Error; end

  # Another fiber has the producer's transaction and can never end it while this one waits: it is of the same thread, and
  # no fiber scheduler runs; or its thread has ended inside the block. Nothing was sent or begun. {Producer#close} aborts
  # that transaction.
  class TransactionDeadlockError < Error; end

  # A listener of what a producer does to its own connection ("producer.reload", and "error.occurred" meanwhile) asked it for
  # something that has to wait for the listener's end. Nothing was sent or begun. Another thread may ask, or a listener of
  # "producer.connected".
  class ListenerDeadlockError < Error; end

  # To be raised by a program inside a transaction's block: aborts it, and goes no further than the block.
  class AbortTransaction < Error; end

  # A setting of {Producer#with} is unknown, has a wrong value, or contradicts the producer's; or there are too
  # many. Nothing was made.
  class VariantInvalidError < Error; end

  # Something was called in a signal trap that cannot be done there; see {Producer}. Nothing was sent, begun or changed.
  class SignalTrapError < Error; end

  # Something is for the main Ractor only, or is done by a producer that other Ractors use; see {Producer#shareable}.
  # Nothing was sent or made.
  class NotShareableError < Error; end

  # Something belongs to the process this one was forked from.
  class ForkedError < Error; end

  # There is no event of this name; the message names the nearest.
  class EventUnknownError < Error; end

  # A hook of {Producer#around} did not call the {Producer::SendContext} it got, called it twice, or gave it other messages
  # than it may. The message says whether something was sent.
  class HookError < Error; end

  # {ConnectionPool} was used before {ConnectionPool.setup}.
  class PoolNotConfiguredError < Error; end

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
  # With {#fatal?} the producer's fatal error is why, and {#code} is that error's; a producer that was fenced gives
  # {ProducerFencedError} instead.
  class DeliveryError < ProduceError
    class << self
      private

      def consequence(fatal, *) = fatal ? "The producer met a fatal error before it sent the message." : super
    end
  end

  # message.timeout.ms passed before a broker acknowledged the message.
  #
  # For other messages of the producer that are just being sent again it means that they may get into the topic twice, as
  # librdkafka then begins a new epoch of its producer id (bench/timeout_duplicate.c). That takes an outage of
  # message.timeout.ms, by default 150 seconds. Who cannot bear it sets message.timeout.ms to 0 (without limit), or uses
  # transactions, or gives topics with another patience a producer or variant of their own.
  class MessageTimedOutError < DeliveryError
    include TimeoutError
  end

  # The wait was over before the verdict came. The message is still on its way and may be delivered later.
  class WaitTimeoutError < ProduceError
    include TimeoutError

    # @api private
    CONSEQUENCE = "What has no verdict is still on its way and may be delivered later."
  end

  # The brokers can be reached and do not want this client: nothing else was heard of them for `config.refusal_timeout`.
  # A producer goes on trying, and new messages are delivered once it is let in; so does a consumer, which raises it too.
  class RefusedError < ProduceError
    # @api private
    def self.build(text, *)
      error = super
      new([error.message, RejectionAdvice.advice(Text.printable(text))].compact.join(" "), **error.deconstruct_keys(nil))
    end

    class << self
      private

      # The text says it already, and more.
      def network?(_code) = false
      def advice(_code) = nil
    end
  end

  # TLS could not be agreed on: the broker's certificate is not accepted here, or ours is not accepted there, or one of the
  # two does not speak TLS.
  class TlsError < RefusedError; end

  # The broker does not believe who we are: user name, password, token or mechanism.
  class AuthenticationError < RefusedError; end

  # The broker hangs up without a word: it expects another `security.protocol` on this port.
  class SecurityProtocolError < RefusedError; end

  # No broker could be reached for `config.unreachable_timeout`. {#retriable?} says whether the message certainly is not in the
  # topic. A message that was sent before the connection was lost may be there.
  #
  # New messages fail in the same way, at once, until a broker can be reached again. The producer keeps trying by itself.
  class BrokersUnreachableError < ProduceError
    class << self
      private

      def advice(code)
        "#{super} The producer keeps trying: send the message again later, or keep it elsewhere."
      end
    end
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

  # A transaction call failed. What to do follows from {#fatal?}, {#abortable?} and {#retriable?}, asked in this order;
  # when all are false, the call was not allowed now or the cluster refuses it, and nothing has changed.
  class TransactionError < Error
    class << self
      private

      def consequence(fatal, retriable, abortable)
        if fatal
          "The producer can do nothing more; the cluster aborts a transaction that was not being committed."
        elsif abortable
          "The transaction cannot be committed any more; abort it, then begin another."
        elsif retriable
          "It may still succeed; make the same call again."
        end
      end
    end
  end

  # Another producer with the same `transactional.id` has taken over, or the cluster has ended a transaction that lasted longer
  # than `transaction.timeout.ms`. The code is `:fenced`. Every call on the producer raises it: `produce_*`, waiting for a handle,
  # and `transaction`. {DeliveryHandle#error} returns it for messages that the producer had not delivered.
  #
  # Nothing of the transaction is visible to readers of committed messages. Do not send again from this producer.
  class ProducerFencedError < TransactionError; end

  # Too late to abort: the transaction has been committed, by a call that was interrupted or out of time, perhaps.
  class TransactionCommittedError < TransactionError
    # @api private
    def self.consequence(*) = "Its messages and offsets are there for everybody; nothing was aborted."
    private_class_method :consequence
  end

  # What {#code} and {#message} say has ended the producer for good: it takes no messages and no transactions any more.
  class FatalError < Error
    # @api private
    CONSEQUENCE = "The producer can do nothing more; what it has in flight still gets its verdicts."
  end

  # The consumer was closed.
  class ConsumerClosedError < Error; end

  # A consumer met an error that does not go away by itself, or something asked of it failed. See the code.
  class ConsumeError < Error
    # What to do about it, where that differs from a producer's.
    CONSUMER_ADVICE = {
      topic_authorization_failed: "Grant this client the right to read the topic.",
      group_authorization_failed: "Grant this client the right to use the group.",
      max_poll_exceeded: "Poll more often, take fewer messages at a time, or raise max.poll.interval.ms. " \
                         "The next poll joins the group again.",
      bad_msg: "What was written there is damaged, and is not delivered. The next poll goes on behind it.",
      auto_offset_reset: "Seek to an offset that exists, or set auto.offset.reset to \"earliest\" or \"latest\".",
      state: "The partition is not assigned to this consumer, or not any more.",
      unknown_member_id: "The consumer was thrown out of its group; what it had is others' now.",
      illegal_generation: "The group has rebalanced meanwhile; what was committed may be another member's now.",
      fatal: "The consumer cannot go on; close it and make a new one.",
      fenced_instance_id: "Another consumer with the same group.instance.id has taken over; this one must not go on."
    }.freeze
    private_constant :CONSUMER_ADVICE

    class << self
      private

      def advice(code) = CONSUMER_ADVICE[code] || super
    end
  end

  # Offsets were not committed. Their messages are delivered again after a restart or rebalance.
  class CommitError < ConsumeError; end

  # The brokers did not answer a consumer's question in time. An offset to be committed may still be.
  class ConsumeTimeoutError < ConsumeError
    include TimeoutError
  end
end

# frozen_string_literal: true

module Penstock
  module Native
    # One librdkafka producer; see ext/penstock/ruby/producer_class.c. {Producer} is its only user.
    #
    # In a fork child, the first use replaces the client by a new one with the same configuration. The parent's client is left
    # untouched. A closed client stays closed.
    # @!method initialize(settings)
    #   @param settings [Hash{Symbol => Object}] `id`, `kafka`, `poller`, `logger`, and those of {.settings_of}
    #   @raise [ConfigurationInvalidError] when librdkafka rejects a setting
    #   @raise [KeyError] when one is missing
    # @!method self.check(message, index, max_payload_size, message_max_bytes)
    # @!method connect
    # @!method produce(message)
    # @!method produce_many(messages, timeout_ms, tally = nil)
    # @!method flush(timeout_ms)
    # @!method timeout_error(text, topic)
    # @!method close(timeout_ms, stop_ms = nil)
    #   Takes up to `timeout_ms`, at least 500, and stops delivering after `stop_ms`; nil: in time for the last steps.
    #   @return [Array<Integer>] delivered, failed, purged, pending, unnoticed: see {CloseReport}
    # @!method begin_closing(timeout_ms)
    #   Like {#close}, without waiting for it.
    # @!method hurry(timeout_ms)
    #   A running close stops delivering after this time, if not earlier.
    # @!method queue_size
    # @!method counters
    #   @return [Hash{Symbol => Integer}] since it was opened: `messages` and `bytes` accepted; `delivered`, `failed`, `purged`;
    #     `dropped`: failed without being accepted (`on_queue_full` :drop); Produce `requests`, and those of them that brought no
    #     delivery result, `retries`
    # @!method latencies
    #   @return [Hash{Integer => Integer}] upper bound in us => number of deliveries
    # @!method partition_count(topic, timeout_ms, max_age_ms)
    # @!method brokers(timeout_ms)
    #   Asks the cluster for its brokers, with their advertised addresses. Blocks for a round trip, without the GVL.
    #   @return [Array(String, Integer, Array<Array(Integer, String, Integer)>)] the cluster's id, or nil; the controller's, or
    #     -1; and id, host and port of each broker
    #   @raise [BrokerRejectedError, Error] when brokers reject this client, or the cluster did not answer
    # @!method state
    #   @return [:configured, :open, :closing, :closed]
    # = Transactions
    #
    # librdkafka's calls run one at a time, in the order of the callers. Each blocks its thread,
    # without the GVL, and is interruptible at once. An interrupted call that has begun continues to its end. One
    # that has not begun (because another was running) is not made, except an abort. So after any interrupt
    # {#abort_transaction} waits for the interrupted call, and leaves the client ready for {#begin_transaction}.
    #
    # {#init_transactions} and {#commit_transaction} may be repeated to learn the outcome of an interrupted call.
    #
    # The timeouts are in ms; nil: `transaction.timeout.ms`, for {#init_transactions} twice that. A client accepts no
    # messages before init, and none outside a transaction. A fork child is a new client with the same `transactional.id`:
    # its {#init_transactions} fences its parent.
    #
    # Closing waits for the call in progress: until half a second after it stops delivering, or until the call's own
    # timeout (sending offsets cannot be cut short). Calls that have not begun raise {ProducerClosedError}. A
    # transaction that is open then is aborted. `Producer#close` still returns in its time.
    #
    # @!method init_transactions(timeout_ms)
    #   Takes over the `transactional.id`: ends the open transaction of another producer, and fences that one. Call it once,
    #   first.
    #   @return [nil]
    #   @raise [TransactionError] when it failed; retriable: repeat the call to continue
    # @!method begin_transaction
    #   @return [nil]
    #   @raise [TransactionError] when it failed
    # @!method commit_transaction(timeout_ms)
    #   Delivers what is in flight and commits. Afterwards each message of the transaction has its delivery result.
    #   @return [nil]
    #   @raise [TransactionError] when it failed; retriable: undecided, call it again, or try to abort
    # @!method abort_transaction(timeout_ms)
    #   Purges unsent messages, waits for sent ones, and aborts. A second abort does nothing.
    #   @return [nil]
    #   @raise [TransactionCommittedError] when an earlier commit was interrupted or timed out, and has succeeded
    #   @raise [TransactionError] when it failed
    # @!method send_offsets_to_transaction(offsets, group, timeout_ms)
    #   Makes offsets of a consumer group part of the transaction: committed and aborted with it.
    #   @param offsets [Array<Array(String, Integer, Integer, String)>] topic, partition, offset of the next message to be
    #     consumed, metadata or nil; empty: nothing is done
    #   @param group [Consumer, String] the consumer, or the id of its group
    #   @return [nil]
    #   @raise [TransactionError] when it failed; retriable: undecided, send the same offsets again
    #   @raise [ArgumentError] when an argument is invalid
    # @!method transactional?
    #   @return [Boolean] `transactional.id` is set; never blocks
    # @!method idempotent?
    #   @return [Boolean] `enable.idempotence` is in effect, also because of `transactional.id`; never blocks
    # @!method failed_message
    #   @return [DeliveryError, BrokerRejectedError, nil] of the first message of the latest transaction that was not delivered;
    #     never blocks
    # @!method fatal_error
    #   @return [FatalError, nil] the fatal error of this client, while it is open; never blocks
    # @!method purge
    #   Purges everything in flight. The delivery results purge_queue (not sent) and purge_inflight (sent; it may be in the
    #   topic) come at once, also when no broker answers. The client stays usable.
    #
    #   Blocks: for a fraction of a ms, until librdkafka's threads release the messages. While one of them looks up the
    #   name of its broker, up to a second; messages that are produced until then may be purged too.
    #
    #   purge_inflight means the same for an idempotent producer: producing the message again may duplicate it, because
    #   it is a new message for the broker. The order of later messages stays correct: librdkafka first takes a new epoch,
    #   once the other sent messages are answered. A transaction can only be aborted then.
    #   @return [Integer] how many messages were in flight
    # @api private
    class ProducerClient
      include Uncopyable
      include AsJson

      # @param config [Config]
      # @return [Hash{Symbol => Object}] settings for {.new}; `id`, `kafka`, `poller` and `logger` are missing
      def self.settings_of(config)
        fd = config.polling.fd
        { max_payload_size: config.max_payload_size, close_timeout: config.close_timeout, max_time: fd.max_time,
          periodic_poll_interval: fd.periodic_poll_interval, drop_on_queue_full: config.on_queue_full == :drop,
          wait_timeout_on_queue_full: config.on_queue_full == :wait ? config.wait_timeout_on_queue_full : 0,
          wait_timeout_on_transaction_abort: config.wait_timeout_on_transaction_abort,
          rejection_timeout: config.rejection_timeout, unreachable_timeout: config.unreachable_timeout,
          flush_on_wait: config.flush_on_wait }
      end

      # Simulates a fatal error of librdkafka, for tests of a program's reaction. Opens the client.
      # @param code [Symbol, Integer] Kafka's or librdkafka's code, such as :out_of_order_sequence_number
      # @param reason [String]
      # @return [nil]
      # @raise [ArgumentError] when there is no such code
      # @raise [Error] when there was a fatal error before
      def test_fatal_error(code, reason)
        state # raises when there is no client
        unless code.is_a?(Integer)
          codes = EmbeddedCluster.__send__(:error_codes)
          code = codes[code] || codes[:"_#{code}"] || raise(ArgumentError, "no error #{code.inspect}")
        end
        call_test_fatal_error(code, reason)
      end

      # @return [Array<String>] the names of librdkafka's settings
      def self.setting_names = setting_lines.map { |line| line[/\A\S+/] }

      def inspect = "#<#{self.class} #{state}>"
    end
  end
end

# frozen_string_literal: true

module Penstock
  module Native
    # One librdkafka producer; see ext/penstock/ruby/producer_class.c. {Producer} is its only user.
    #
    # In a forked child, the first use replaces the parent's client, which is left alone, by a fresh one with the same
    # configuration; one that was closed stays closed.
    # @!method self.check(message, index, max_payload_size, message_max_bytes)
    # @!method connect
    # @!method produce(message)
    # @!method produce_many(messages, timeout_ms, tally = nil)
    # @!method flush(timeout_ms)
    # @!method timeout_error(text, topic)
    # @!method close(timeout_ms)
    #   @return [Array<Integer>] delivered, failed, purged, pending, unnoticed: see {CloseReport}
    # @!method begin_closing(timeout_ms)
    #   Like {#close}, without waiting for it.
    # @!method hurry(timeout_ms)
    #   Brings forward the end of a closing that goes on.
    # @!method queue_size
    # @!method counters
    #   @return [Array(Integer, Integer, Integer, Integer, Integer)] messages accepted, delivered, failed and purged so far, and
    #     those that failed without being accepted (`on_queue_full` :drop)
    # @!method partition_count(topic, timeout_ms, max_age_ms)
    # @!method brokers(timeout_ms)
    #   Asks the cluster which brokers it has, as they advertise themselves. Blocks for a round trip, without the GVL.
    #   @return [Array(String, Integer, Array<Array(Integer, String, Integer)>)] the cluster's id, or nil; the controller's, or
    #     -1; and of each broker id, host and port
    #   @raise [BrokerRejectedError, Error] the cluster did not let this client in, or did not answer
    # @!method state
    #   @return [:configured, :open, :closing, :closed]
    # = Transactions
    #
    # librdkafka's calls, one at a time and in the order they were asked for, whatever thread asks. Each blocks its thread,
    # without the GVL, and is interruptible at once. A call that had begun when it was interrupted goes on to its end; one
    # that had not (another was still running) is not made, except aborting, which is. So after any interruption
    # {#abort_transaction} leaves the client ready for {#begin_transaction}; it waits for the interrupted call.
    #
    # {#init_transactions} and {#commit_transaction} may be repeated to learn how an interrupted one ended.
    #
    # The timeouts are in ms; nil: `transaction.timeout.ms`, for {#init_transactions} twice that. Without init a client
    # takes no messages, and none outside a transaction. A forked child is a new client with the same `transactional.id`:
    # its {#init_transactions} shuts its parent out.
    #
    # Closing waits for the call in progress until it gives up delivering, half a second longer, or until the call's own
    # timeout (offsets being sent cannot be cut short); calls that have not begun raise {ProducerClosedError}. A
    # transaction that is open then is aborted. `Producer#close` returns in its time all the same.
    #
    # @!method init_transactions(timeout_ms)
    #   Takes over the `transactional.id`: ends what another producer left behind, and shuts that one out. Once, first.
    #   @return [nil]
    #   @raise [TransactionError] retriable: the same call goes on
    # @!method begin_transaction
    #   @return [nil]
    #   @raise [TransactionError]
    # @!method commit_transaction(timeout_ms)
    #   Delivers what is in flight and commits. Afterwards each message of the transaction has its verdict.
    #   @return [nil]
    #   @raise [TransactionError] retriable: undecided, call it again, or abort to give it up if that is still possible
    # @!method abort_transaction(timeout_ms)
    #   Purges what was not sent, waits for what was, and aborts. Aborting again does nothing.
    #   @return [nil]
    #   @raise [TransactionCommittedError] a commit before was interrupted or out of time, and has gone through
    #   @raise [TransactionError]
    # @!method send_offsets_to_transaction(offsets, group, timeout_ms)
    #   Makes offsets of a consumer group part of the transaction: committed and aborted with it.
    #   @param offsets [Array<Array(String, Integer, Integer, String)>] topic, partition, offset of the next message to be
    #     consumed, metadata or nil; none: nothing is done
    #   @param group [Consumer, String] whose offsets they are; or the group's id
    #   @return [nil]
    #   @raise [TransactionError] retriable: nothing was decided; send the same again
    #   @raise [ArgumentError]
    # @!method transactional?
    #   @return [Boolean] `transactional.id` is set; never blocks
    # @!method idempotent?
    #   @return [Boolean] `enable.idempotence` is in effect, also because of `transactional.id`; never blocks
    # @!method fatal_error
    #   @return [FatalError, nil] what has ended this client for good, while it is open; never blocks
    # @!method purge
    #   Gives up everything in flight: verdicts purge_queue (not sent) and purge_inflight (sent; it may be in the topic)
    #   come at once, also when no broker answers. The client goes on.
    #
    #   Blocks: for the fraction of a ms that librdkafka's threads take to let go of them. One that is looking up its broker's
    #   name takes longer; then for a second, and what is produced until that thread is done may be given up as well.
    #
    #   What purge_inflight means is the same for an idempotent producer: producing it again may duplicate it, since
    #   that is a new message for the broker. The order of what follows stays right; librdkafka takes a new epoch first, once
    #   what else was sent is answered. In a transaction that then can only be aborted.
    #   @return [Integer] how many messages were in flight
    # @api private
    class ProducerClient
      include Uncopyable
      include AsJson

      # @param config [Config]
      # @return [Array] what {.new} takes last
      def self.settings_of(config)
        fd = config.polling.fd
        [config.max_payload_size, config.close_timeout, fd.max_time, fd.periodic_poll_interval,
         config.on_queue_full == :wait ? config.wait_timeout_on_queue_full : 0, config.on_queue_full == :drop,
         config.wait_timeout_on_transaction_abort, config.rejection_timeout, config.unreachable_timeout]
      end

      # Lets librdkafka behave as if a fatal error had occurred, for tests of what a program does then. Opens the client.
      # @param code [Symbol, Integer] Kafka's or librdkafka's code, such as :out_of_order_sequence_number
      # @param reason [String]
      # @return [nil]
      # @raise [ArgumentError] there is no such code
      # @raise [Error] there was a fatal error before
      def test_fatal_error(code, reason)
        state # raises when there is no client
        unless code.is_a?(Integer)
          codes = EmbeddedCluster.error_codes
          code = codes[code] || codes[:"_#{code}"] || raise(ArgumentError, "no error #{code.inspect}")
        end
        call_test_fatal_error(code, reason)
      end

      # @return [Array<String>] what librdkafka calls its settings
      def self.setting_names = setting_lines.map { |line| line[/\A\S+/] }

      def inspect = "#<#{self.class} #{state}>"
    end
  end
end

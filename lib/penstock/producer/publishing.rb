# frozen_string_literal: true

module Penstock
  class Producer
    # Sending, and what stands before it: middleware, serializer, variants, the transaction of its own that a transactional
    # producer gives a message outside of one, and the second attempt when the client was replaced.
    module Publishing
      include Resending
      include Tombstones

      # Sends a message and waits for its verdict.
      #
      # Blocks: this thread, until the verdict or `max_wait_timeout`, without the GVL; interruptible at once. While
      # librdkafka's queue is full, as `config.on_queue_full` says.
      #
      # @param message [Hash] see {Producer}
      # @return [DeliveryReport] of a message that was delivered
      # @raise [MessageInvalidError] the message cannot be sent as it is; nothing was sent
      # @raise [QueueFullError] librdkafka's queue has no room; nothing was sent
      # @raise [DeliveryError] the verdict is a failure
      # @raise [ProducerFencedError] another producer with the same `transactional.id` has taken over; do not send again from here
      # @raise [WaitTimeoutError] no verdict in time; the message may still be delivered
      # @raise [ProducerClosedError] nothing was sent
      def produce_sync(message)
        return send_and_wait(@middleware.run(message)) if direct?

        dispatching("message.produced_sync", "message.produce_sync", :message, message) { |ready| send_and_wait(ready) }
      end

      # Sends a message without waiting for its verdict.
      #
      # Blocks: no, except at the first use, for the ms it takes to make the client's threads; while librdkafka's
      # queue is full, as `config.on_queue_full` says; and for a topic or partition that librdkafka says does not exist,
      # while the cluster is asked whether that still holds: once a second for a topic, for a second at most.
      #
      # @param message [Hash] see {Producer}
      # @return [DeliveryHandle]
      # @raise [MessageInvalidError, QueueFullError, ProducerClosedError] see {#produce_sync}; nothing was sent
      def produce_async(message)
        return send_one(@middleware.run(message)) if direct?

        dispatching("message.produced_async", "message.produce_async", :message, message) { |ready| send_one(ready) }
      end

      # Sends messages and waits for all their verdicts. All are checked before the first is sent.
      #
      # Blocks: like {#produce_sync}, `max_wait_timeout` being for all together.
      #
      # @param messages [Array<Hash>] see {Producer}
      # @return [Array<DeliveryHandle>] one for each message, in order, each with its verdict: all were delivered
      # @raise [MessageInvalidError] one of them cannot be sent as it is; nothing was sent
      # @raise [ProduceManyError] at least one was not taken or not delivered; `dispatched` has the handles of those
      #   that were taken, and they have their verdicts
      # @raise [ProducerFencedError] see {#produce_sync}
      # @raise [WaitTimeoutError] not all verdicts came in time
      def produce_many_sync(messages)
        return send_many(@middleware.run_many(messages), max_wait_timeout) if direct?

        dispatching("messages.produced_sync", "messages.produce_many_sync", :messages, messages) do |ready|
          send_many(ready, max_wait_timeout)
        end
      end

      # Sends messages without waiting for their verdicts. All are checked before the first is sent.
      #
      # Blocks: like {#produce_async}. The GVL is held while the messages are checked, about a tenth of a microsecond
      # for each, and released while they are handed to librdkafka.
      #
      # @param messages [Array<Hash>] see {Producer}
      # @return [Array<DeliveryHandle>] one for each message, in order
      # @raise [MessageInvalidError] one of them cannot be sent as it is; nothing was sent
      # @raise [ProduceManyError] librdkafka did not take all, such as when its queue is full; `dispatched` has the
      #   handles of those before the first that was not
      def produce_many_async(messages)
        return send_many(@middleware.run_many(messages), false) if direct?

        dispatching("messages.produced_async", "messages.produce_many_async", :messages, messages) do |ready|
          send_many(ready, false)
        end
      end

      # Sends a tombstone, a message without payload that deletes its key from a compacted topic, and waits for its verdict.
      # A payload given is left out.
      #
      # Blocks: like {#produce_sync}.
      #
      # @param message [Hash] see {Producer}; with `key` and `partition`, so that it goes where the key's messages are
      # @return [DeliveryReport]
      # @raise [Error] see {#produce_sync}
      def tombstone_sync(message)
        produce_sync(made_tombstone("message.produce_sync", :message, message) { tombstone(message) })
      end

      # {#tombstone_sync} without waiting. Blocks: like {#produce_async}.
      # @param message [Hash]
      # @return [DeliveryHandle]
      # @raise [Error] see {#produce_async}
      def tombstone_async(message)
        produce_async(made_tombstone("message.produce_async", :message, message) { tombstone(message) })
      end

      # {#tombstone_sync} for many. Blocks: like {#produce_many_sync}.
      # @param messages [Array<Hash>]
      # @return [Array<DeliveryHandle>]
      # @raise [Error] see {#produce_many_sync}
      def tombstone_many_sync(messages)
        produce_many_sync(made_tombstone("messages.produce_many_sync", :messages, messages) { tombstones(messages) })
      end

      # {#tombstone_async} for many. Blocks: like {#produce_many_async}.
      # @param messages [Array<Hash>]
      # @return [Array<DeliveryHandle>]
      # @raise [Error] see {#produce_many_async}
      def tombstone_many_async(messages)
        produce_many_async(made_tombstone("messages.produce_many_async", :messages, messages) { tombstones(messages) })
      end

      private

      # Nobody listens, no transactions, no hooks, no serializer: then a message goes its way with as few method calls as
      # there can be.
      def direct? = @monitor.silent? && @direct

      # @param tally [Buffering::Tally, nil] is told when all is done
      def dispatching(event, type, name, given, tally = nil, &send)
        check_usable
        ready = name == :message ? @middleware.run(given) : @middleware.run_many(given)
        ready = name == :message ? @serializer.run(ready) : @serializer.run_many(ready) if @serializer
        hooks = @hooks
        return dispatched(event, name, ready, tally, &send) if hooks.empty?

        through(hooks, type, ready) { |messages| dispatched(event, name, messages, tally, &send) }
      rescue Error => e
        report_failure(type, e, name => given) unless @monitor.silent?
        raise
      end

      def dispatched(event, name, ready, tally)
        return yield(ready) unless @transactional || @monitor.listening?(event)

        timed(event, name => ready) do
          value = in_own_transaction { yield(ready) }
          tally&.gone_through
          value
        end
      end

      def in_own_transaction(&block)
        @transactional && !transaction? ? transaction(&block) : yield
      end

      def report_failure(type, error, payload)
        payload[:dispatched] = error.dispatched if error.is_a?(ProduceManyError)
        instrument("error.occurred") { { type:, error:, **payload } }
      end

      def send_one(message)
        connection = @variants ? current_connection : @connection
        client = connection.use
        handle = client.produce(message)
        @handed_over << handle if @handed_over
        handle
      rescue Error => e
        retry if client && goes_on?(connection, client, e)
        raise
      end

      def send_and_wait(message)
        connection = @variants ? current_connection : @connection
        client = connection.use
        handle = client.produce(message)
        @handed_over << handle if @handed_over
        handle.wait(max_wait_timeout_ms: max_wait_timeout)
      rescue Error => e
        retry if client && goes_on?(connection, client, e)
        raise
      end

      # @param timeout_ms [Integer, nil, false] false: not waiting
      # @param tally [Buffering::Tally, nil] is told what has been handed over
      def send_many(messages, timeout_ms, tally = nil)
        connection = current_connection
        client = connection.use
        begin
          handles, refused, delivered = client.produce_many(messages, timeout_ms, tally&.counted)
        rescue Error => e
          return send_many(messages, timeout_ms, tally) if goes_on?(connection, client, e)

          raise
        end
        @handed_over&.concat(handles)
        return handles if delivered || (refused.nil? && timeout_ms == false)

        after_failure(connection, client, handles, refused, messages, timeout_ms, tally)
      end

      # Whether the same can be done again with another client.
      def goes_on?(connection, client, error)
        return false unless unsent?(error) && @status.active?
        return true unless connection.client.equal?(client) # disconnected, or replaced by another thread

        reload_after_fatal_error(connection, client, error)
      end

      def reload_after_fatal_error(connection, client, error)
        return false if @transactional || !config.reload_on_idempotent_fatal_error

        fatal = client.fatal_error
        return !connection.client.equal?(client) if fatal.nil? # a client that was replaced meanwhile does not know it any more
        return false if config.non_reloadable_errors.include?(fatal.code)

        replace_after(fatal, connection, client, error)
      end

      def replace_after(fatal, connection, client, error)
        backoff_ms = config.wait_backoff_on_idempotent_fatal_error
        connection.replace(client, error, limit: config.max_attempts_on_idempotent_fatal_error,
                                          backoff_ms:, drain_ms: [backoff_ms, 1_000].max,
                                          proven: client.counters[1].positive?) do |attempt|
          instrument("error.occurred") { { type: "librdkafka.idempotent_fatal_error", error: fatal, attempt: } }
        end
      end

      # What its own checks refuse is told as what the checks of every message refuse.
      def made_tombstone(type, name, given)
        check_usable
        yield
      rescue Error => e
        report_failure(type, e, name => given) unless @monitor.silent?
        raise
      end
    end
  end
end

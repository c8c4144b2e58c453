# frozen_string_literal: true

module Penstock
  class Producer
    # Sends messages, after middleware, serializer and hooks. Gives a message of a transactional producer its own
    # transaction when none is running. Sends again when the client was replaced.
    # @api private
    class Publisher
      include Resending
      include Tombstones

      # @return [SendHooks]
      attr_reader :hooks
      # @return [Serializer, nil]
      attr_reader :serializer

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @variants = internals.variants
        @own = @variants.own
        @transactions = internals.transactions
        @monitor = internals.monitor
        @middleware = internals.middleware
        @hooks = SendHooks.new(internals)
        @serializer = nil
        @transactional = false
        @direct = true # no transactions, no hooks and no serializer
      end

      # Called when the producer is configured.
      # @param serializer [Serializer, nil]
      def configure(serializer)
        @monitor = @internals.monitor
        @middleware = @internals.middleware
        @transactional = @internals.transactional?
        @serializer = serializer
        @direct = false if @transactional || serializer
      end

      # See {Producer#around}.
      def around(hook, block)
        @hooks.add(hook, block) { @direct = false }
        @internals.ractor_handles.refresh # M:hook_refreshes_handles
      end

      # The first line is the fast path: without listeners, transactions, hooks and serializer, it makes as few method calls
      # as possible. So do the other methods of this name.
      def produce_sync(message)
        return send_and_wait(@middleware.run(message)) if @direct && @monitor.silent?

        dispatching("message.produced_sync", "message.produce_sync", :message, message) { |ready| send_and_wait(ready) }
      end

      def produce_async(message)
        return send_one(@middleware.run(message)) if @direct && @monitor.silent?

        dispatching("message.produced_async", "message.produce_async", :message, message) { |ready| send_one(ready) }
      end

      def produce_many_sync(messages)
        return send_many(@middleware.run_many(messages), @variants.max_wait_timeout) if @direct && @monitor.silent?

        dispatching("messages.produced_sync", "messages.produce_many_sync", :messages, messages) do |ready|
          send_many(ready, @variants.max_wait_timeout)
        end
      end

      def produce_many_async(messages)
        return send_many(@middleware.run_many(messages), false) if @direct && @monitor.silent?

        dispatching("messages.produced_async", "messages.produce_many_async", :messages, messages) do |ready|
          send_many(ready, false)
        end
      end

      # Publishes errors of its own checks like those of other messages.
      # @param type [String] of "error.occurred"
      # @return [Hash]
      def make_tombstone(type, message) = reporting_failures(type, :message, message) { tombstone(message) }

      # @return [Array<Hash>]
      def make_tombstones(type, messages) = reporting_failures(type, :messages, messages) { tombstones(messages) }

      # Sends the messages of a flush.
      # @param tally [Buffer::Tally] counts the accepted messages, and notes the end
      def flush(event, type, messages, tally, timeout_ms)
        dispatching(event, type, :messages, messages, tally) { |ready| send_many(ready, timeout_ms, tally) }
      end

      # Replaces a client that a fatal error has ended, if the configuration allows it.
      def replace_failed(connection, client)
        fatal = client.fatal_error or return
        reload_after_fatal_error(connection, client, fatal)
      end

      # @return [String]
      def inspect = "#<#{self.class}#{" direct" if @direct}>"

      private

      # @param tally [Buffer::Tally, nil] notes the end
      def dispatching(event, type, name, given, tally = nil, &send)
        @internals.check_usable
        ready = name == :message ? @middleware.run(given) : @middleware.run_many(given)
        ready = name == :message ? @serializer.run(ready) : @serializer.run_many(ready) if @serializer
        hooks = @hooks.all
        return dispatched(event, name, ready, tally, &send) if hooks.empty?

        @hooks.through(hooks, type, ready) { |messages| dispatched(event, name, messages, tally, &send) }
      rescue Error => e
        report_failure(type, e, name => given) unless @monitor.silent?
        raise
      end

      def dispatched(event, name, ready, tally)
        return yield(ready) unless @transactional || @monitor.listening?(event)

        @internals.notifier.timed(event, name => ready) do
          value = @transactions.around_message { yield(ready) }
          tally&.complete!
          value
        end
      end

      def reporting_failures(type, name, given)
        @internals.check_usable
        yield
      rescue Error => e
        report_failure(type, e, name => given) unless @monitor.silent?
        raise
      end

      def report_failure(type, error, payload)
        payload[:dispatched] = error.dispatched if error.is_a?(ProduceManyError)
        @internals.notifier.instrument("error.occurred") { { type:, error:, **payload } }
      end

      def send_one(message)
        connection = @variants.any? ? @variants.connection : @own
        client = connection.use
        handle = client.produce(message)
        @transactions.sent(handle) if @transactional
        handle
      rescue Error => e
        retry if client && retry_with_new_client?(connection, client, e)
        raise
      end

      def send_and_wait(message)
        connection = @variants.any? ? @variants.connection : @own
        client = connection.use
        handle = client.produce(message)
        @transactions.sent(handle) if @transactional
        handle.wait(max_wait_timeout_ms: @variants.max_wait_timeout)
      rescue Error => e
        retry if client && retry_with_new_client?(connection, client, e)
        raise
      end

      # @param timeout_ms [Integer, nil, false] false: not waiting
      # @param tally [Buffer::Tally, nil] counts the accepted messages
      def send_many(messages, timeout_ms, tally = nil)
        connection = @variants.connection
        client = connection.use
        begin
          handles, not_accepted, delivered = client.produce_many(messages, timeout_ms, tally&.counted)
        rescue Error => e
          return send_many(messages, timeout_ms, tally) if retry_with_new_client?(connection, client, e)

          raise
        end
        @transactions.sent(handles) if @transactional
        return handles if delivered || (not_accepted.nil? && timeout_ms == false)

        after_failure(connection, client, handles, not_accepted, messages, timeout_ms, tally)
      end

      # Whether the same can be done again with another client.
      def retry_with_new_client?(connection, client, error)
        return false unless unsent?(error) && @internals.status.active?
        return true unless connection.client.equal?(client) # disconnected, or replaced by another thread

        reload_after_fatal_error(connection, client, error)
      end

      def reload_after_fatal_error(connection, client, error)
        config = @internals.config
        return false if @transactional || !config.reload_on_idempotent_fatal_error

        fatal = client.fatal_error
        return !connection.client.equal?(client) if fatal.nil? # a client that was replaced meanwhile does not know it any more
        return false if config.non_reloadable_errors.include?(fatal.code)

        replace_after(fatal, connection, client, error)
      end

      def replace_after(fatal, connection, client, error)
        config = @internals.config
        backoff_ms = config.wait_backoff_on_idempotent_fatal_error
        connection.replace(client, error, limit: config.max_attempts_on_idempotent_fatal_error,
                                          backoff_ms:, drain_ms: [backoff_ms, 1_000].max,
                                          proven: client.counters[:delivered].positive?) do |attempt|
          @internals.notifier.instrument("error.occurred") do
            { type: "librdkafka.idempotent_fatal_error", error: fatal, attempt: }
          end
        end
      end
    end
  end
end

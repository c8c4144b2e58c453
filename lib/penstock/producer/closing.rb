# frozen_string_literal: true

module Penstock
  class Producer
    # Ending: for good (close), or until the next message (disconnect).
    module Closing
      # Flushes the buffer, refuses new messages, delivers those in flight, gives up (purges) what the time does not
      # suffice for, and frees everything. Every handle has its verdict afterwards; what was left in the buffer is still in
      # {Buffering#messages}. Closing again does nothing and reports the same; closing from several threads at once closes
      # once, and all wait for it. A transaction of another fiber is waited for.
      #
      # Blocks: this thread, until then, at most a tenth and a second longer than the timeout; interruptible at once, and
      # closing then goes on by itself, on a thread of its own. When the process ends meanwhile, it gets `config.close_timeout`
      # from then on, and what was not delivered is logged. May be called from a signal trap, an `at_exit` block and a forked
      # child. A transaction or flush that cannot go on before close returns is given up: one that the trap has interrupted,
      # or that is in another fiber of the same thread without a scheduler. Listeners that cannot go on then, as they need a
      # lock that the interrupted thread has (a logger's), are waited for as long as `config.listener_budget`, and told when the
      # trap has ended.
      #
      # @param timeout [Numeric, nil] seconds to go on delivering, as a Float if it is more than an hour; nil: without limit;
      #   default: `config.close_timeout`
      # @param force [Boolean] changes nothing: what is left when the time is up is always purged
      # @return [CloseReport] what became of the messages in flight
      # @raise [ArgumentError] the timeout is none; or an Integer above an hour, which looks like milliseconds
      # @raise [ProducerTransactionalCloseAttemptError] this fiber is inside a transaction: nothing was closed
      def close(timeout: default_close_timeout, force: false) # rubocop:disable Lint/UnusedMethodArgument -- see there
        timeout = Seconds.of(timeout)
        trapped = SignalTrap.here?
        refuse_inside_transaction("close") unless trapped
        return @close_report if @close_report
        return report_so_far if [@closer, @telling].include?(Thread.current) # a listener of what happens while closing

        stuck = holds_a_lock?(trapped)
        limit = timeout && ((timeout * 1.1) + (status.active? ? 1 : 0.1))
        await_closing(start_closing(timeout && (now + timeout), stuck, trapped, listening: EventDispatcher.here?), limit)
      end

      # {#close}.
      # @param timeout [Numeric, nil] see {#close}
      # @return [CloseReport]
      # @raise [Error] see {#close}
      def close!(timeout: default_close_timeout) = close(timeout:, force: true)

      # @return [Boolean] whether {#close} was called; never blocks
      def closed? = status.closing? || status.closed?

      # Gives up the connection and its threads until the next message, which connects anew. Delivers what is in flight
      # first.
      #
      # Blocks: this thread, for at most `config.close_timeout`, without the GVL; interruptible at once.
      # @return [Boolean] false, and nothing was done, unless {#disconnectable?}
      # @raise [SignalTrapError] this is a signal trap
      def disconnect
        SignalTrap.refuse("disconnecting")
        return false unless disconnectable? && @transaction_lock.acquire(0)

        begin
          timed("producer.disconnecting")
          status.disconnecting!
          timed("producer.disconnected") { @connections.each_value { |connection| connection.give_up(config.close_timeout) } }
          true
        ensure
          status.disconnected! if status.disconnecting? # not when another thread has connected anew
          @transaction_lock.release
        end
      end

      # @return [Boolean] whether it is connected, and neither in a transaction nor with messages in its buffer
      def disconnectable?
        status.connected? && messages.empty? && !@transaction_lock.taken?
      end

      private

      def default_close_timeout = config ? config.close_timeout / 1000.0 : 0

      def refuse_inside_transaction(what)
        return unless transaction?

        raise ProducerTransactionalCloseAttemptError,
              "#{what} inside the producer's own transaction; leave the block first [producer #{id}]"
      end

      # Nobody who is interrupted in the wait leaves it half done: it goes on on this thread. The lock is only ever held by
      # such threads, so a trap may wait for one of them.
      def start_closing(deadline, stuck, trapped, listening:)
        Thread.new do
          Thread.current.name = "penstock.closing"
          @closing_lock.synchronize do
            @closer = Thread.current
            @close_report ||= telling_apart(trapped) { close_everything(deadline, stuck, listening:) }
          end
        rescue Exception => e # rubocop:disable Lint/RescueException -- raised where it is waited for
          e
        ensure
          @closer = nil
        end
      end

      def await_closing(thread, limit)
        return @close_report || report_so_far unless thread.join(limit)
        raise thread.value if thread.value.is_a?(Exception)

        thread.value
      end

      def report_so_far = CloseReport.new(0, 0, 0, queue_size, unsent_count).freeze

      # What a trap has interrupted may hold any lock, such as a logger's that a listener needs. So listeners are told on a
      # thread of their own, and waited for no longer than one may take; they go on when the trap has ended.
      def telling_apart(trapped)
        return yield unless trapped

        untold = Thread::Queue.new
        telling = @telling = Thread.new do
          Thread.current.name = "penstock.closing"
          while (one = untold.pop)
            one.call
          end
        end
        begin
          untold_here(untold)
          @close_report = yield
        ensure
          untold.close
          telling.join(config ? config.listener_budget / 1000.0 : 0)
        end
      end

      # @return [Thread::Queue, nil] what this thread's events go to; nil: to their listeners at once
      def untold_here(untold = nil)
        return Thread.current.thread_variable_set(:penstock_untold, untold) if untold

        @closer && Thread.current.thread_variable_get(:penstock_untold)
      end

      # Now; or, when a trap waits for us, on a thread that it does not wait for.
      def apart(&block)
        untold = untold_here
        untold ? untold << block : yield
      end

      def tell(event, payload, &block)
        return @monitor.instrument(event, payload, &block) unless untold_here

        start = now
        value = yield if block
        payload = { **payload, time: (now - start) * 1000 } if block
        apart { @monitor.instrument(event, payload) }
        value
      end

      # @param stuck [Boolean] who waits for us is who we would have to wait for: a trap, another fiber, a listener
      # @param listening [Boolean] who waits for us is a listener, of this producer or of one whose close waits for it
      def close_everything(deadline, stuck, listening:)
        if status.initial?
          status.closed!
          return CloseReport.new(0, 0, 0, 0).freeze
        end

        flushing = flush_buffer_until(deadline) unless stuck
        timed("producer.closed") do
          timed("producer.closing")
          take_no_more(deadline, stuck)
          parts = close_connections(deadline)
          await_flushes(flushing, stuck)
          @events.await_told(deadline) unless stuck || listening
          status.closed!
          apart { IdleDisconnector.forget(self) }
          CloseReport.new(*parts.first(4), unsent_count, parts[4]).freeze
        end
      end

      def take_no_more(deadline, stuck)
        waited = @transactional && !stuck && @transaction_lock.acquire(deadline && [deadline - now, 0].max)
        status.closing!
        @connections.each_value { |connection| connection.slot&.close }
        @transaction_lock.release if waited
      end

      def close_connections(deadline)
        parts = @connections.values.filter_map do |connection|
          connection.close(deadline && [(deadline - now) * 1000, 0].max)
        end
        parts.reduce([0] * 5) { |sums, part| sums.zip(part).map { |sum, count| sum + count } }
      end

      # Only hands them over: closing waits for the verdicts. In a thread of its own, as a transaction would wait for the
      # cluster longer than we may. What is not taken comes back into the buffer.
      # @return [Thread, nil]
      def flush_buffer_until(deadline)
        return if messages.empty?

        untold = untold_here
        flush = Thread.new do
          untold_here(untold)
          flush_async
        rescue Error
          nil # listeners of error.occurred know; the report says how many
        rescue StandardError => e # the middleware's
          instrument("error.occurred") { { type: "messages.produce_many_async", error: e, messages: } }
        end
        flush.join(deadline && [deadline - now, 0.1].max)
        flush
      end

      # Those that still wait for room or for their turn are refused now, and put their messages back. What waits for us
      # cannot.
      def await_flushes(flush, stuck)
        flush&.join(AFTERMATH) or flush&.kill&.join
        @flushing.release if !stuck && @flushing.acquire(AFTERMATH)
      end

      AFTERMATH = 0.3 # seconds
      private_constant :AFTERMATH

      # @return [Boolean] whether this thread has what closing would wait for
      def holds_a_lock?(trapped)
        @transaction_lock.hopeless?(trapped) || @flushing.hopeless?(trapped) || @connections.each_value.any?(&:connecting_here?)
      end
    end
  end
end

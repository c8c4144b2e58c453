# frozen_string_literal: true

module Penstock
  class Producer
    # Ends a producer for good ({Producer#close}), or until the next message ({Producer#disconnect}).
    # @api private
    class Closer
      # Seconds in which a flush that closing has ended returns its messages to the buffer.
      FLUSH_GRACE = 0.3
      # Until when it delivers, until when the last steps are done, and until when its caller waits; by the monotonic clock, nil:
      # without limit. A close takes at least {LEAST} seconds, as in client.c (ps_client_close_times).
      Times = Struct.new(:stop, :done, :returns)
      LEAST = 0.5
      # What the caller needs to wake up and make its report.
      RETURN = 0.05
      private_constant :FLUSH_GRACE, :Times, :LEAST, :RETURN

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        # Only closing threads hold it.
        @lock = Mutex.new
        @thread = nil # the closing thread
        @listener_thread = nil # runs the listeners while a trap waits
        @report = nil
        @before = nil # counters when the first close began
        @unnoticed = 0
      end

      # @return [Boolean] whether a thread is closing now
      def closing? = !@thread.nil?

      # @return [Numeric] seconds
      def default_timeout = config ? config.close_timeout / 1000.0 : 0

      # See {Producer#close}.
      # @return [CloseReport]
      def close(timeout)
        timeout = Seconds.of(timeout)
        trapped = SignalTrap.here?
        raise_inside_transaction unless trapped
        return @report if @report
        return report_so_far if [@thread, @listener_thread].include?(Thread.current) # a listener of this close calls close

        @before ||= totals
        stuck = holds_a_lock?(trapped)
        times = times(timeout)
        thread = start(times, stuck, trapped, listening: EventDispatcher.here?) # M:close_from_listener
        await(thread, left(times.returns))
      end

      # See {Producer#disconnect}.
      # @return [Boolean]
      def disconnect
        SignalTrap.raise_if_here("disconnecting")
        return false unless disconnectable? && transactions.lock.acquire(0)

        begin
          notifier.timed("producer.disconnecting")
          status.disconnecting!
          notifier.timed("producer.disconnected") { connections.each { |connection| connection.give_up(config.close_timeout) } }
          true
        ensure
          status.disconnected! if status.disconnecting? # not when another thread has connected again
          transactions.lock.release
        end
      end

      # See {Producer#disconnectable?}.
      def disconnectable? = status.connected? && buffer.messages.empty? && !transactions.lock.taken?

      # @return [String]
      def inspect = "#<#{self.class} #{status}>"

      private

      def config = @internals.config
      def status = @internals.status
      def notifier = @internals.notifier
      def buffer = @internals.buffer
      def transactions = @internals.transactions
      def connections = @internals.variants.connections

      # The last steps are part of the time: purging, destroying librdkafka's client, and what listeners still get.
      def times(timeout)
        return Times.new unless timeout

        start = now
        whole = [timeout, LEAST].max
        last = (whole / 10.0).clamp(0.2, 0.5) + (@internals.transactional? ? [whole / 4.0, 1].min : 0)
        Times.new(start + [timeout, whole - last].min, start + whole - RETURN, start + whole)
      end

      # @return [Float, nil] seconds until then
      def left(time) = time && [time - now, 0].max

      # Takes no lock: a trap may have interrupted its owner.
      # @return [CounterSnapshot] of all clients, in this process
      def totals = connections.map(&:totals).reduce(CounterSnapshot::NONE, :+)

      def raise_inside_transaction
        return unless transactions.running?

        raise ErrorFactory.build(ProducerTransactionalCloseAttemptError, "close was called inside the producer's own transaction",
                                 "Nothing was closed. Leave the transaction's block first.", producer_id: @internals.id)
      end

      # Closes on a thread of its own, which continues when the waiting thread is interrupted. Only such threads hold @lock. So a
      # trap may wait for it: the code that the trap interrupted cannot hold it.
      def start(times, stuck, trapped, listening:)
        Thread.new do
          Thread.current.name = "penstock.closing"
          @lock.synchronize do
            @thread = Thread.current
            @report ||= with_deferred_events(trapped) { close_everything(times, stuck, listening:) }
          end
        rescue Exception => e # rubocop:disable Lint/RescueException -- await raises it
          e
        ensure
          @thread = nil
        end
      end

      def await(thread, limit)
        return @report || report_so_far unless thread.join(limit)
        raise thread.value if thread.value.is_a?(Exception)

        thread.value
      end

      def report_so_far
        since = totals - @before
        pending = @internals.queue_size
        CloseReport.new(since.delivered, since.failed, since.purged, pending, buffer.unsent_count, @unnoticed).freeze
      end

      # The code that a trap interrupted may hold any lock, such as a logger's that a listener needs. So if a trap waits,
      # listeners run on a thread of their own. Close waits for that thread for up to config.listener_budget. A listener that
      # needs such a lock continues when the trap has ended.
      def with_deferred_events(trapped)
        return yield unless trapped

        deferred = Thread::Queue.new
        listener_thread = @listener_thread = Thread.new do
          Thread.current.name = "penstock.closing"
          while (event = deferred.pop)
            event.call
          end
        end
        begin
          notifier.defer_here(deferred)
          @report = yield
        ensure
          deferred.close
          listener_thread.join(config ? config.listener_budget / 1000.0 : 0)
        end
      end

      # @param stuck [Boolean] the waiting caller itself keeps a transaction, flush or connection from ending, for example because
      #   it is a trap that interrupted one. Close must not wait for these
      # @param listening [Boolean] the waiting caller is a listener, of this producer or of one whose close waits for it
      def close_everything(times, stuck, listening:)
        if status.initial?
          status.closed!
          return CloseReport.new(0, 0, 0, 0).freeze
        end

        flushing = flush_buffer_until(times.stop) unless stuck
        notifier.timed("producer.closed") do
          notifier.timed("producer.closing")
          stop_accepting(times.stop, stuck)
          *parts, @unnoticed = close_connections(times)
          await_flushes(flushing, stuck, times.done)
          @internals.events.await_published(times.done) unless stuck || listening
          status.closed!
          notifier.run_or_defer { IdleDisconnector.forget(@internals) }
          # Not parts[0]: a client's close does not count what was delivered while the buffer was flushed or listeners ran.
          CloseReport.new((totals - @before).delivered, *parts[1, 3], buffer.unsent_count, @unnoticed).freeze
        end
      end

      def stop_accepting(deadline, stuck)
        waited = @internals.transactional? && !stuck && transactions.lock.acquire(left(deadline))
        status.closing!
        connections.each { |connection| connection.slot&.close } # M:close_closes_slots
        transactions.lock.release if waited
      end

      def close_connections(times)
        parts = connections.filter_map do |connection|
          connection.close(left(times.done)&.*(1000), left(times.stop)&.*(1000))
        end
        parts.reduce([0] * 5) { |sums, part| sums.zip(part).map { |sum, count| sum + count } }
      end

      # Hands the messages of the buffer over. Close waits for their delivery results later. The flush has a thread of its own,
      # because its transaction may wait for the cluster longer than close may. Messages that are not accepted return to the
      # buffer.
      # @return [Thread, nil]
      def flush_buffer_until(deadline)
        return if buffer.messages.empty?

        deferred = notifier.deferred_here
        flush = Thread.new do
          notifier.defer_here(deferred) if deferred
          @internals.producer.flush_async
        rescue Error
          nil # published as error.occurred; the report has their number
        rescue StandardError => e # from the middleware or a hook
          notifier.instrument("error.occurred") do
            { type: "messages.produce_many_async", error: e, messages: buffer.messages }
          end
        end
        flush.join(deadline && [left(deadline), 0.1].max)
        flush
      end

      # The client is closed, so flushes that wait for queue space or for the lock now raise and return their messages to the
      # buffer. A flush of the waiting caller itself cannot do that before close returns.
      def await_flushes(flush, stuck, deadline)
        flush&.join([FLUSH_GRACE, *left(deadline)].min) or flush&.kill&.join
        buffer.await_flush([FLUSH_GRACE, *left(deadline)].min) unless stuck
      end

      # @return [Boolean] whether this thread holds what closing would wait for, and cannot release it while it waits for close
      def holds_a_lock?(trapped)
        transactions.lock.deadlocked?(trapped) || buffer.deadlocked?(trapped) || connections.any?(&:connecting_here?)
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end

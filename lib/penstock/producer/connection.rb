# frozen_string_literal: true

module Penstock
  class Producer
    # Keeps one librdkafka client for a producer. The first use makes the client, a disconnect closes it, a fatal error
    # replaces it. A thread that is inside the old client at that time gets an error there, and continues with the new
    # client.
    # @api private
    class Connection
      # The counters of closed clients, and the clients that were added to them last. Replaced as a whole, so that reading needs
      # no lock.
      Past = Struct.new(:totals, :clients, :pid)
      private_constant :Past

      # @return [Native::ProducerClient, nil] nil while there is none
      attr_reader :client
      # @return [Native::ClientReference, nil] nil: no other Ractor uses the connection
      attr_reader :slot

      # @param internals [Internals]
      # @param overrides [Hash] librdkafka settings that differ from the producer's
      def initialize(internals, overrides = {})
        @internals = internals
        @overrides = overrides
        @kafka = nil
        @lock = Mutex.new
        @client = @slot = nil
        @others = [] # not in use: still being prepared, or not closed completely
        @unready = nil # a client that could not be prepared, and that may still be closing
        @reloads = 0
        @not_before = 0
        @past = Past.new(CounterSnapshot::NONE, [], Process.pid)
        @forgetting = Mutex.new
      end

      # Makes an unused connection that has the counters of closed connections.
      # @param others [Array<Connection>]
      def self.remains(internals, others)
        new(internals).tap { |made| made.inherit(others.map(&:past_totals)) }
      end

      # @param totals [Array<CounterSnapshot>] counters of other connections of this process
      def inherit(totals)
        @past = Past.new(totals.reduce(past_totals, :+), [], Process.pid)
      end

      # Blocks while another thread connects, and for the first round trips of a transactional producer.
      # @return [Native::ProducerClient] that was open a moment ago
      def use = @client || connect

      # @return [Integer] messages without a delivery result
      def queue_size = clients.sum(&:queue_size)

      # @return [Boolean] whether the client was made before this process was forked
      def inherited? = !@client.nil? && @pid != Process.pid

      # Called in a fork child before other code runs there: the next use connects. Without this call, the native client would
      # replace itself at its next use.
      def leave_to_parent
        @client = @unready = @slot = nil
        @others = []
      end

      # Makes a handle for other Ractors.
      # @return [ShareableProducer]
      def share(id, timeout_ms, serializer)
        use
        handle = exclusively do
          @slot = Native::ClientReference.new if @slot.nil? || @slot.inherited?
          publish
          @slot.handle(id, timeout_ms, serializer)
        end
        @slot.serve(self)
        # M:late_slot_closed
        @slot.close unless @internals.status.active? # a closing thread may have read @slot before this thread set it
        handle
      end

      # Provides a working client for other Ractors, if the producer may have one.
      # @return [String, nil] why there is none
      def provide_client
        @internals.publisher.replace_failed(self, @client) if @client # M:main_ractor_replaces
        use
        exclusively { publish }
        nil
      rescue ProducerClosedError
        @slot.close # also when the end of the process closed it
      rescue StandardError => e
        Text.message(e).byteslice(0, 500).scrub("")
      end

      # Keeps the events of the producer alive: messages in flight, also of other Ractors, may cause events.
      def hold_events = @internals.events.hold

      # @return [Boolean] whether this thread is making a client now
      def connecting_here? = @lock.owned?

      # @return [Array<Client>] that may have messages without a delivery result
      def clients = [@client, *@others].compact.uniq

      # The counters of all clients in this process. A client that is being closed is counted once.
      # @return [CounterSnapshot]
      def totals
        loop do
          past = @past
          totals = (clients - last_of(past)).map { |client| CounterSnapshot.of(client) }.reduce(past_totals(past), :+)
          return totals if past.equal?(@past)
        end
      end

      # @return [CounterSnapshot] of the closed clients
      def past_totals(past = @past) = past.pid == Process.pid ? past.totals : CounterSnapshot::NONE

      # Closes for good. A client that a disconnect is just closing takes no longer than this close, either.
      # @param timeout_ms [Numeric, nil] for all of it
      # @param stop_ms [Numeric, nil] when it stops delivering; nil: in time for the rest
      # @return [Array(Integer, Integer, Integer, Integer), nil] see Native::ProducerClient#close; nil: there was no client
      def close(timeout_ms, stop_ms = nil)
        closed = clients.map { |client| close_within(timeout_ms, stop_ms, client) }
        closed.each { @internals.notifier.instrument("poller.producer_unregistered") { {} } }
        closed.reduce { |sums, part| sums.zip(part).map(&:sum) }
      end

      # Closes the client. The next use connects again, also for threads that are inside the old client.
      def give_up(timeout_ms)
        client = exclusively { detach_client }
        client&.close(timeout_ms)
        @internals.notifier.instrument("poller.producer_unregistered") { {} } if client
      ensure
        forget_closed
      end

      # Replaces a client that had a fatal error. One thread does; other threads with the same error wait here for it. Does
      # not wait for the backoff: the next use does.
      #
      # @param failed [Native::ProducerClient]
      # @param error [Error] why
      # @param limit [Integer] maximum number of replacements in a row without success in between
      # @param backoff_ms [Integer]
      # @param drain_ms [Integer] how long the failed client may wait for brokers' answers to sent messages; librdkafka has
      #   given up the unsent ones already
      # @param proven [Boolean] the failed client has had success; see {#proven}
      # @yieldparam attempt [Integer] before the client is replaced
      # @return [Boolean] false: the limit is reached, or this is a signal trap; the client is still there
      def replace(failed, error, limit:, backoff_ms:, drain_ms: 0, proven: false)
        return false if SignalTrap.here?

        start = now
        exclusively do
          return true unless @client.equal?(failed)

          @reloads = proven ? 1 : @reloads + 1
          yield @reloads if block_given?
          return false if @reloads > limit

          announce_reload(error)
          @not_before = now + (backoff_ms / 1000.0)
          detach_client
          failed.close(drain_ms) # gives each message its delivery result
          forget_closed
          @internals.notifier.instrument("poller.producer_unregistered") { {} }
          @internals.notifier.instrument("producer.reloaded") { { attempt: @reloads, time: (now - start) * 1000 } }
        end
        true
      end

      # Notes success of the client: the next failure counts as the first in a row.
      def proven
        @reloads = 0
      end

      private

      def exclusively
        if connecting_here?
          raise ErrorFactory.build(ListenerDeadlockError, "a listener made a call that must wait for the end of this listener",
                                   "Nothing was sent or begun. Make the call in another thread, or on \"producer.connected\".",
                                   producer_id: @internals.id)
        end
        @lock.synchronize do
          slot = @slot
          slot&.changing = true # M:slot_changing
          yield
        ensure
          slot&.changing = false
        end
      end

      def close_within(timeout_ms, stop_ms, client)
        client.hurry(stop_ms || timeout_ms) if client.state == :closing
        client.close(timeout_ms, stop_ms)
      end

      # Moves the client from @client to @others. Adds it there first, so that a concurrent reader finds it in at least one place.
      def detach_client
        client = @client
        @others << client if client
        @client = nil
        publish
        client
      end

      # The caller holds the lock.
      def publish
        @slot.client = @client unless @slot.nil? || @slot.inherited? # M:slot_gets_client
      end

      # Moves the counters of closed clients to @past. A client whose close was interrupted is still closing, and stays in @others
      # until it is closed.
      def forget_closed
        @forgetting.synchronize do
          gone = @others.select { |client| client.state == :closed }
          next if gone.empty?

          totals = gone.map { |client| CounterSnapshot.of(client) }.reduce(past_totals, :+)
          @past = Past.new(totals, gone, Process.pid)
          gone.each { |client| @others.delete(client) }
        end
      end

      def last_of(past) = past.pid == Process.pid ? past.clients : []

      def connect
        SignalTrap.raise_if_here("connecting")
        exclusively do
          return @client if @client

          await_unready
          wait_out_the_backoff
          @internals.check_usable
          @kafka ||= VariantChecks.override(@internals.config.kafka, @overrides)
          client = @internals.build_client(@internals.statistics.settings(@kafka))
          @others << client # so that close can end the wait of prepare
          @internals.credentials.log_in(client)
          prepare(client)
          @pid = Process.pid
          @client = client
          @others.delete(client)
          publish
        end
        raise_if_closed_meanwhile
        @internals.connected
        @client || use
      end

      # Checks the status during the sleep, because a close must not wait for it.
      def wait_out_the_backoff
        while (left = @not_before - now).positive? && @internals.status.active?
          sleep([left, 0.05].min)
        end
      end

      # A thread that is interrupted begins to close the client, and does not wait for that. The next thread that connects does.
      def prepare(client)
        @unready = client
        @internals.check_usable # close reads @others after it has set its status
        @internals.transactions.prepare(client) if client.transactional?
        client.connect if @slot # publish would connect it later: an error must come before the client is in use
        @unready = nil
      ensure
        @unready&.begin_closing(0)
      end

      # Both clients would have the same transactional.id: the one that initializes later fences the other.
      def await_unready
        @unready&.close(0)
        @unready = nil
        forget_closed
      end

      # A closing thread sets its status, then reads @client. This thread sets @client, then reads the status. So at least
      # one of them sees the other. Other threads may have used the client already, so it is closed like any other.
      def raise_if_closed_meanwhile
        @internals.check_usable
      rescue ProducerClosedError
        close(@internals.config.close_timeout)
        raise
      end

      def announce_reload(error)
        @internals.notifier.instrument("producer.reload") do
          @kafka = @kafka.dup # a listener may change the settings of the next client
          { error:, attempt: @reloads, caller: @internals.producer, kafka: @kafka }
        end
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end

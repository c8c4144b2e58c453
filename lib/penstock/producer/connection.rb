# frozen_string_literal: true

module Penstock
  class Producer
    # Keeps one librdkafka client for a producer: made at its first use, given up by a disconnect, replaced after a fatal
    # error. A thread that is inside the old client meanwhile is refused there, and goes on with the new one.
    # @api private
    class Connection
      # What clients that have ended did, and which were the last of them; replaced as a whole, so that reading needs no lock.
      Past = Struct.new(:totals, :clients, :pid)
      private_constant :Past

      # @return [Native::ProducerClient, nil] nil while there is none
      attr_reader :client
      # @return [Native::ClientReference, nil] nil: no other Ractor uses it
      attr_reader :slot

      # @param internals [Internals]
      # @param overrides [Hash] librdkafka settings that differ from the producer's
      def initialize(internals, overrides = {})
        @internals = internals
        @overrides = overrides
        @kafka = nil
        @lock = Mutex.new
        @client = @slot = nil
        @others = [] # not for use: still being made ready, or given up and not closed yet
        @unready = nil # could not be made ready, and may be closing still
        @reloads = 0
        @not_before = 0
        @past = Past.new(CounterSnapshot::NONE, [], Process.pid)
        @forgetting = Mutex.new
      end

      # One that nobody uses, and has done what others have, which have ended.
      # @param others [Array<Connection>]
      def self.remains(internals, others)
        new(internals).tap { |made| made.inherit(others.map(&:past_totals)) }
      end

      # @param totals [Array<CounterSnapshot>] what was done elsewhere in this process
      def inherit(totals)
        @past = Past.new(totals.reduce(past_totals, :+), [], Process.pid)
      end

      # Blocks while another thread connects, and for a transactional producer's first round trips.
      # @return [Native::ProducerClient] that was open a moment ago
      def use = @client || connect

      # @return [Integer] messages without a verdict
      def queue_size = clients.sum(&:queue_size)

      # @return [Boolean] whether the client was made before this process was forked
      def inherited? = !@client.nil? && @pid != Process.pid

      # In a forked child, before anything else runs there: the next use connects. (Otherwise a client mends itself.)
      def leave_to_parent
        @client = @unready = @slot = nil
        @others = []
      end

      # A handle for other Ractors.
      # @return [ShareableProducer]
      def share(id, timeout_ms, serializer)
        use
        handle = exclusively do
          @slot = Native::ClientReference.new if @slot.nil? || @slot.inherited?
          publish
          @slot.handle(id, timeout_ms, serializer)
        end
        @slot.serve(self)
        @slot.close unless @internals.status.active? # who closes has looked for one before there was any, perhaps
        handle
      end

      # What other Ractors have asked for: a client that can go on, if the producer may have one.
      # @return [String, nil] what is wrong
      def help
        @internals.publisher.replace_failed(self, @client) if @client
        use
        exclusively { publish }
        nil
      rescue ProducerClosedError
        @slot.close # also when it was closed by itself, as the process ends
      rescue StandardError => e
        Text.message(e).byteslice(0, 500).scrub("")
      end

      # What is in flight may have to be told, whoever has sent it.
      def hold_events = @internals.events.hold

      # @return [Boolean] whether this thread is making a client just now
      def connecting_here? = @lock.owned?

      # @return [Array<Client>] that may have messages without a verdict
      def clients = [@client, *@others].compact.uniq

      # Of all clients there were in this process. A client that ends just now is counted once.
      # @return [CounterSnapshot]
      def totals
        loop do
          past = @past
          totals = (clients - last_of(past)).map { |client| CounterSnapshot.of(client) }.reduce(past_totals(past), :+)
          return totals if past.equal?(@past)
        end
      end

      # @return [CounterSnapshot] of those that have ended
      def past_totals(past = @past) = past.pid == Process.pid ? past.totals : CounterSnapshot::NONE

      # For good: nobody may use it any more. A client that is being given up just now takes no longer than this, either.
      # @return [Array(Integer, Integer, Integer, Integer), nil] see Native::ProducerClient#close; nil: there was no client
      def close(timeout_ms)
        closed = clients.map { |client| close_within(timeout_ms, client) }
        closed.each { @internals.notifier.instrument("poller.producer_unregistered") { {} } }
        closed.reduce { |sums, part| sums.zip(part).map(&:sum) }
      end

      # The next use connects anew, also by who is inside the old client just now.
      def give_up(timeout_ms)
        client = exclusively { leave }
        client&.close(timeout_ms)
        @internals.notifier.instrument("poller.producer_unregistered") { {} } if client
      ensure
        forget_closed
      end

      # One thread replaces a client that cannot go on; the others that met the same error wait here for it. Does not
      # wait for the backoff: the next use does.
      #
      # @param failed [Native::ProducerClient]
      # @param error [Error] why
      # @param limit [Integer] times in a row, with no success in between
      # @param backoff_ms [Integer]
      # @param drain_ms [Integer] how long the failed client may wait for brokers' answers to what it has sent; what it had
      #   not sent then, librdkafka has given up already
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
          leave
          failed.close(drain_ms) # what has no verdict gets one
          forget_closed
          @internals.notifier.instrument("poller.producer_unregistered") { {} }
          @internals.notifier.instrument("producer.reloaded") { { attempt: @reloads, time: (now - start) * 1000 } }
        end
        true
      end

      # The client has done what it is for: a failure after that is the first one again.
      def proven
        @reloads = 0
      end

      private

      def exclusively
        if connecting_here?
          raise ErrorFactory.build(ListenerDeadlockError, "a listener called a method that has to wait for the listener's end",
                                   "Nothing was sent or begun. Call it in another thread, or on \"producer.connected\".",
                                   producer_id: @internals.id)
        end
        @lock.synchronize do
          slot = @slot
          slot&.changing = true
          yield
        ensure
          slot&.changing = false
        end
      end

      def close_within(timeout_ms, client)
        client.hurry(timeout_ms) if client.state == :closing
        client.close(timeout_ms)
      end

      # Whoever reads sees the client, in one place or both.
      def leave
        client = @client
        @others << client if client
        @client = nil
        publish
        client
      end

      # With the lock held.
      def publish
        @slot.client = @client unless @slot.nil? || @slot.inherited?
      end

      # A close that was interrupted goes on by itself; until it is done its messages count.
      # Their counts are kept before they are gone.
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
        SignalTrap.refuse("connecting")
        exclusively do
          return @client if @client

          await_unready
          wait_out_the_backoff
          @internals.check_usable
          @kafka ||= VariantChecks.override(@internals.config.kafka, @overrides)
          client = @internals.build_client(@internals.statistics.settings(@kafka))
          @others << client # so that closing ends what making it ready waits for
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

      # Looks around while it sleeps, as a close must not wait for it.
      def wait_out_the_backoff
        while (left = @not_before - now).positive? && @internals.status.active?
          sleep([left, 0.05].min)
        end
      end

      # Who is interrupted meanwhile does not wait for the client's end: the next who connects does.
      def prepare(client)
        @unready = client
        @internals.check_usable # closing looks at the others after it has forbidden new ones
        @internals.transactions.prepare(client) if client.transactional?
        client.connect if @slot # as who puts it there does: what fails has to fail before it is in use
        @unready = nil
      ensure
        @unready&.begin_closing(0)
      end

      # Both would have the same transactional.id: the later one to be initialised shuts the other one out.
      def await_unready
        @unready&.close(0)
        @unready = nil
        forget_closed
      end

      # Closing looks at the client after it has forbidden new ones; we look at that after we have set ours. Others may
      # have used it already, so it closes like any.
      def raise_if_closed_meanwhile
        @internals.check_usable
      rescue ProducerClosedError
        close(@internals.config.close_timeout)
        raise
      end

      def announce_reload(error)
        @internals.notifier.instrument("producer.reload") do
          @kafka = @kafka.dup # a listener may change what the next client gets
          { error:, attempt: @reloads, caller: @internals.producer, kafka: @kafka }
        end
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end

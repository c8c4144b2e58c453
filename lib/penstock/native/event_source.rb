# frozen_string_literal: true

module Penstock
  module Native
    # A producer's events that happen in the native core, in order: what becomes of its messages, librdkafka's errors and
    # statistics. They wait in a native queue (ext/penstock/core/client/events.c) until a thread of {EventDispatcher} tells the
    # producer's listeners.
    #
    # @!method address
    #   @return [Integer] of the queue, in this process
    # @!method take(max)
    # @!method busy?
    #   @return [Boolean] whether something waits to be told, or is being told
    # @!method held=(held)
    #   @param held [Boolean] whether {EventDispatcher} keeps it: else {#hold} is called when the producer sends
    # @!method counts
    #   @return [Array(Integer, Integer, Integer, Integer)] queued so far, dropped so far, waiting, labels kept
    # @api private
    class EventSource
      extend RequiresSuper
      include Uncopyable

      KINDS = { "message.acknowledged" => 1, "error.occurred" => 2 | 4, "statistics.emitted" => 8 }.freeze
      BATCH = 256 # events that a thread tells before it looks whose turn it is
      private_constant :KINDS, :BATCH

      # @return [Producer]
      attr_reader :producer
      # @return [String]
      attr_reader :producer_id

      def initialize(producer, config)
        @producer = producer
        @producer_id = config.id
        @budget = config.listener_budget / 1000.0
        @lock = Mutex.new
        @pid = Process.pid
        start_anew
        initialize_queue(config.event_queue_limit, config.event_queue_full == :drop_newest)
      end

      # @return [Float] seconds that a listener may take
      attr_reader :budget

      # To be called when a client has opened, perhaps more than once, and when who listens has changed. Not to be interrupted:
      # nobody would call it again.
      def refresh
        exclusively do
          kinds = wanted_kinds
          self.wanted = kinds
          self.attached = kinds.positive? # before we look at the clients: see ps_events_closed
          if kinds.zero?
            EventDispatcher.detach(self)
          elsif open_clients.positive?
            EventDispatcher.attach(self)
          end
          # Else what its clients have left behind may still wait; see client_ended.
        end
      end
      alias client_opened refresh

      # @return [Boolean]
      def statistics_wanted? = listening?("statistics.emitted")

      # Tells what waits. One thread at a time; when a listener ends that thread, the next goes on behind that listener.
      # @param worker [EventWorker] is told which listener it runs
      def serve(worker)
        Thread.handle_interrupt(Object => :never) { @left.concat(take(BATCH)) }
        tell(worker) until @left.empty?
      end

      # Waits until all that has happened has been told, or no listener ends for the length of its budget.
      # @param deadline [Float, nil] by the monotonic clock
      def await_told(deadline)
        progress = @progress
        give_up = now + @budget
        while busy? && EventDispatcher.serving?(self)
          sleep 0.002
          give_up = now + @budget unless progress == (progress = @progress)
          return if now > give_up || (deadline && now > deadline)
        end
      end

      # Called by a client that is about to send, unless it is held already.
      def hold = EventDispatcher.hold(self)

      # @return [Boolean] whether there is nothing to tell, and nothing on its way that would be
      def quiet? = producer.queue_size.zero? && !busy?

      # @param listener [Subscription]
      # @param event [Event]
      # @param seconds [Float] so far
      def tell_slow(listener, event, seconds)
        slow = Event.new("listener.slow", { producer_id:, listener: listener.to_s, event: event.id, time: seconds * 1000 })
        listeners_of("listener.slow").each { |other| notify(other, slow) unless other.same?(listener) }
      end

      def inspect = "#<#{self.class} #{Text.printable(producer_id)}>"

      private

      # @see RequiresSuper
      def initialized? = !@producer.nil?

      def exclusively(&block)
        Thread.handle_interrupt(Object => :never) do
          unless @pid == Process.pid
            @pid = Process.pid
            @lock = Mutex.new # the parent's may be held by a thread that is not here
            start_anew
          end
          @lock.synchronize(&block)
        end
      end

      def start_anew
        @left = []
        @event = nil
        @listeners = []
        @index = 0
        @progress = 0
        @statistics = {}
      end

      def wanted_kinds = KINDS.sum { |event, kinds| listening?(event) ? kinds : 0 }

      def monitor = @producer.monitor

      # A monitor of the user's own may have no more than `instrument`.
      def listening?(event)
        monitor.respond_to?(:listening?) ? monitor.listening?(event) : true
      end

      def listeners_of(event)
        return monitor.listeners_of(event) if monitor.is_a?(Monitor)

        [Subscription.new(->(happened) { monitor.instrument(happened.id, happened.payload) }),
         *Penstock.monitor.listeners_of(event)]
      end

      # The first of what waits. A thread may be killed at any point, and the next goes on: so the item stays there until it
      # was told, and what says how far that has come changes last.
      def tell(worker)
        event = @event || begin_next
        run_listeners(event, worker) if event
        @left.shift
        @event = nil
      end

      def begin_next
        item = @left.first
        return client_ended if item.nil?

        event = event_of(item)
        @listeners = listeners_of(event.id)
        @index = 0
        @event = event
      end

      def event_of(item)
        case item
        when DeliveryReport then DeliveryEvent.new(item.error ? "error.occurred" : "message.acknowledged", item, self)
        when String then statistics(item)
        else Event.new("error.occurred", { type: "librdkafka.error", error: item, producer_id:, caller: producer })
        end
      end

      def run_listeners(event, worker)
        while (listener = @listeners[@index])
          worker.running(listener, event)
          @index += 1
          notify(listener, event)
        end
        @progress += 1
      end

      # What is meant for the process or its main thread goes through.
      def notify(listener, event)
        listener.notify(event)
      rescue SystemExit, SignalException
        raise
      rescue Exception => e # rubocop:disable Lint/RescueException -- the thread serves other producers too
        listener.failed(e, event, listeners_of("error.occurred"))
      end

      # Of each client, which is named at the beginning of the text.
      def statistics(json)
        client = json[/"name":\s*"([^"]*)"/, 1]
        before = @statistics[client]
        before&.previous = nil
        parsed = @statistics[client] = StatisticsEvent::Parsed.new(json, before)
        StatisticsEvent.new(json, parsed, producer_id)
      end

      # Told behind all that happened to the client.
      def client_ended
        @statistics.clear
        exclusively { EventDispatcher.detach(self) unless open_clients.positive? } # another may be opening just now
        nil
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end

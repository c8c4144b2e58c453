# frozen_string_literal: true

module Penstock
  module Native
    # A producer's events of the native core, in order: delivery results, librdkafka's errors and statistics. They wait in a
    # native queue (ext/penstock/core/client/events.c) until a thread of {EventDispatcher} calls the producer's listeners.
    #
    # @!method address
    #   @return [Integer] of the queue, in this process
    # @!method take(max)
    # @!method busy?
    #   @return [Boolean] whether an event is waiting or being published
    # @!method held=(held)
    #   @param held [Boolean] whether {EventDispatcher} keeps it alive; otherwise {#hold} is called when the producer sends
    # @!method counts
    #   @return [Array(Integer, Integer, Integer, Integer)] queued so far, dropped so far, waiting, labels kept
    # @api private
    class EventSource
      extend RequiresSuper
      include Uncopyable

      # What the core reports for each event: names of PS_EVENT_KINDS in core/client/client.h.
      KINDS = { "message.acknowledged" => %i[delivered].freeze, "error.occurred" => %i[failed error].freeze,
                "statistics.emitted" => %i[statistics].freeze }.freeze
      BATCH = 256 # events that a thread publishes before its turn may end
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

      # @return [Float] seconds that a listener may run
      attr_reader :budget

      # Called when a client has opened, perhaps more than once, and when subscriptions have changed. Not interruptible: no
      # other call would repeat it.
      def refresh
        exclusively do
          kinds = wanted_kinds
          self.wanted = kinds
          self.attached = kinds.any? # before the clients are checked: see ps_events_closed
          if kinds.empty?
            EventDispatcher.detach(self)
          elsif open_clients.positive?
            EventDispatcher.attach(self)
          end
          # Otherwise the source stays attached: events of closed clients may still wait. client_ended detaches it.
        end
      end
      alias client_opened refresh

      # @return [Boolean]
      def statistics_wanted? = listening?("statistics.emitted")

      # Publishes the waiting events. One thread at a time calls it. If a listener ends that thread, the next thread continues
      # with the listener after it.
      # @param worker [EventWorker] notes which listener is running
      def serve(worker)
        Thread.handle_interrupt(Object => :never) { @left.concat(take(BATCH)) }
        publish_first(worker) until @left.empty?
      end

      # Waits until all events are published. Gives up at the deadline, and when no listener has finished for the
      # length of the budget.
      # @param deadline [Float, nil] by the monotonic clock
      def await_published(deadline)
        progress = @progress
        give_up = now + @budget
        while busy? && EventDispatcher.serving?(self)
          sleep 0.002
          give_up = now + @budget unless progress == (progress = @progress)
          return if now > give_up || (deadline && now > deadline) # M:close_waits_for_budget
        end
      end

      # Called by a client that is about to send, unless the source is held already.
      def hold = EventDispatcher.hold(self)

      # @return [Boolean] whether no event is waiting and no message in flight can cause one
      def quiet? = producer.queue_size.zero? && !busy?

      # @param listener [Subscription]
      # @param event [Event]
      # @param seconds [Float] how long the listener has run so far
      def publish_slow(listener, event, seconds)
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
            @lock = Mutex.new # a thread of the parent process may hold the old one
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

      def wanted_kinds = KINDS.flat_map { |event, kinds| listening?(event) ? kinds : [] }

      def monitor = @producer.monitor

      # A monitor of the program may have no method but `instrument`. It then gets every event.
      def listening?(event)
        monitor.respond_to?(:listening?) ? monitor.listening?(event) : true
      end

      def listeners_of(event)
        return monitor.listeners_of(event) if monitor.is_a?(Monitor)

        [Subscription.new(->(happened) { monitor.instrument(happened.id, happened.payload) }),
         *Penstock.monitor.listeners_of(event)]
      end

      # Publishes the first waiting event. A listener may kill this thread, and then the next thread continues. So the item stays
      # in @left, and @event and @index keep the progress, until its listeners have run.
      def publish_first(worker)
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
          @index += 1 # M:next_listener_first
          notify(listener, event)
        end
        @progress += 1
      end

      # Exceptions for the process or its main thread are not rescued.
      def notify(listener, event)
        listener.notify(event)
      rescue SystemExit, SignalException
        raise
      # M:listener_errors_rescued
      rescue Exception => e # rubocop:disable Lint/RescueException -- the thread serves other producers too
        listener.failed(e, event, listeners_of("error.occurred")) # M:listener_errors_published
      end

      # Statistics of each client. The text begins with the name of the client.
      def statistics(json)
        client = json[/"name":\s*"([^"]*)"/, 1]
        before = @statistics[client]
        before&.previous = nil
        parsed = @statistics[client] = StatisticsEvent::Parsed.new(json, before)
        StatisticsEvent.new(json, parsed, producer_id)
      end

      # Runs after all events of the client.
      def client_ended
        @statistics.clear
        exclusively { EventDispatcher.detach(self) unless open_clients.positive? } # another may be opening just now
        nil
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end

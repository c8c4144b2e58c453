# frozen_string_literal: true

module Penstock
  class App # rubocop:disable Style/Documentation -- in app.rb
    # Publishes the events of a running application, and writes its log lines, in order, on the thread "penstock.app-events". So
    # the loop never waits for a listener or a logger of the program: it goes on polling, also when one of them hangs.
    # @api private
    class Publisher
      include ShortInspect

      # Events that wait. When there are more, the newest are left out.
      MOST = 10_000
      private_constant :MOST

      # Gets the events of the consumers, in place of the application's monitor. Messages that were polled belong to the loop, so
      # their event is published on its thread.
      class Relay < Monitor
        # What {Monitor} calls in place of the program's listeners.
        Target = Struct.new(:publisher) do
          def notify(event) = publisher.publish(event)
          def same?(_other) = false
          def failed(error, *) = raise(error)
        end
        private_constant :Target

        # @param publisher [Publisher]
        # @param monitor [Monitor] the application's
        def initialize(publisher, monitor)
          super(above: monitor)
          @targets = [Target.new(publisher)].freeze
        end

        # @param event [String, Symbol]
        # @return [Array]
        def listeners_of(event)
          found = super
          found.empty? || event.to_s == "messages.polled" ? found : @targets
        end
      end
      private_constant :Relay

      # @param monitor [Monitor]
      # @param settings [Settings]
      def initialize(monitor, settings)
        @monitor = monitor
        @settings = settings
        @queue = Thread::Queue.new
        @left_out = 0
        @now = nil # what the thread does, and since when
      end

      # @return [Monitor] for the consumers
      def relay = Relay.new(self, @monitor)

      # Starts the thread.
      def start = @thread = Threads.start("penstock.app-events") { serve }

      # @param event [Event]
      def publish(event) = add(event)

      # @param level [:error, :warn]
      # @param text [String]
      def log(level, text) = add([level, text])

      # Listeners and the logger still get what was published before.
      def close = @queue.close

      # @return [Boolean] whether a listener or logger calls
      def own_thread? = Thread.current == @thread

      # @param seconds [Numeric]
      # @return [Boolean] whether listeners and the logger have got all, or one of them waits for this
      def wait(seconds) = @thread.nil? || own_thread? || !@thread.join(seconds).nil?

      # @return [Array(String, Float, Array<String>), nil] what hangs, for how many seconds, and its backtrace
      def busy_with
        item, since = @now
        return if item.nil?

        [item.is_a?(Event) ? "a listener of #{item.id}" : "the logger", now - since, @thread.backtrace || []]
      end

      private

      # Of any thread. After the end nobody listens.
      def add(item)
        return @left_out += 1 if @queue.size >= MOST

        @queue << item
      rescue ClosedQueueError
        nil
      end

      def serve
        while (item = @queue.pop)
          tell(left_out) if @left_out.positive?
          tell(item)
        end
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # A listener may end the thread: then another one goes on.
      def tell(item)
        complete = false
        @now = [item, now]
        item.is_a?(Event) ? @monitor.__send__(:publish, item) : @settings.log(*item)
        complete = true
      rescue StandardError, ScriptError, SystemStackError => e
        warn "penstock: an event of an application was not published: #{Text.describe(e)}"
        complete = true
      ensure
        @now = nil
        start unless complete || @queue.closed?
      end

      # @return [Array(Symbol, String)] a line for the log
      def left_out
        count = @left_out
        @left_out = 0
        [:warn, "#{Text.count(count, "event")} of the application were not published, as a listener was too slow"]
      end
    end

    # Publishes on the thread that calls. For {Testing::Driver}.
    # @api private
    class InlinePublisher < Publisher
      def relay = @monitor
      def start = nil
      def publish(event) = @monitor.__send__(:publish, event)
      def log(level, text) = @settings.log(level, text)
      def own_thread? = false
    end
    private_constant :Publisher, :InlinePublisher
  end
end

# frozen_string_literal: true

module Penstock
  class App
    # What an application runs on: threads, the time, and clients of Kafka. {Testing::Driver} has one without any of them.
    # @api private
    class Runtime
      # @return [Float] seconds, for periods
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # @param time [Float] of {#now}
      # @return [Float, nil] the same for what reads the clock itself; nil: that would be another clock
      def on_the_clock(time) = time

      # @return [Float] seconds since the epoch, for timestamps
      def time = Time.now.to_f

      # @return [Random]
      def random = Random.new

      # @return [ConsumerSet]
      def consumer_set = ConsumerSet.new

      # @return [Boolean] whether there are leaders of partitions
      def asks_leaders? = true

      # @return [Boolean] whether quick messages of a partition share a lane: see {CommonLane}
      def shares_lanes? = true

      # @return [Class, nil] for {ConsumerConfig#client_class}
      def client_class = nil

      # @param settings [Settings]
      # @return [Producer]
      def producer(settings) = settings.producer || settings.new_producer

      # @param size [Integer] of threads
      # @param finished [#call]
      # @return [ThreadExecutor]
      def executor(size, finished) = ThreadExecutor.new(size, finished)

      # @param monitor [Monitor] the application's
      # @param settings [Settings]
      # @return [Publisher]
      def publisher(monitor, settings) = Publisher.new(monitor, settings)

      # @return [Thread]
      def start_loop(&) = Threads.start("penstock.app", &)

      # Calls the block every second, whatever the loop does.
      # @return [Thread, nil]
      def watchdog
        Threads.start("penstock.watchdog") do
          loop do
            sleep 1
            yield
          end
        end
      end

      # Something that blocks.
      # @param name [String]
      # @param call [#call]
      # @yieldparam result [Object, nil]
      # @yieldparam error [StandardError, nil]
      def background(name, call)
        Threads.start(name) do
          result = call.call
        rescue StandardError => e
          yield nil, e
        else
          yield result, nil
        end
      end
    end
    private_constant :Runtime
  end
end

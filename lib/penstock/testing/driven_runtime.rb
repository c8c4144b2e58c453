# frozen_string_literal: true

require "delegate"

module Penstock
  class App # rubocop:disable Style/Documentation -- in app.rb
    # What an application of a {Testing::Driver} runs on.
    # @api private
    class DrivenRuntime < Runtime
      BEGINNING = 1_700_000_000 # seconds since the epoch
      private_constant :BEGINNING

      # @return [Float]
      attr_reader :now
      # @return [Random]
      attr_reader :random

      def initialize(random)
        super()
        @random = random
        @sharing = Random.new(random.seed)
        @now = 0.0
        @waiting = [] # what threads would do that may block
        @executor = nil
        @producer = Producer.new do |config|
          config.kafka = { "bootstrap.servers": "driver" }
          config.client_class = Clients::Buffered
        end
      end

      def time = BEGINNING + @now

      # A message takes no time here.
      def on_the_clock(_time) = nil

      def asks_leaders? = false
      def client_class = Testing.const_get(:DrivenClient)
      def consumer_set = DrivenSet.new
      def producer(_settings) = Unclosed.new(@producer)
      def executor(size, finished) = @executor = DrivenExecutor.new(size, finished)
      def publisher(monitor, settings) = InlinePublisher.new(monitor, settings)
      def start_loop = nil
      def watchdog = nil

      # All messages are quick here. So the seed decides for each partition: tests have to find the orders of slow ones, too.
      def shares_lanes? = @sharing.rand(2).zero?

      # Something else may happen before the loop knows the result.
      def background(_name, call, &done)
        @waiting << -> { @waiting << run(call, done) }
        nil
      end

      # @return [Proc] gives the loop the result
      def run(call, done)
        result = call.call
        -> { done.call(result, nil) }
      rescue StandardError => e
        -> { done.call(nil, e) }
      end
      private :run

      # ---- of the driver ----

      # @return [Clients::Buffered]
      def sent = @producer.client

      # @param seconds [Numeric]
      def advance(seconds) = @now += seconds

      # @return [Array<Work, HookWork>]
      def running = @executor.in_work

      # @return [Boolean]
      def busy? = !@waiting.empty? || !running.empty?

      # @param turn [#call] of the loop
      # @return [#call] what comes next
      def choose(turn)
        steps = [turn, *@waiting.map { |call| -> { @waiting.delete(call) && call.call } },
                 *running.map { |work| -> { @executor.finish(work) } }]
        steps[@random.rand(steps.size)]
      end

      def forget_threads = @waiting.clear
    end

    # A {ConsumerSet} that never waits: each of its consumers may have something.
    # @api private
    class DrivenSet
      def initialize
        @consumers = []
      end

      def add(consumer) = @consumers.include?(consumer) || @consumers.push(consumer)
      def delete(consumer) = @consumers.delete(consumer)
      def wait(**) = @consumers.dup
    end

    # A {ThreadExecutor} without threads. Each of the first `size` pieces of work may be the next that ends.
    # @api private
    class DrivenExecutor
      AHEAD = 2
      private_constant :AHEAD

      def initialize(size, finished)
        @size = size
        @finished = finished
        @queue = []
        @accepted = 0
        @working = false
      end

      def start = nil
      def stop = nil
      def idle? = @accepted.zero?
      def room? = @accepted < @size * AHEAD

      def submit(work)
        @accepted += 1
        @queue << work
      end

      def settled = @accepted -= 1
      def in_work = @queue.first(@size)
      def running = in_work.map { |work| [work, nil] }
      def own_thread? = @working

      # Whatever user code does.
      def finish(work)
        @working = true
        complete = false
        catch_all { work.run }
        complete = true
      ensure
        @working = false
        work.abort unless complete
        @queue.delete(work)
        @finished.call(work)
      end

      private

      def catch_all
        yield
      rescue UncaughtThrowError
        nil
      end
    end

    # The driver's producer outlives applications that crash.
    # @api private
    class Unclosed < SimpleDelegator
      def close(**) = nil
    end
    private_constant :DrivenRuntime, :DrivenSet, :DrivenExecutor, :Unclosed
  end
end

# frozen_string_literal: true

module Penstock
  module Listeners
    # The counts of a listener in one process, and the producers whose native counters it reads. Any thread may use it;
    # a signal trap, which can lock no Mutex, may call {#add}.
    # @api private
    class MetricsLedger
      # @return [Integer] whose they are
      attr_reader :pid

      # @param producers [Array<Producer::Internals>] that are known from the parent process: here they begin at nothing
      def initialize(producers = [])
        @pid = Process.pid
        @lock = Mutex.new
        @producers = producers.to_h { |producer| [producer, CounterSnapshot::NONE] }.compare_by_identity # as last read
        @consumers = {}.compare_by_identity # their metrics as last read
        @counts = Hash.new(0)
        @trapped = Thread::Queue.new
      end

      # @return [Array<Producer::Internals>] that are connected
      def producers = @producers.keys

      # Called when a producer is connected. Its earlier connections were counted when they ended.
      def watch(producer)
        @lock.synchronize { @producers[producer] ||= producer.past_totals }
      end

      # Called when a consumer is connected. What it has counted until now is new.
      def watch_consumer(consumer)
        @lock.synchronize { @consumers[consumer] ||= [0] * ConsumerMetrics.members.size }
      end

      # Reads the consumers' counters. Forgets consumers that cannot count any more.
      # @return [Array<Array(Consumer, ConsumerMetrics)>] what each has done since it was last read
      def collect_consumers
        @lock.synchronize do
          @consumers.keys.map do |consumer|
            over = consumer.status.closed? || consumer.status.forked? # asked first
            now = consumer.metrics.to_a
            grown = now.zip(@consumers[consumer]).map { |new, old| new - old }
            over ? @consumers.delete(consumer) : @consumers[consumer] = now
            [consumer, ConsumerMetrics.new(*grown)]
          end
        end
      end

      # @param key [Object]
      # @param number [Numeric]
      def add(key, number = 1)
        locked { @counts[key] += number }
      rescue ThreadError # a signal trap
        @trapped << [key, number]
      end

      # Reads the producers' counters. Forgets producers that are closed or have no client, unless a client that
      # was not closed in time may still get delivery results. The next connection adds the producer again.
      # @return [Array<Array(Producer::Internals, CounterSnapshot)>] what each has done since it was last read
      def collect
        @lock.synchronize do
          @producers.keys.map do |producer|
            over = producer.over? # asked first: what is over afterwards may have counted on
            totals = producer.totals
            grown = totals - @producers[producer]
            @producers[producer] = totals
            @producers.delete(producer) if over || (producer.without_client? && totals == producer.past_totals)
            [producer, grown]
          end
        end
      end

      # @return [Hash{Object => Numeric}] a copy
      def counts = locked { @counts.dup }

      # @return [Hash{Object => Numeric}] which begin anew
      def take
        locked { @counts.tap { @counts = Hash.new(0) } }
      end

      # @yieldparam key [Object] is not counted any more if the block says so
      def forget(&block) = locked { @counts.delete_if { |key, _| block.call(key) } }

      private

      def locked
        @lock.synchronize do
          until @trapped.empty?
            key, number = @trapped.pop
            @counts[key] += number
          end
          yield
        end
      end
    end
  end
end

# frozen_string_literal: true

class ConsumerStorm
  class Life
    # Ways to leave the work on a message, and then to close in the thread that has polled it. The message is not processed.
    module Endings
      class Failed < StandardError; end

      ENDINGS = %i[
        timeout_each timeout_batches timeout_set failed_batches failed_each thrown_each broken_each stop_iteration ensured
      ].freeze
      private_constant :Failed, :ENDINGS

      private

      def read_to_an_end
        ending = ENDINGS.sample(random: @random)
        log(:ending, ending)
        @leave_at = ending.start_with?("timeout") ? Float::INFINITY : now + @random.rand(0.1..1.0)
        __send__(:"ending_#{ending}")
      rescue Penstock::ConsumeError => e
        log(:error, e.code)
      ensure
        close
      end

      # @yield to leave the work in the middle
      # @return [Boolean] whether it came to its end
      def read(what, begun)
        return true if what.is_a?(Penstock::Batch) && what.empty?

        job = job_of(what, @own ||= Worker.new(0, @random), begun)
        yield if block_given? && now > @leave_at
        return false if now > @leave_at

        compute(@own)
        log(:processed, [job.number, job.ranges])
        true
      end

      # Also those that leave earlier by themselves: perhaps there is no message.
      def in_some_time(&block)
        Timeout.timeout([@ends_at - now, 0.01].max, &block)
      rescue Timeout::Error
        nil
      end

      def read_each(&leave)
        begun = now
        consumer.each(timeout: 0.2) do |message|
          read(message, begun, &leave)
          begun = now
        end
      end

      def read_batches(&leave)
        loop do
          begun = now
          read(consumer.poll_batch(max: 20, timeout: 0.2), begun, &leave)
        end
      end

      def ending_timeout_each = in_some_time { read_each }
      def ending_timeout_batches = in_some_time { read_batches }

      def ending_timeout_set
        set = Penstock::ConsumerSet.new(consumer)
        begun = now
        in_some_time do
          set.each_batch(max: 20) do |_, batch|
            read(batch, begun)
            begun = now
          end
        end
      ensure
        set&.clear
      end

      def ending_failed_batches
        in_some_time { read_batches { raise Failed } }
      rescue Failed
        nil
      end

      def ending_failed_each
        in_some_time { read_each { raise Failed } }
      rescue Failed
        nil
      end

      def ending_thrown_each = in_some_time { catch(:enough) { read_each { throw :enough } } }

      def ending_broken_each
        begun = now
        in_some_time do
          consumer.each(timeout: 0.2) do |message|
            break unless read(message, begun)

            begun = now
          end
        end
      end

      def ending_stop_iteration
        in_some_time { read_each { raise StopIteration } }
      rescue StopIteration
        nil
      end

      def ending_ensured
        in_some_time { read_batches { raise Failed } }
      rescue Failed
        consumer.close
      end
    end
  end
end

# frozen_string_literal: true

module Penstock
  class App # rubocop:disable Style/Documentation -- in app.rb
    # Messages that a worker has: slices of one partition, of one lane or several. The loop makes it, a worker runs it, and the
    # loop reads the result from its slices.
    # @api private
    class Work
      include ShortInspect
      include Deliveries
      include Batches

      # Seconds after which a worker lets others have its turn.
      TURN = 0.05
      private_constant :TURN

      # @return [Partition]
      attr_reader :partition
      # @return [Array<Slice>]
      attr_accessor :slices
      # @return [Integer] messages
      attr_reader :size
      # @return [Message, nil] in work
      attr_reader :record
      # @return [Integer] of the message or batch in work
      attr_reader :attempt
      # @return [Float, nil] when it began
      attr_reader :started
      # @return [Float, nil] seconds that it took
      attr_reader :seconds
      # @return [Exception, nil] raised after all messages were done: nothing comes again
      attr_reader :late_error
      # @return [Exception, nil] raised when a processor was made, or by its `assigned`: no message has begun
      attr_reader :processor_error

      # @param partition [Partition]
      # @param slices [Array<Slice>]
      def initialize(partition, slices)
        @partition = partition
        @slices = slices
        @size = slices.sum(&:count)
        @attempt = 1
        @asked_to_pause = @sends = @ended = false
        @stopped = nil # lanes of this work that go no further
      end

      # @return [nil] it calls none
      def hook = nil

      # @return [Integer] messages; when it has run, and its slices have not advanced
      def processed = @processed ||= @slices.sum(&:done)

      # @return [Boolean] whether it has asked the partition to pause, even if the pause does not follow
      def asked_to_pause? = @asked_to_pause

      # @return [Boolean] whether every message is processed
      def done? = processed == @size && @slices.none?(&:error)

      # Of a worker. Raises nothing.
      def run
        @started = now
        Thread.handle_interrupt(Exception => :immediate) { begin_work }
      rescue Exception => e # rubocop:disable Lint/RescueException -- the loop decides what follows
        forget_undelivered
        failed_outside(e)
      ensure
        forget_undelivered
        give_back
        @seconds = now - @started
      end

      # @return [Array<Array(Integer, Exception)>] offsets of messages whose copies are in the dead letters, and why
      def buried
        @slices.select { |slice| slice.lane.dead && slice.done.positive? }
               .map { |slice| [slice.run.offsets[slice.first], slice.lane.dead] }
      end

      # Its thread ends.
      def abort = failed_outside(RuntimeError.new("the processor ended its thread, or used throw without catch"))

      # For {Processor#produce}.
      def produce(message)
        handle = @partition.produce(message)
        @sends = true
        @batch ? (@produced ||= []) << [handle, @batch.done_count] : sent(handle, @slice)
        handle
      end

      # @return [Boolean] whether `process` or `process_batch` has sent something
      def sends? = @sends

      # For {Processor#checkpoint}. What was sent before must be delivered: otherwise a crash could lose it.
      def checkpoint(message) = @partition.checkpoint(message) { await_sent }

      # The batch may return before its end: `cancelled?` was true. For {Processor#cancelled?}.
      def end_early = @ends_early = true

      # Where it is, for reports.
      # @return [Integer] an offset
      def offset
        record = @record # the worker changes it
        return record.offset if record

        slice = (@batch_slices || @slices).first
        slice.run.offsets[slice.first]
      end

      # @return [Integer] before its slices have advanced
      def first_offset = @slices.first.run.offsets[@slices.first.first]

      private

      def begin_work
        @processor = processor or return wait_for_processor
        @processor.__send__(:penstock_work_on, self)
        @gates = @partition.gates
        @direct = @gates.nil? && @partition.around.none? # there is nothing to do for a message but to process it
        @partition.route.batch? ? run_batches : run_slices
      end

      def processor
        @partition.processors.borrow
      rescue Exception => e # rubocop:disable Lint/RescueException -- the loop decides what follows
        @processor_error = e
        nil
      end

      # It is no failure of the messages, whose retries are for others.
      def wait_for_processor
        seconds = @partition.processors.wait || 0
        @slices.each { |slice| slice.wait = seconds }
      end

      # Something has ended the work from outside of a processor, or has ended the thread. Other slices may have failed before the
      # one in work.
      def failed_outside(error)
        slice = [@slice, *(@batch_slices || @slices)].find { |one| one && one.done < one.count && one.error.nil? }
        slice ? slice.error = error : @late_error ||= error
      end

      def fatal?(error) = @partition.route.fatal?(error)

      def run_slices
        @slices.each { |slice| run_slice(slice) }
        await_deliveries
      end

      def run_slice(slice)
        return if @stopped&.include?(slice.lane)

        @slice = slice
        @direct && slice.lane.unmarked? ? run_directly(slice) : run_each(slice)
        stop(slice.lane) if slice.done < slice.count # what it has met may be over when a later slice comes
      rescue Exception => e # rubocop:disable Lint/RescueException -- the same
        failed(slice, e)
      end

      # An exception from outside may come when the last message has just been processed.
      def failed(slice, error)
        slice.done < slice.count ? slice.error = error : @late_error ||= error
        stop(slice.lane)
        ask_to_pause if error.is_a?(Processor::Paused)
      end

      # Does the same as {#run_each} with as few calls as possible. While a message is processed, the code of these calls leaves
      # the caches of the CPU. So each call costs more than a measurement without work shows.
      def run_directly(slice)
        @attempt = 1
        return run_one(slice) if slice.count == 1

        partition = @partition
        main = partition.main
        latest = partition.runtime.on_the_clock(@started + TURN)
        slice.run.batch.__send__(:walk, slice.first + slice.done, slice.count - slice.done, latest) do |record|
          break if @ended || partition.asked_to_pause || partition.cancelled || main.quieted # Partition#go_on? would be a call

          @record = record
          @processor.process(record)
          slice.done += 1
        end
      end

      # Of one message, as in the order of keys, without a block.
      def run_one(slice)
        return unless go_on?

        @processor.process(@record = slice.run.batch.__send__(:at, slice.first))
        slice.done = 1
      end

      def run_each(slice)
        while slice.done < slice.count
          return unless go_on? && due?(slice)

          @attempt = attempt_of(slice)
          slice.lane.dead ? bury(slice.lane) : process
          slice.done += 1
        end
      end

      # Only the first message of a lane may have been tried before.
      def attempt_of(slice)
        attempt = slice.lane.attempt
        first = attempt > 1 && slice.done.zero? && @slices.find { |one| one.lane.equal?(slice.lane) }.equal?(slice)
        first ? attempt : 1
      end

      # Whether the next message, which becomes the one in work, may be processed now.
      def due?(slice)
        @record = slice.run.batch[slice.first + slice.done]
        slice.wait = @gates&.wait(@record)
        slice.wait.nil?
      end

      # Later slices of the lane wait, too.
      def stop(lane) = (@stopped ||= []) << lane

      def ask_to_pause
        @asked_to_pause = true
        @partition.ask_to_pause
      end

      def process
        @partition.around.call(self) { @processor.process(@record) } if @gates.nil? || @gates.pass?(@record)
      end

      def bury(lane) = @partition.bury(@record, lane.dead, lane.attempt)

      def go_on? = !@ended && @partition.go_on? && now - @started < TURN

      def give_back
        @processor&.__send__(:penstock_work_on, nil)
        @partition.processors.give_back(@processor) if @processor
        @record = nil
      end

      def now = @partition.runtime.now
    end

    # A call of the hook `assigned`, `tick`, `caught_up`, `stopping` or `revoked`.
    # @api private
    class HookWork
      include ShortInspect

      # @return [Partition]
      attr_reader :partition
      # @return [Symbol]
      attr_reader :hook
      # @return [Exception, nil]
      attr_reader :error
      # @return [Float, nil] when it began
      attr_reader :started

      def initialize(partition, hook)
        @partition = partition
        @hook = hook
      end

      # @return [Integer, nil]
      def offset = nil

      # For {Processor#record}.
      def record = nil

      # For {Processor#attempt}.
      def attempt = 1

      # For {Processor#cancelled?}.
      def end_early = nil

      # For {Processor#produce}.
      def produce(message) = @partition.produce(message).tap { |handle| (@produced ||= []) << handle }

      # For {Processor#checkpoint}.
      def checkpoint(message) = @partition.checkpoint(message) { @produced&.each(&:wait) }

      # Of a worker. Raises nothing.
      def run
        @started = @partition.runtime.now
        Thread.handle_interrupt(Exception => :immediate) do
          call
          @produced&.each(&:wait)
        end
      rescue Exception => e # rubocop:disable Lint/RescueException -- the loop decides what follows
        @error = e
      end

      # Its thread ends.
      def abort
        @error ||= RuntimeError.new("the hook #{@hook} ended its thread, or used throw without catch")
        nil
      end

      private

      def call
        case @hook
        when :assigned then @partition.processors.begin
        when :stopping then @partition.processors.stop(self)
        when :revoked then @partition.processors.end(self)
        else @partition.stops? || @partition.processors.call_one(@hook, self)
        end
      end
    end
    private_constant :Work, :HookWork
  end
end

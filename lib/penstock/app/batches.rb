# frozen_string_literal: true

module Penstock
  class App
    # How a {Work} runs `process_batch`: once for each batch that it has. Of a worker.
    # @api private
    module Batches
      # @return [Integer] messages that were begun, and failed
      def failed_count
        return @slices.count(&:error) unless @partition.route.batch?
        return 0 if @slices.none?(&:error)

        (@batch_slices || @slices).sum { |slice| slice.count - slice.done }
      end

      # @return [Integer] messages that are handed out one by one, if the batch that has failed is not tried again: those that
      #   were not done. 0: it had one message only
      def left_alone = (@batch_slices || @slices).sum(&:count) == 1 ? 0 : [failed_count, 1].max

      private

      def run_batches
        lane = @slices.first.lane
        return run_slice(@slices.first) if lane.dead

        @attempt = lane.attempt
        batches.each do |slices|
          break unless go_on?

          @ends_early = nil
          run_batch(slices)
          break if @late_error || slices.last.error || slices.last.done < slices.last.count

          @attempt = 1
        end
      end

      # Of one lane. All but the last have the size of the route.
      def batches
        return [@slices] if @slices.size == 1

        size = @partition.route.options[:batch][:size]
        count = 0
        @slices.slice_after { |slice| ((count += slice.count) % size).zero? }
      end

      def run_batch(slices)
        @batch_slices = slices
        return run_through_gates(slices) if @gates

        spread(slices, *process_batch(SlicedBatch.new(slices), &:itself))
      end

      def run_through_gates(slices)
        records = SlicedBatch.new(slices).to_a
        due = records.take_while { |record| @gates.wait(record).nil? }
        kept = due.select { |record| @gates.pass?(record) }
        done, error = kept.empty? ? due.size : process_kept(kept, due)
        spread(slices, done, error)
        wait_for(slices, records[due.size]) if error.nil? && done == due.size && done < records.size
      end

      def process_kept(kept, due)
        process_batch(RecordBatch.new(kept)) { |done| done == kept.size ? due.size : due.index(kept[done]) }
      end

      # @yieldparam done [Integer] how many messages of the batch are processed
      # @yieldreturn [Integer] how many of the slices are, or have no need of it
      # @return [Array(Integer, Exception)] the latter, and why not all
      def process_batch(batch)
        @batch = batch
        @produced = @awaited = nil
        @partition.around.call(self) do
          @processor.process_batch(batch)
          @produced&.each { |handle,| handle.wait }
        end
        counted = [yield(@ends_early ? batch.done_count : batch.size), nil]
      rescue Exception => e # rubocop:disable Lint/RescueException -- the same
        counted = [yield([batch.done_count, *delivered_for(e)].min), e]
      ensure
        spread(@batch_slices, yield([batch.done_count, *delivered_for(nil)].min), nil) unless counted # Thread.exit
      end

      # How many messages of the batch were done when it sent the first message that is not delivered.
      # @param error [Exception, nil] if it ends the application, or there is none, nothing is waited for
      # @return [Integer, nil] nil: all is delivered
      def delivered_for(error)
        wait = error && !fatal?(error)
        @produced&.each do |handle, done|
          wait ? handle.wait : (handle.delivered? || (return done))
        rescue StandardError
          return done
        end
        nil
      end

      # The first message that is not due.
      def wait_for(slices, record)
        slice = slices.find { |one| one.done < one.count }
        slice.wait = @gates.wait(record) || 0
      end

      def spread(slices, count, error)
        slices.each do |slice|
          slice.done = [slice.count, count].min
          count -= slice.done
          return slice.error = error if slice.done < slice.count
        end
        command?(error) ? slices.last.error = error : @late_error = error
      end

      # Whether it counts also if everything is done.
      def command?(error) = error.is_a?(Processor::Paused) || error.is_a?(Processor::SeekTo)
    end
    private_constant :Batches
  end
end

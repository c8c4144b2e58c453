# frozen_string_literal: true

module Penstock
  class App
    # The part of {Work} that waits until what `process` has sent is delivered. Of a worker.
    #
    # It waits when the piece of work ends, not after each message: otherwise every message of a lane would take a round trip to
    # the brokers. So when a delivery fails, later messages of the lane may be processed already, and are processed again.
    # @api private
    module Deliveries
      private

      # If it fails, what is behind the message in its lane comes again. So in a common lane nothing of the work follows it.
      # @param handle [DeliveryHandle]
      # @param slice [Slice] whose next message has sent it
      def sent(handle, slice)
        (@sent ||= []) << [handle, slice, slice.done]
        @ended = slice.lane.is_a?(Common)
      end

      # What `process` or `process_batch` has sent until now. Raises the first failure.
      def await_sent
        sent = (@batch ? @produced : @sent) or return
        @awaited ||= 0
        while (handle, = sent[@awaited])
          handle.wait
          @awaited += 1
        end
      end

      # Messages before the first one whose delivery failed are processed; that one has failed.
      def await_deliveries
        return if @sent.nil?

        fatal = @slices.any? { |slice| fatal?(slice.error) }
        while (handle, slice, index = @sent.first)
          counts = index < slice.done || (index == slice.done && slice.error.is_a?(Processor::Skipped))
          error = counts ? failure_of(handle, fatal) : nil
          go_back(slice, index, error) if error
          @sent.shift
        end
      end

      # Whatever has ended the work before its deliveries were known.
      def forget_undelivered
        @sent&.each { |handle, slice, index| go_back(slice, index, nil) if index < slice.done && !handle.delivered? }
        @sent = nil
      end

      # @param fatal [Boolean] the application ends, so nothing is waited for
      # @return [StandardError, nil]
      def failure_of(handle, fatal)
        return handle.delivered? ? nil : :unknown if fatal

        handle.wait
        nil
      rescue StandardError => e
        e
      end

      # Later messages of the lane come again, too.
      def go_back(slice, index, error)
        slice.done = index
        slice.error = error if error.is_a?(Exception)
        at = @slices.index { |one| one.equal?(slice) }
        @slices.drop(at + 1).each do |later|
          next unless later.lane.equal?(slice.lane)

          later.done = 0
          later.error = later.wait = nil
        end
      end
    end
    private_constant :Deliveries
  end
end

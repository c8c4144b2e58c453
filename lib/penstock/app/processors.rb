# frozen_string_literal: true

module Penstock
  class App
    # The processor objects of one assignment. Each is used by one worker at a time.
    # @api private
    class Processors
      include ShortInspect

      # Seconds until `assigned` is called again that has failed.
      AGAIN = 1
      private_constant :AGAIN

      # @param route [Route]
      # @param partition [Partition]
      def initialize(route, partition)
        @maker = Maker.new(route)
        @partition = partition
        @idle = Thread::Queue.new
        @all = Thread::Queue.new
        @again_at = nil # when the next one may be made, if the latest could not
      end

      # Makes the first one, and calls its `assigned`. Of a worker, as all of these.
      def begin = give_back(build)

      # Calls a hook of one.
      # @param hook [Symbol]
      # @param work [HookWork]
      def call_one(hook, work)
        processor = borrow or return
        call(processor, hook, work)
      ensure
        give_back(processor) if processor
      end

      # Calls `stopping` of all. Raises the first error of them.
      # @param work [HookWork]
      def stop(work)
        all = Array.new(@all.size) { @all.pop }
        all.each { |processor| @all << processor }
        call_all(all, :stopping, work)
      end

      # Calls `revoked` of all. Raises the first error of them.
      # @param work [HookWork]
      def end(work) = call_all(Array.new(@all.size) { @all.pop }, :revoked, work)

      # @return [Processor, nil] nil: another one could not be made a moment ago
      def borrow = idle || (build unless wait)

      # @return [Float, nil] seconds until another one may be made
      def wait
        left = @again_at && (@again_at - @partition.runtime.now)
        left if left&.positive?
      end

      # @param processor [Processor]
      def give_back(processor) = @idle << processor

      # @return [Boolean] whether none was made
      def empty? = @all.empty?

      private

      def call_all(processors, hook, work)
        error = nil
        processors.each do |processor|
          call(processor, hook, work)
        rescue StandardError => e
          error ||= e
        end
        raise error if error
      end

      def call(processor, hook, work)
        processor.__send__(:penstock_work_on, work)
        processor.public_send(hook) if processor.respond_to?(hook)
      ensure
        processor.__send__(:penstock_work_on, nil)
      end

      def idle
        @idle.pop(true) unless @idle.empty?
      rescue ThreadError
        nil # another worker was quicker
      end

      def build
        made = @maker.make.__send__(:penstock_place_at, @partition)
        made.assigned if made.respond_to?(:assigned)
        @again_at = nil
        @all << made
        made
      rescue Exception # rubocop:disable Lint/RescueException -- raised again
        @again_at = @partition.runtime.now + AGAIN
        raise
      end
    end
    private_constant :Processors
  end
end

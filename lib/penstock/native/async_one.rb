# frozen_string_literal: true

module Penstock
  module Native
    # How a leader fiber (ext/penstock/ruby/fiber_wait.c) waits for its descriptor under Async 1.
    #
    # Async 1 ends a `task.with_timeout` by raising in the fiber. Its scheduler's `io_wait` rescues every TimeoutError as
    # its own and returns as if the descriptor were not ready. So the leader would not learn that the program's timeout has
    # expired. Therefore the leader waits one layer below `io_wait`, and its own deadline raises an error that only this
    # module knows.
    # @api private
    module AsyncOne
      class DeadlineReached < StandardError; end
      private_constant :DeadlineReached

      # @param scheduler [Object] of the current fiber
      # @return [Boolean]
      def self.scheduler?(scheduler)
        return false unless defined?(::Async::VERSION) && ::Async::VERSION.start_with?("1.")

        scheduler.is_a?(::Async::Scheduler)
      end

      # @param io [IO]
      # @param seconds [Float, nil] nil: no limit
      # @return [Boolean] whether it is readable; false: the time ran out
      # @raise [Exception] that the program's timeout, or `Task#stop`, raises in this fiber
      def self.wait_readable(io, seconds)
        reactor = ::Async::Task.current.reactor
        wrapper = ::Async::Wrapper.new(io, reactor)
        return wrapper.wait_readable unless seconds

        reactor.with_timeout(seconds, DeadlineReached) { wrapper.wait_readable }
      rescue DeadlineReached
        false
      ensure
        wrapper&.reactor = nil # takes the descriptor out of the selector
      end
    end
  end
end

# frozen_string_literal: true

module Penstock
  class App
    # The part of {Partition} that calls the hooks of its processors.
    # @api private
    module Hooks
      # @return [HookWork] calls `assigned`
      def prepare = hook(:assigned)

      # All that it has was polled.
      def end_reached = @end_reached = !@detour&.ignores?

      # @param work [HookWork] has run
      def settle_hook(work)
        @in_work -= 1
        @catching_up = false if work.hook == :caught_up
        return unless work.hook == :tick

        @tick_due = @ticking = false
        tick_later
      end

      # The next step of draining, if nothing is in work.
      # @return [HookWork, nil] that has to run first
      def next_hook
        return if @state != :draining || @in_work.positive?

        name = last_hooks.shift unless @processors.empty?
        return hook(name) if name

        @state = :drained
        nil
      end

      private

      # When the partition was lost, `stopping` is of no use.
      def last_hooks
        @last_hooks ||= @subscription.stopping? && !@revoked ? %i[stopping revoked] : %i[revoked]
      end

      def hook(name)
        @in_work += 1
        HookWork.new(self, name)
      end

      def tick_later
        seconds = @route.options[:tick] or return
        return unless @state == :running

        @subscription.later(seconds, self) { @tick_due = @state == :running }
      end

      def tick? = @tick_due && !@ticking && (idle? || !tick_first?)

      # With `order: :partition` a tick has a place between messages: nothing else is handed out until it was.
      def tick_first? = @tick_due && @route.order == :partition

      def tick
        @ticking = true
        hook(:tick)
      end

      def caught_up? = @end_reached && idle? && @open.zero? && @backlog.empty?

      def caught_up
        @end_reached = false
        @catching_up = true
        hook(:caught_up)
      end
    end
    private_constant :Hooks
  end
end

# frozen_string_literal: true

module Penstock
  class App
    # The hooks of `app.around(:process)`, the first one outermost.
    # @api private
    class Around
      # @param hooks [Array<#call>]
      def initialize(hooks)
        @hooks = hooks
        freeze
      end

      # @return [Boolean] whether there is no hook
      def none? = @hooks.empty?

      # @param work [Work]
      # @yield processes the message or batch
      def call(work, &process)
        return yield if @hooks.empty?

        call_on(work, 0, process)
      end

      private

      def call_on(work, index, process)
        return process.call if index == @hooks.size

        called = false
        result = @hooks[index].call(work.record, lambda {
          called = true
          call_on(work, index + 1, process)
        })
        return result if called

        raise ErrorFactory.build(HookError, "a hook of app.around(:process) did not call on", "The message was not processed.")
      end
    end
    private_constant :Around
  end
end

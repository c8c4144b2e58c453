# frozen_string_literal: true

module Penstock
  class Producer
    # The hooks of {Producer#around}: code around every sending call.
    # @api private
    class SendHooks
      OPERATIONS = { "message.produce_sync" => :produce_sync, "message.produce_async" => :produce_async,
                     "messages.produce_many_sync" => :produce_many_sync,
                     "messages.produce_many_async" => :produce_many_async }.freeze
      private_constant :OPERATIONS

      # @return [Array<#call>] frozen
      attr_reader :all

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @all = [].freeze
        @adding = Mutex.new
      end

      # @param hook [#call, nil]
      # @param block [Proc, nil]
      # @yield with the lock held, after the hook is added
      def add(hook, block)
        raise ArgumentError, "give a hook or a block, not both" if hook && block

        hook ||= block
        raise ArgumentError, "a hook must respond to call(sending), unlike #{hook.inspect}" unless hook.respond_to?(:call)

        @adding.synchronize do
          @all = [*@all, hook].freeze # replaced as a whole, so that reading needs no lock
          yield
        end
      end

      # @param hooks [Array<#call>] the value of {#all} when the call began
      # @param ready [Hash, Array<Hash>, Object] produce raises for an object that is no message
      def through(hooks, type, ready, &send)
        return pass(hooks, 0, OPERATIONS.fetch(type), [ready]) { |messages| send.call(messages[0]) } if ready.is_a?(Hash)
        return yield(ready) unless ready.is_a?(Array) && !ready.empty? && ready.all?(Hash)

        pass(hooks, 0, OPERATIONS.fetch(type), ready, &send)
      end

      # @return [String]
      def inspect = "#<#{self.class} #{@all.size}>"

      private

      def pass(hooks, place, operation, messages, &send)
        hook = hooks[place] or return yield(messages)
        sending = SendContext.new(@internals.producer, operation, messages) do |sent|
          pass(hooks, place + 1, operation, sent, &send)
        end
        begin
          hook.call(sending)
        rescue StandardError, ScriptError, SystemStackError => e
          raise unless sending.called?

          report_hook_error(hook, e) unless e.equal?(sending.error)
        end
        sending.__send__(:outcome, hook)
      end

      def report_hook_error(hook, error)
        if @internals.monitor.listening?("error.occurred")
          @internals.notifier.instrument("error.occurred") do
            { type: "around.error", error:, hook: Text.name_of(hook), caller: @internals.producer }
          end
        else
          warn "penstock: the hook #{Text.name_of(hook)} raised #{error.class}: #{error.message} " \
               "(#{error.backtrace&.first}), after the messages were sent"
        end
      rescue IOError, SystemCallError
        nil # stderr is closed
      end
    end
  end
end

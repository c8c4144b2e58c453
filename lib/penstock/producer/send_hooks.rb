# frozen_string_literal: true

module Penstock
  class Producer
    # Code around everything that is sent: what has to begin before and end after it, or has to be current meanwhile, as a span
    # of {Penstock::OpenTelemetry}.
    module SendHooks
      # Adds a hook around each call that sends: one message, a batch, the buffer when it is flushed or the producer closed;
      # with its variants and in transactions too.
      #
      #     producer.around do |sending|
      #       sending.messages = sending.messages.map { |message| message.merge(headers: { "team" => "billing" }) }
      #       report = sending.call # sends
      #       puts report.offset if sending.operation == :produce_sync
      #     end
      #
      # It runs in the thread and fiber that sends, after middleware and serializer, around the transaction of its own that a
      # message has outside of one, and has to call {SendContext#call} there, once. The first hook is the outermost. What is
      # refused before, as the producer is closed or the message is no Hash, passes no hook, nor does an empty batch.
      #
      # What a hook raises before it called goes to the caller, and nothing was sent, of a batch neither; with a hook that
      # neither calls nor raises it is {HookError}. Afterwards a hook changes nothing: the caller gets what
      # {SendContext#call} returned or raised, whatever the hook does with it. What the hook itself raises then is told as
      # "error.occurred" of the type "around.error", or as a warning on stderr when nobody listens to that; what is no
      # StandardError, ScriptError or SystemStackError goes through, such as Interrupt, though the messages were sent.
      #
      # Any thread and fiber may add hooks while others send: a call uses the hooks there were when it began. They
      # cannot be removed. Without hooks sending costs nothing more. Never blocks.
      #
      # @param hook [#call, nil] or a block
      # @yieldparam sending [SendContext]
      # @return [self]
      # @raise [ArgumentError] it is not callable, or both or none were given
      def around(hook = nil, &block)
        raise ArgumentError, "give a hook or a block, not both" if hook && block

        hook ||= block
        unless hook.respond_to?(:call)
          raise ArgumentError, "a hook has to respond to call(sending), which #{hook.inspect} does not"
        end

        @adding_hooks.synchronize do
          @hooks = [*@hooks, hook].freeze # replaced as a whole, so that reading needs no lock
          @direct = false
        end
        sharing_changed
        self
      end

      private

      OPERATIONS = { "message.produce_sync" => :produce_sync, "message.produce_async" => :produce_async,
                     "messages.produce_many_sync" => :produce_many_sync,
                     "messages.produce_many_async" => :produce_many_async }.freeze
      private_constant :OPERATIONS

      # @param ready [Hash, Array<Hash>, Object] what is no message is refused when it is produced
      def through(hooks, type, ready, &send)
        return pass(hooks, 0, OPERATIONS.fetch(type), [ready]) { |messages| send.call(messages[0]) } if ready.is_a?(Hash)
        return yield(ready) unless ready.is_a?(Array) && !ready.empty? && ready.all?(Hash)

        pass(hooks, 0, OPERATIONS.fetch(type), ready, &send)
      end

      def pass(hooks, place, operation, messages, &send)
        hook = hooks[place] or return yield(messages)
        sending = SendContext.new(self, operation, messages) { |sent| pass(hooks, place + 1, operation, sent, &send) }
        begin
          hook.call(sending)
        rescue StandardError, ScriptError, SystemStackError => e
          raise unless sending.called?

          tell_of_hook(hook, e) unless e.equal?(sending.error)
        end
        sending.outcome(hook)
      end

      def tell_of_hook(hook, error)
        if @monitor.listening?("error.occurred")
          instrument("error.occurred") { { type: "around.error", error:, hook: Middleware.name_of(hook), caller: self } }
        else
          warn "penstock: the hook #{Middleware.name_of(hook)} raised #{error.class}: #{error.message} " \
               "(#{error.backtrace&.first}), after the messages were sent"
        end
      rescue IOError, SystemCallError
        nil # there is no stderr: nobody is left to tell
      end
    end
  end
end

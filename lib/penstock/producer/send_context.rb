# frozen_string_literal: true

module Penstock
  class Producer
    # One sending call, as hooks of {SendHooks#around} get it. It belongs to the fiber that sends. Use it there, and only
    # while the hook runs.
    class SendContext
      include AsJson

      # @return [Producer]
      attr_reader :producer
      # @return [:produce_sync, :produce_async, :produce_many_sync, :produce_many_async] a tombstone has the operation of
      #   other messages; a flush of the buffer has one of the last two
      attr_reader :operation
      # The messages that will be sent, after the middleware and the outer hooks; one message unless {#many?}. They may be
      # the caller's own Hashes: do not change them, but assign others with {#messages=}.
      # @return [Array<Hash>] frozen, never empty
      attr_reader :messages
      # @return [Exception, nil] what {#call} raised
      attr_reader :error

      # Penstock makes the contexts.
      def initialize(producer, operation, messages, &onward)
        @producer = producer
        @operation = operation
        @messages = messages.dup.freeze
        @onward = onward
        @called = @returned = false
      end

      # Replaces {#messages}, for example by the same messages with more headers.
      # @param messages [Array<Hash>] one for each message, in the same order
      # @raise [HookError] when the number or class is wrong, or after {#call}
      def messages=(messages)
        raise ErrorFactory.build(HookError, "the hook replaced the messages after they were sent") if @called
        unless messages.is_a?(Array) && messages.size == @messages.size && messages.all?(Hash)
          raise ErrorFactory.build(HookError, "a hook must give #{@messages.size} Hashes in the order of the messages")
        end

        @messages = messages.dup.freeze
      end

      # @return [Boolean] whether this is a batch or a flush of the buffer
      def many? = %i[produce_many_sync produce_many_async].include?(operation)

      # @return [Boolean] whether {#call} waits for the delivery results
      def sync? = %i[produce_sync produce_many_sync].include?(operation)

      # @return [Boolean] whether {#call} was called
      def called? = @called

      # Calls the next hook; the last one sends the messages. Call it exactly once.
      #
      # Blocks: like the caller's method.
      # @return [DeliveryReport, DeliveryHandle, Array<DeliveryHandle>] the result for the caller
      # @raise [Error] the error for the caller
      # @raise [HookError] when it was called before; nothing more was sent
      def call
        raise ErrorFactory.build(HookError, "the hook called twice", "The messages were sent once.") if @called

        @called = true
        begin
          @value = @onward.call(@messages)
          @returned = true
          @value
        rescue Exception => e # rubocop:disable Lint/RescueException -- every exception reaches the caller
          @error = e
          raise
        end
      end

      # @return [String] without the messages
      def inspect = "#<#{self.class} #{Text.printable(producer.id)} #{operation} messages=#{messages.size}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(producer: producer.id, operation: operation.to_s, messages: messages.size)

      private

      # What the caller gets, independent of what the hook returned or raised.
      def outcome(hook)
        return @value if @returned
        raise @error if @error

        name = Text.name_of(hook)
        raise ErrorFactory.build(HookError, "the hook #{name} did not call SendContext#call", "Nothing was sent.") unless @called

        raise ErrorFactory.build(HookError, "the hook #{name} stopped a throw", "The messages may have been sent.")
      end
    end
  end
end

# frozen_string_literal: true

module Penstock
  class Producer
    # One call that sends, as the hooks of {SendHooks#around} get it. It belongs to the fiber that sends; use it there, and only
    # while the hook runs.
    class SendContext
      include AsJson

      # @return [Producer]
      attr_reader :producer
      # @return [:produce_sync, :produce_async, :produce_many_sync, :produce_many_async] a tombstone is produced like another
      #   message; the buffer is sent with one of the latter two
      attr_reader :operation
      # What is about to be sent, as the middleware and the hooks outside of this one left it; one message unless {#many?}.
      # These may be the caller's own Hashes: give others instead of changing them.
      # @return [Array<Hash>] frozen, never empty
      attr_reader :messages
      # @return [Exception, nil] what {#call} raised
      attr_reader :error

      # Penstock makes them.
      def initialize(producer, operation, messages, &onward)
        @producer = producer
        @operation = operation
        @messages = messages.dup.freeze
        @onward = onward
        @called = @returned = false
      end

      # Sends others in place of {#messages}, such as the same with more headers.
      # @param messages [Array<Hash>] one for each, in the same order
      # @raise [HookError] they are not; or {#call} was called
      def messages=(messages)
        raise ErrorFactory.build(HookError, "the messages were sent already; they cannot be replaced any more") if @called
        unless messages.is_a?(Array) && messages.size == @messages.size && messages.all?(Hash)
          raise ErrorFactory.build(HookError, "a hook replaces #{@messages.size} messages by as many Hashes, in the same order")
        end

        @messages = messages.dup.freeze
      end

      # @return [Boolean] whether the caller gave a batch, or this is the buffer
      def many? = %i[produce_many_sync produce_many_async].include?(operation)

      # @return [Boolean] whether the caller waits for the verdicts, and so {#call} does
      def sync? = %i[produce_sync produce_many_sync].include?(operation)

      # @return [Boolean] whether {#call} was called
      def called? = @called

      # Sends: goes on to the next hook, the last one's to Kafka. To be called once.
      #
      # Blocks: as the method that was called.
      # @return [DeliveryReport, DeliveryHandle, Array<DeliveryHandle>] what the caller gets
      # @raise [Error] what the caller gets
      # @raise [HookError] it was called before; nothing more was sent
      def call
        raise ErrorFactory.build(HookError, "the messages were sent already; a hook calls once") if @called

        @called = true
        begin
          @value = @onward.call(@messages)
          @returned = true
          @value
        rescue Exception => e # rubocop:disable Lint/RescueException -- whatever it is, it is the caller's too
          @error = e
          raise
        end
      end

      # @return [String] without the messages
      def inspect = "#<#{self.class} #{Text.printable(producer.id)} #{operation} messages=#{messages.size}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(producer: producer.id, operation: operation.to_s, messages: messages.size)

      private

      # What the caller gets, whatever the hook has made of it.
      def outcome(hook)
        return @value if @returned
        raise @error if @error

        name = Text.name_of(hook)
        raise ErrorFactory.build(HookError, "the hook #{name} did not call the sending", "Nothing was sent.") unless @called

        raise ErrorFactory.build(HookError, "the hook #{name} kept a throw from leaving", "What was sent is unknown.")
      end
    end
  end
end

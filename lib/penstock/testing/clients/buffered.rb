# frozen_string_literal: true

module Penstock
  module Clients
    # A {Dummy} that keeps the delivered messages, for tests:
    #
    #     producer.client.messages_for("events").map { |message| message[:payload] }
    #     producer.client.reset # between tests
    #
    # Messages of a transaction appear together when it is committed, and never if it is aborted. Messages that were made to
    # fail never appear. Any thread and fiber may use it. Never blocks.
    class Buffered < Dummy
      # All delivered messages, in order, as they would have been sent: frozen copies, in which the topic is a String.
      # @return [Array<Hash>] a copy
      def messages = @lock.synchronize { @messages.dup }

      # @param topic [String, Symbol]
      # @return [Array<Hash>] the {#messages} of the topic; a copy
      def messages_for(topic)
        topic = topic.to_s
        messages.select { |message| message[:topic] == topic }
      end

      private

      def forget
        super
        @messages = []
        @uncommitted = []
      end

      def keep(message, topic)
        (in_transaction? ? @uncommitted : @messages) << copy(message).update(topic:).freeze
      end

      def transaction_begun
        @uncommitted = []
      end

      def transaction_ended(committed)
        @messages.concat(@uncommitted) if committed
        @uncommitted = []
      end

      # The program may change its message later. The label is returned, not sent, and is not copied.
      def copy(message)
        message.to_h { |key, value| [key, key == :label ? value : copy_value(value)] }
      end

      def copy_value(value)
        case value
        when String then value.frozen? ? value : value.dup.freeze
        when Array then value.map { |element| copy_value(element) }.freeze
        when Hash then value.transform_values { |element| copy_value(element) }.freeze
        else value
        end
      end
    end
  end
end

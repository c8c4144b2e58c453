# frozen_string_literal: true

module Penstock
  module Clients
    # A {Dummy} that keeps what it delivered, for tests to look at:
    #
    #     producer.client.messages_for("events").map { |message| message[:payload] }
    #     producer.client.reset # between tests
    #
    # Messages of a transaction appear when it is committed, all at once, and never if it is aborted. Messages that
    # were made to fail never appear. Any thread and fiber may use it. Never blocks.
    class Buffered < Dummy
      # All messages that were delivered, in order, as they would have been sent: frozen copies, in which the topic is a
      # String.
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

      # Whoever produced it may go on to change it. The label is handed back, not sent, and stays itself.
      def copy(message)
        message.to_h { |key, value| [key, key == :label ? value : copy_value(value)] }
      end

      def copy_value(value)
        case value
        when String then value.frozen? ? value : value.dup.freeze
        when Array then value.map { |one| copy_value(one) }.freeze
        when Hash then value.transform_values { |one| copy_value(one) }.freeze
        else value
        end
      end
    end
  end
end

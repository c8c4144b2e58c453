# frozen_string_literal: true

module Penstock
  class App
    # How much of a partition is processed and not committed: what a crash would repeat. Of the loop's thread.
    # @api private
    class CommitWindow
      # @return [Integer] messages
      attr_reader :messages
      # @return [Integer]
      attr_reader :bytes

      def initialize
        @messages = @bytes = 0
        @sent_messages = @sent_bytes = 0
      end

      # More is processed.
      def add(messages, bytes)
        @messages += messages
        @bytes += bytes
      end

      # A commit of all this is on its way.
      def sent
        @sent_messages = @messages
        @sent_bytes = @bytes
      end

      # It has succeeded. What was processed meanwhile is left.
      def committed
        @messages -= @sent_messages
        @bytes -= @sent_bytes
        @sent_messages = @sent_bytes = 0
      end

      # @param limit [Hash{Symbol => Integer}] the option `uncommitted` of a route
      # @return [Integer] how many messages may begin before a commit succeeds
      def left(limit) = @bytes >= limit[:bytes] ? 0 : limit[:messages] - @messages

      # @param limit [Hash{Symbol => Integer}]
      # @return [Boolean] whether a commit should be sent now, so that it never becomes full
      def half?(limit) = @messages * 2 >= limit[:messages] || @bytes * 2 >= limit[:bytes]
    end
    private_constant :CommitWindow
  end
end

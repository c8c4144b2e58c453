# frozen_string_literal: true

module Penstock
  class Consumer
    # The loop of {Consumer#each}.
    # @api private
    class MessageLoop
      # @param internals [Internals]
      # @param timeout [Numeric, nil] see {Consumer#each}
      def initialize(internals, timeout)
        @internals = internals
        @client = internals.client
        @timeout = timeout
      end

      # The client learns if the block was left early, or an interrupt came before the block had its message.
      # @yieldparam message [Message]
      # @return [void]
      def run
        inside = ended = false
        taker = @client.taker
        while (message = @client.next_message(@timeout, taker)) || !@internals.closed?
          next unless message

          inside = true # rubocop:disable Lint/UselessAssignment -- `ensure` reads it
          yield message
          inside = false
        end
        ended = true
      rescue ConsumerClosedError
        raise if inside || !@internals.closed?

        ended = true
      ensure # also left by throw, as by Timeout in Ruby 3.1, and break
        if inside then @client.block_left
        elsif !ended then @client.not_received # M:each_keeps_its_message
        end
      end
    end
  end
end

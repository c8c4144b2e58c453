# frozen_string_literal: true

module Penstock
  class ConnectionPool
    # The producers of the gem's pool, its members, and what is lent for each: itself, or its successor if it can do nothing more.
    # The gem cannot replace a member. Any thread.
    # @api private
    class Members
      include Uncopyable

      def initialize
        @lock = Mutex.new
        @lent = Hash.new(0).compare_by_identity # how often each member is lent, to one thread
        @successors = {}.compare_by_identity
      end

      # A thread that has a member already gets the same producer again, whatever has become of it: it may be inside a transaction
      # of that producer.
      # @yieldparam broken [Producer]
      # @yieldreturn [Producer] its successor
      # @return [Producer]
      def lend(member)
        nested, producer = @lock.synchronize { [(@lent[member] += 1) > 1, @successors.fetch(member, member)] }
        return producer if nested || !ProducerRegistry.of(producer).broken?

        yield(producer).tap { |successor| @lock.synchronize { @successors[member] = successor } }
      end

      # Ends what {#lend} has begun, also if it has raised.
      def give_back(member)
        @lock.synchronize { @lent.delete(member) if (@lent[member] -= 1) < 1 }
      end

      # @return [Producer] that takes the member's place
      def remove(member) = @lock.synchronize { @successors.delete(member) || member }

      # @return [String]
      def inspect = "#<#{self.class}>"
    end
    private_constant :Members
  end
end

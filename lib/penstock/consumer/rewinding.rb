# frozen_string_literal: true

module Penstock
  # How {Consumer#rewind} and the transactions of producers go back to messages that were polled before.
  # @api private
  module ConsumerRewinding
    private

    # What the transactions of producers keep for this consumer. Two threads may make one each, and both get the first.
    def transacted
      @transacted << yield if @transacted.empty?
      @transacted.first
    end

    # @param places [Array<Array>] topic, partition, offset; what follows is ignored
    def rewind_to(places, epoch, timeout)
      return true if places.empty?

      call_rewind(places.map { |place| place.first(3) }, epoch, timeout).size == places.size
    end
  end
  private_constant :ConsumerRewinding
end

# frozen_string_literal: true

module Penstock
  class Producer
    # Where a producer is in its life. A predicate for each state: `status.connected?`.
    #
    #     initial -> configured -> connected <-> disconnecting, disconnected
    #     any of these -> closing -> closed
    #
    # Any thread and signal trap may ask.
    class Status
      include AsJson

      # What {#to_sym} may be.
      STATES = %i[initial configured connected disconnecting disconnected closing closed].freeze

      STATES.each do |state|
        define_method("#{state}?") { to_sym == state }
      end

      def initialize
        @state = :initial
        @ending = nil # apart, so that no thread that is just connecting takes a producer back from its end
      end

      # @return [Boolean] whether it takes messages, connecting at need
      def active? = @ending.nil? && @state != :initial

      # @return [Symbol] one of {STATES}
      def to_sym = @ending || @state

      # @return [String]
      def to_s = to_sym.name

      # @return [String]
      def inspect = "#<#{self.class} #{self}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(status: to_s)
    end

    # How a producer changes its {Status}, which has this for the producer alone.
    # @api private
    module StatusChanges
      %i[configured connected disconnecting disconnected].each do |state|
        define_method("#{state}!") { @state = state }
      end

      def closing!
        @ending = :closing unless closed?
      end

      def closed! = @ending = :closed
    end
  end
end

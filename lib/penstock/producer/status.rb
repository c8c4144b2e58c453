# frozen_string_literal: true

module Penstock
  class Producer
    # The state of a producer. It has a predicate for each state: `status.connected?`.
    #
    #     initial -> configured -> connected <-> disconnecting, disconnected
    #     any of these -> closing -> closed
    #
    # Any thread and signal trap may read it.
    class Status
      include AsJson

      # The possible values of {#to_sym}.
      STATES = %i[initial configured connected disconnecting disconnected closing closed].freeze

      STATES.each do |state|
        define_method("#{state}?") { to_sym == state }
      end

      def initialize
        @state = :initial
        @ending = nil # separate, so that a thread that is just connecting cannot reset closing or closed
      end

      # @return [Boolean] whether it accepts messages, connecting if necessary
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

    # Changes the {Status} of a producer. Only the producer has these methods.
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

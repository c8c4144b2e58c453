# frozen_string_literal: true

module Penstock
  # The state of a consumer. It has a predicate for each state: `status.connected?`.
  #
  #     configured -> connected -> closing -> closed
  #     fatal: connected, and a poll has met an error after which it reads nothing more: close it, and make a new one
  #     forked: a fork child that cannot use it, because the parent process did
  #
  # Any thread and signal trap may read it. Never blocks.
  class ConsumerStatus
    include AsJson

    # The possible values of {#to_sym}.
    STATES = %i[configured connected fatal closing closed forked].freeze
    NATIVE = { open: :connected, inherited: :forked }.freeze
    private_constant :NATIVE

    STATES.each do |state|
      class_eval("def #{state}? = to_sym == :#{state}", __FILE__, __LINE__) # other Ractors cannot call a block's method
    end

    # {Consumer#status} returns them.
    def initialize(client)
      @client = client
    end

    # @return [Boolean] whether it can be used, connecting if necessary
    def active? = connected? || configured?

    # @return [Symbol] one of {STATES}
    def to_sym
      state = @client.state
      NATIVE.fetch(state, state)
    end

    # @return [String]
    def to_s = to_sym.name

    # @return [String]
    def inspect = "#<#{self.class} #{self}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(status: to_s)
  end
end

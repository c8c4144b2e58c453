# frozen_string_literal: true

module Penstock
  # How a running application is: {App::Server#health}. Frozen.
  class Health
    include AsJson

    # What does not go on, though it should.
    #
    # - `reason`: `:fetch`: the partition has messages, and none comes, though nothing holds it back; `:work`: a processor is busy
    #   with the same message or batch; `:commit`: the group accepts no commit, or the message at `offset` is not finished, as it
    #   fails again and again; `:group`: the application is not in the group; `:loop`: the application's own thread is busy
    # - `group`, `topic`, `partition`, `offset`: where, as far as it has one
    # - `seconds`: for how long
    Stall = Struct.new(:reason, :group, :topic, :partition, # rubocop:disable Lint/StructNewOverride -- Kafka's word
                       :offset, :seconds, keyword_init: true) do
      # @return [String]
      def to_s
        place = topic ? " #{topic}/#{partition}#{"/#{offset}" if offset}" : ""
        "#{reason}#{" of #{group}" if group}#{place} for #{format("%.1f", seconds)} s"
      end
    end

    # @return [Symbol] :running, :quiet, :stopping, :forced or :ended
    attr_reader :state
    # @return [Array<Stall>] frozen
    attr_reader :stalls

    # {App::Server#health} makes it.
    # @param state [Symbol]
    # @param started [Boolean]
    # @param joined [Boolean]
    # @param able [Boolean] whether a worker is free, or busy for a short time
    # @param stalls [Array<Stall>]
    def initialize(state, started, joined, able, stalls)
      @state = state
      @started = started
      @joined = joined
      @able = able
      @stalls = stalls.freeze
      freeze
    end

    # @return [Boolean] whether the application can go on. False when its own thread hangs, when every worker does, or when it has
    #   stopped: then only a new process helps. Slow work on some of the workers is no reason
    def live? = @able && state != :ended && stalls.none? { |stall| stall.reason == :loop }

    # @return [Boolean] whether it takes messages: it runs, and is a member of all its groups
    def ready? = live? && state == :running && @joined

    # @return [Boolean] whether it has once been a member of all its groups
    def started? = @started

    # @return [String]
    def to_s = [[state, (:live if live?), (:ready if ready?)].compact.join(", "), *stalls].join("\n")

    # @return [String]
    def inspect = "#<#{self.class} #{state}#{", live" if live?}#{", ready" if ready?}, #{Text.count(stalls.size, "stall")}>"

    # (see AsJson#as_json)
    def as_json(_options = nil)
      json(state:, live: live?, ready: ready?, started: started?, stalls: stalls.map { |stall| stall.to_h.compact })
    end
  end
end

# frozen_string_literal: true

module Penstock
  # How an application has ended: {App::Server#stop}. Frozen.
  class StopReport
    include AsJson

    # What was still running when the time was up.
    #
    # - `group`, `topic`, `partition`, `offset`: where it is; `offset` is nil for a hook, all are nil for the application's thread
    # - `processor`: the name of its class
    # - `seconds`: for how long
    # - `backtrace`: the uppermost lines of its thread
    Blocker = Struct.new(:group, :topic, :partition, # rubocop:disable Lint/StructNewOverride -- Kafka's word
                         :offset, :processor, :seconds, :backtrace, keyword_init: true) do
      # @return [String]
      def to_s
        place = "#{group} #{topic}/#{partition}#{"/#{offset}" if offset} in " if topic
        "#{place}#{processor} for #{format("%.1f", seconds)} s\n#{backtrace.map { |line| "    #{line}" }.join("\n")}"
      end
    end

    # @return [Array<Blocker>] frozen
    attr_reader :blockers
    # @return [Exception, nil] why the application has stopped by itself
    attr_reader :error
    # @return [Array<String>] groups that were not left in time: what was processed last may not be committed, and come again
    attr_reader :groups

    # {App::Server} makes it.
    # @param blockers [Array<Blocker>]
    # @param error [Exception, nil]
    # @param groups [Array<String>]
    def initialize(blockers, error, groups)
      @blockers = blockers.freeze
      @error = error
      @groups = groups.freeze
      freeze
    end

    # @return [Boolean] whether everything that was begun has ended, and no error was the reason
    def complete? = blockers.empty? && error.nil? && groups.empty?

    # @return [Integer] the exit status of the process: 0 complete, 1 after an error, 3 if work or a group was left
    def status
      return 0 if complete?

      error && blockers.empty? ? 1 : 3
    end

    # @return [String]
    def to_s
      lines = blockers.map { |blocker| "still in work: #{blocker}" }
      lines.concat(groups.map { |group| "the group #{group} was not left in time: what was processed last may come again" })
      lines << "stopped because of #{Text.describe(error)}" if error
      lines.empty? ? "everything is finished" : lines.join("\n")
    end

    # @return [String]
    def inspect = "#<#{self.class} #{complete? ? "complete" : "status #{status}, #{Text.count(blockers.size, "blocker")}"}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(status:, blockers: blockers.map(&:to_h), groups:, error: error && Text.describe(error))
  end
end

# frozen_string_literal: true

require_relative "peer"
require_relative "program"

# See README.md.
module Bench
  # One comparison. A subclass in scenarios/ defines which sides are compared on which cases, and which figures of a round are
  # shown. Its name comes from its class.
  class Scenario
    # The sides that are always compared, even without other peers.
    OWN = %w[C Penstock].freeze

    @all = {}

    class << self
      # @return [Hash{String => Class}]
      attr_reader :all

      attr_reader :tables, :bars, :guarded

      def inherited(scenario)
        super
        scenario.instance_eval do
          @tables = {}
          @bars = []
          @guarded = []
        end
        Scenario.all[scenario.scenario_name] = scenario
      end

      def scenario_name = name.split("::").last.gsub(/(?<=[a-z])(?=[A-Z])/, "-").downcase

      # ---- what a scenario declares ----

      # With an argument each method sets the value, without one it returns it.
      def title(text = @title) = @title = text
      def about(text = @about) = @about = text

      # The side that the others are compared with.
      def reference(side = @reference || "C") = @reference = side

      # Settings besides Bench::SETTINGS.
      def settings(settings = @settings || {}) = @settings = settings

      # The settings that all sides have. A scenario of consumers has none: each side has its own.
      def common(settings = @common || SETTINGS) = @common = settings

      # Runs the sides one after the other, for sides that disturb each other even when idle. Then #sides returns Procs that start
      # each side, and not started sides.
      def apart(apart = @apart || false) = @apart = apart

      # A maximum of rounds, for rounds that take long and vary little.
      def rounds(most = @rounds || 1_000) = @rounds = most

      # @param better [Symbol] :more or :less
      def table(name, unit, better:) = @tables[name] = { unit:, better: }

      # The ratio that one side has to reach: to the side `to`, or to itself in another case.
      def bar(least, side: "Penstock", table: @tables.keys.first, **which)
        @bars << { table:, side:, least:, **(which.key?(:of_case) ? {} : { to: reference }), **which }
      end

      # The cases that bin/bench guard measures.
      def guard(*cases) = @guarded.concat(cases)
    end

    # @return [Hash{String => String}] why a side is missing
    attr_reader :left_out
    # @return [Hash{String => String}] the description of each side
    attr_reader :sides_about
    # @return [Hash{String => Array<String>}] texts about what a side does unlike the others
    attr_reader :differs

    # @param others [Array<String>] the requested peers besides C and Penstock
    # @param embedded [Boolean] whether the cluster is the embedded one, which some clients cannot use
    def initialize(servers, others: [], embedded: false)
      @servers = servers
      @others = others
      @embedded = embedded
      @left_out = {}
      @sides_about = {}
      @differs = {}
    end

    # ---- what a subclass defines ----

    # @return [Hash{String => Object}] the argument of #sides for each case, by the case's name
    def cases = raise(NotImplementedError)

    # @return [Hash{String => Peer::Run}] ready runs, by the names of the sides
    def sides(_what) = raise(NotImplementedError)

    # @param round [Hash] the line that a side printed
    # @return [Hash{String => Numeric}] the figures, by table
    def figures(round) = { "rate" => round[:delivered] / round[:seconds] }

    private

    attr_reader :servers, :others

    def settings = { **self.class.common, **self.class.settings }

    def topic = "bench-#{self.class.scenario_name}-#{Process.pid}"

    # Starts peers.
    # @param which [Array<String>, Hash{String => Array}] the peers' names; or for each side's name, its peer and more arguments
    def peers(workload, which, **options)
      named = which.is_a?(Hash) ? which : which.to_h { |name| [name, [name]] }
      named.to_h { |side, (name, *more)| [side, peer(side, name, workload, more:, **options)] }.compact
    end

    def peer(side, name, workload, set: {}, **options)
      peer = Peers[name]
      why_not = peer.why_not(embedded: @embedded)
      return leave_out(side, why_not.delete_prefix("#{name}: ")) if why_not

      note(side, peer.start(workload, servers:, topic:, set: { **settings, **set }, **options))
    rescue Peer::NoSuchWorkload
      leave_out(side, "has no workload #{workload}")
    rescue Peer::Failed => e
      raise if OWN.include?(name)

      leave_out(side, e.message.lines.first.strip)
    end

    # Starts a program in bench/programs, C or Ruby.
    # @param set [Hash] settings of this side
    def program(side, file, messages, *arguments, set: {})
      all = { **settings, **set }
      note(side, Program.start(file, messages, servers, topic, *arguments, *all.map { |pair| pair.join("=") }))
    end

    def note(side, run)
      @sides_about[side] = run.ready[:ready]
      @differs[side] = run.ready[:differs]
      run
    end

    def leave_out(side, why)
      @left_out[side] = why
      nil
    end
  end

  Dir[File.join(__dir__, "scenarios", "*.rb")].each { |file| require file }
end

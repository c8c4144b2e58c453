# frozen_string_literal: true

require_relative "peer"
require_relative "program"

# See README.md.
module Bench
  # One comparison: a subclass in scenarios/ says which sides are compared on which cases, and what of a round is shown. Its
  # name is that of its class.
  class Scenario
    # Without the rest of the peers there still is something to compare.
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

      # ---- what a scenario says of itself ----

      # With an argument each sets, without one each gives.
      def title(text = @title) = @title = text
      def about(text = @about) = @about = text

      # The side that the others are compared with.
      def reference(side = @reference || "C") = @reference = side

      # What is set besides Bench::SETTINGS.
      def settings(settings = @settings || {}) = @settings = settings

      # One side after the other and not side by side, where one disturbs the others even while it idles. Then #sides gives what
      # starts each, and not what is started.
      def apart(apart = @apart || false) = @apart = apart

      # At most so many rounds, where a round takes long and differs little.
      def rounds(most = @rounds || 1_000) = @rounds = most

      # @param better [Symbol] :more or :less
      def table(name, unit, better:) = @tables[name] = { unit:, better: }

      # What one side has to reach: at least so much of `to`, or of itself in another case.
      def bar(least, side: "Penstock", table: @tables.keys.first, **which)
        @bars << { table:, side:, least:, **(which.key?(:of_case) ? {} : { to: reference }), **which }
      end

      # The cases that bin/bench guard looks at.
      def guard(*cases) = @guarded.concat(cases)
    end

    # @return [Hash{String => String}] why a side is not there
    attr_reader :left_out
    # @return [Hash{String => String}] what each side is
    attr_reader :sides_about
    # @return [Hash{String => Array<String>}] in words, what a side does unlike the others
    attr_reader :differs

    # @param others [Array<String>] the peers that are wanted besides C and Penstock
    # @param embedded [Boolean] whether that is the embedded cluster, on which some clients cannot work
    def initialize(servers, others: [], embedded: false)
      @servers = servers
      @others = others
      @embedded = embedded
      @left_out = {}
      @sides_about = {}
      @differs = {}
    end

    # ---- what a subclass defines ----

    # @return [Hash{String => Object}] what is handed to #sides, by its name
    def cases = raise(NotImplementedError)

    # @return [Hash{String => Peer::Run}] by the names of the sides, ready
    def sides(_what) = raise(NotImplementedError)

    # @param round [Hash] what a side printed
    # @return [Hash{String => Numeric}] by table
    def figures(round) = { "rate" => round[:delivered] / round[:seconds] }

    private

    attr_reader :servers, :others

    def settings = { **SETTINGS, **self.class.settings }

    def topic = "bench-#{self.class.scenario_name}-#{Process.pid}"

    # Starts peers.
    # @param which [Array<String>, Hash{String => Array}] their names; or the sides' names, with the peer and more arguments of it
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
    def program(side, file, messages, *arguments)
      note(side, Program.start(file, messages, servers, topic, *arguments, *settings.map { |pair| pair.join("=") }))
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

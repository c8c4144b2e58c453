# frozen_string_literal: true

require "etc"
require_relative "result"
require_relative "scenario"

module Bench
  # Runs a scenario case by case. All sides run side by side, a round of each in turn.
  class Runner
    EMBEDDED = "embedded cluster"
    WARM_UP = { seconds: 0.5, rounds: 20 }.freeze # at most, but at least one round

    # @return [Integer] for each side
    attr_reader :rounds

    # @param cluster [String] the cluster's name, for the result
    # @param only [Array<String>, nil] the cases to run; nil: all
    def initialize(scenario, servers, cluster, rounds:, others:, only: nil)
      @kind = scenario
      @cluster = cluster
      @rounds = [rounds, scenario.rounds].min
      @only = only
      @scenario = scenario.new(servers, others:, embedded: cluster == EMBEDDED)
      @rows = scenario.tables.transform_values { {} }
    end

    # @return [Result]
    def run
      cases.each { |name, what| measure(name, what) }
      Bench.progress ""
      result
    end

    # What all scenarios of a run have in common.
    def self.environment
      cpu = File.exist?("/proc/cpuinfo") ? File.read("/proc/cpuinfo")[/^model name\s*: (.*)/, 1] : nil
      { ruby: RUBY_VERSION, platform: RUBY_PLATFORM, cores: Etc.nprocessors, cpu: }.compact
    end

    private

    def cases = @only ? @scenario.cases.slice(*@only) : @scenario.cases

    def measure(name, what)
      say(name, "starting")
      sides = @scenario.sides(what)
      return take_turns(name, sides) unless @kind.apart

      sides.each { |side, start| take_turns(name, { side => start.call }) }
    end

    def take_turns(name, sides)
      sides.each_value { |run| warm_up(run) }
      @rounds.times do |i|
        sides.each do |side, run|
          say(name, "round #{i + 1} of #{@rounds}, #{side}")
          @scenario.figures(run.round).each { |table, figure| ((@rows[table][name] ||= {})[side] ||= []) << figure }
        end
      end
    ensure
      sides.each_value(&:close)
    end

    # Warms up connections, metadata, caches, and heaps, which grow for some rounds.
    def warm_up(run)
      start = Bench.now
      WARM_UP[:rounds].times { run.round && Bench.now - start > WARM_UP[:seconds] && break }
    end

    def say(name, what) = Bench.progress("#{@kind.scenario_name}: #{name}: #{what}")

    def result
      Result.build(scenario: @kind.scenario_name, title: @kind.title, about: @kind.about, cluster: @cluster,
                   environment: Runner.environment, settings: { **@kind.common, **@kind.settings }, rounds: @rounds,
                   sides: @scenario.sides_about, reference: @kind.reference, left_out: @scenario.left_out,
                   differs: @scenario.differs, tables:, bars:)
    end

    def tables = @kind.tables.map { |name, table| { name:, **table, rows: @rows[name] } }

    # The bars whose cases were run. Bars apply to a real Kafka: the embedded cluster answers in microseconds, so that other costs
    # dominate.
    def bars
      return [] if @cluster == EMBEDDED

      @kind.bars.select { |bar| bar.values_at(:case, :of_case).compact.all? { |name| cases.key?(name) } }
    end
  end
end

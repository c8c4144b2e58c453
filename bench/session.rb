# frozen_string_literal: true

require "penstock"
require_relative "guard"
require_relative "runner"
require_relative "table"

module Bench
  # A run of bin/bench: a cluster, and scenarios on it one after the other.
  class Session
    GUARD_ROUNDS = 21
    SHORT_ROUNDS = 7
    # Another program on the machine lowers a ratio for a while. A slower Penstock lowers it in every attempt.
    GUARD_ATTEMPTS = 3

    # @param options [Hash] the options of bin/bench
    def initialize(options)
      @options = options
    end

    # @param scenarios [Array<Class>]
    def run(scenarios)
      with_cluster do |servers, cluster|
        scenarios.each do |scenario|
          only = @options[:only] && (scenario.new(servers).cases.keys & @options[:only])
          show(measure(scenario, servers, cluster, only:)) unless only == []
        end
      end
    end

    # Measures the cases that scenarios name for the guard, without other clients, and compares their ratios with the committed
    # ones. Ratios that have dropped are measured again, with more rounds.
    # @return [Boolean] whether none has dropped
    def guard
      rounds = @options[:short] ? SHORT_ROUNDS : GUARD_ROUNDS
      with_cluster do |servers, cluster|
        guarded = Scenario.all.reject { |_, scenario| scenario.guarded.empty? }
        results = guarded.transform_values { |scenario| guarded_result(scenario, servers, cluster, rounds) }
        next Guard.update(results.values) if @options[:update]

        again = ->(name, attempt) { guarded_result(guarded.fetch(name), servers, cluster, rounds * attempt) }
        compare_again(results, Guard.read, &again).ok?
      end
    end

    private

    def measure(scenario, servers, cluster, only: nil, rounds: @options[:rounds], others: @options[:others])
      Runner.new(scenario, servers, cluster, rounds:, others:, only:).run
    end

    # A result of only some cases is not stored: it would replace a complete one.
    def show(result)
      Table.show(result)
      puts "Figures and chart: #{result.write(File.join(@options[:results], result.cluster_kind))}" unless @options[:only]
      puts JSON.generate(result.to_h) if @options[:json]
      puts
    end

    def guarded_result(scenario, servers, cluster, rounds)
      measure(scenario, servers, cluster, only: scenario.guarded, rounds:, others: []).tap do |result|
        Table.show(result)
        puts
      end
    end

    # @yield [String, Integer] a scenario's name and the number of the attempt; measures it again
    # @return [Guard::Comparison] the last comparison
    def compare_again(results, committed)
      comparison = nil
      1.upto(GUARD_ATTEMPTS) do |attempt|
        comparison = Guard.compare(results.values, committed)
        puts comparison, ""
        names = comparison.drops.keys.map { |name| name[%r{: ([^/]+)}, 1] }.uniq
        break if names.empty? || attempt == GUARD_ATTEMPTS

        names.each { |name| results[name] = yield(name, attempt + 1) }
      end
      comparison
    end

    def with_cluster(&block)
      return yield(@options[:bootstrap], @options[:kafka] ? "Apache Kafka" : @options[:bootstrap]) if @options[:bootstrap]
      return with_kafka(&block) if @options[:kafka]

      Bench.with_embedded_cluster { |servers| yield servers, Runner::EMBEDDED }
    end

    # A cluster of this name that runs already is used and left running. A cluster that was started here is stopped.
    def with_kafka
      kafka = File.join(ROOT, "bin/kafka")
      running = system(kafka, "status", "--name", "bench", out: File::NULL, err: File::NULL)
      servers = IO.popen([kafka, "up", "--name", "bench"], &:read).lines.last&.chomp
      abort "bin/kafka could not start a broker" unless $?.success? && servers

      yield servers, "Apache Kafka #{File.read(kafka)[/^kafka_version=(.*)/, 1]}"
    ensure
      system(kafka, "down", "--name", "bench") unless running
    end
  end
end

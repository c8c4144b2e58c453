# frozen_string_literal: true

require "penstock"
require_relative "chart"
require_relative "guard"
require_relative "runner"
require_relative "table"

module Bench
  # A run of bin/bench: a cluster, and scenarios one after the other on it.
  class Session
    GUARD_ROUNDS = 15
    SHORT_ROUNDS = 5

    # @param options [Hash] bin/bench's
    def initialize(options)
      @options = options
    end

    # @param scenarios [Array<Class>]
    def run(scenarios)
      with_cluster do |servers, cluster|
        scenarios.each { |scenario| show(measure(scenario, servers, cluster, @options[:only])) if wanted?(scenario, servers) }
      end
    end

    # Measures the cases that scenarios name for it, without other clients, and compares their ratios with the committed ones.
    # @return [Boolean] whether none has dropped
    def guard
      options = @options.merge(rounds: @options[:short] ? SHORT_ROUNDS : GUARD_ROUNDS, others: [])
      results = Session.new(options).guarded_results
      return Guard.update(results) if @options[:update]

      puts(comparison = Guard.compare(results))
      comparison.passed?
    end

    def guarded_results
      with_cluster do |servers, cluster|
        Scenario.all.values.reject { |scenario| scenario.guarded.empty? }.map do |scenario|
          measure(scenario, servers, cluster, scenario.guarded).tap { |result| puts Table.text(result), "" }
        end
      end
    end

    private

    # With --case, whether the scenario has one of them.
    def wanted?(scenario, servers) = !@options[:only] || scenario.new(servers).cases.keys.intersect?(@options[:only])

    def measure(scenario, servers, cluster, only)
      Runner.new(scenario, servers, cluster, rounds: @options[:rounds], others: @options[:others], only:).run
    end

    # A result of some cases only is not kept: it would take the place of a whole one.
    def show(result)
      puts Table.text(result)
      unless @options[:only]
        files = Chart.write(result, result.write(File.join(@options[:results], result.cluster_kind)))
        puts "Figures and charts: #{files.join(" ")}"
      end
      puts JSON.generate(result.to_h) if @options[:json]
      puts
    end

    def with_cluster(&block)
      return yield(@options[:bootstrap], @options[:bootstrap]) if @options[:bootstrap]
      return with_kafka(&block) if @options[:kafka]

      Bench.with_embedded_cluster { |servers| yield servers, "embedded cluster" }
    end

    # One that runs already under this name is used and goes on; one that was started is stopped.
    def with_kafka
      kafka = File.join(ROOT, "bin/kafka")
      running = system(kafka, "status", "--name", "bench", out: File::NULL, err: File::NULL)
      servers = IO.popen([kafka, "up", "--name", "bench"], &:read).lines.last&.chomp
      abort "bin/kafka could not start a broker" unless $?.success? && servers

      yield servers, "Apache Kafka #{kafka_version(kafka)}"
    ensure
      system(kafka, "down", "--name", "bench") unless running
    end

    def kafka_version(kafka) = File.read(kafka)[/^kafka_version=(.*)/, 1]
  end
end

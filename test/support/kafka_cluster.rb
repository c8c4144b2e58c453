# frozen_string_literal: true

require "securerandom"
require_relative "limited"

# A separate real Kafka for a test that breaks it, run by bin/kafka beside the shared one.
class KafkaCluster
  KAFKA = File.expand_path("../../bin/kafka", __dir__)

  # bin/kafka failed. The message has its output.
  class Failed < StandardError; end

  # The cluster could not be started.
  class Unavailable < Failed; end

  # @return [String]
  attr_reader :servers

  # Yields the cluster when it answers. Afterwards stops its processes by their ids, in every case.
  # @param brokers [Integer] 1 or 3
  # @param settings [Hash{String => Object}] of every broker
  def self.with(brokers, settings = {})
    cluster = new
    cluster.up(brokers, settings)
    yield cluster
  rescue Unavailable
    cluster = nil # bin/kafka has left nothing running
    raise
  ensure
    cluster&.down
  end

  def initialize
    @name = "test-#{Process.pid}-#{SecureRandom.hex(3)}"
  end

  def up(brokers, settings = {})
    @servers = run("up", "--brokers", brokers.to_s, *settings.flat_map { |pair| ["--set", pair.join("=")] }).chomp
  rescue Failed => e
    raise Unavailable, e.message
  end

  def down = run("down")

  # Commands of bin/kafka for one broker, given its number.
  %w[kill stop start pause resume].each do |command|
    define_method(command) { |broker| run(command, broker.to_s) }
  end

  # Of three brokers: kills one, and starts it again 10 s later, and so on.
  # @return [Thread] to be killed when it is enough
  def kill_in_turn
    Thread.new do
      (1..3).cycle do |broker|
        sleep 10
        kill(broker)
        sleep 10
        start(broker)
      end
    end
  end

  private

  def run(*arguments)
    output, said, status = Limited.capture3(KAFKA, *arguments, "--name", @name)
    status.success? or raise Failed, "bin/kafka #{arguments.join(" ")}: #{said}"
    output
  end
end

# frozen_string_literal: true

require "securerandom"
require_relative "limited"

# A real Kafka of its own for a test that breaks it, run by bin/kafka beside the shared one.
class KafkaCluster
  KAFKA = File.expand_path("../../bin/kafka", __dir__)

  # bin/kafka did not do what it was asked for; the message has what it said.
  class Failed < StandardError; end

  # It could not be started in the first place.
  class Unavailable < Failed; end

  # @return [String]
  attr_reader :servers

  # Yields it when it answers, and stops it by the ids of its processes, whatever happens.
  # @param brokers [Integer] 1 or 3
  def self.with(brokers)
    cluster = new
    cluster.up(brokers)
    yield cluster
  rescue Unavailable
    cluster = nil # bin/kafka has left nothing
    raise
  ensure
    cluster&.down
  end

  def initialize
    @name = "test-#{Process.pid}-#{SecureRandom.hex(3)}"
  end

  def up(brokers)
    @servers = run("up", "--brokers", brokers.to_s).chomp
  rescue Failed => e
    raise Unavailable, e.message
  end

  def down = run("down")

  # What bin/kafka does to one broker, given its number.
  %w[kill stop start pause resume].each do |command|
    define_method(command) { |broker| run(command, broker.to_s) }
  end

  private

  def run(*arguments)
    output, said, status = Limited.capture3(KAFKA, *arguments, "--name", @name)
    status.success? or raise Failed, "bin/kafka #{arguments.join(" ")}: #{said}"
    output
  end
end

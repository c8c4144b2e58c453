# frozen_string_literal: true

require "minitest/autorun"
require "json"
require "timeout"
require "logger"
require "stringio"
require "penstock"
require_relative "support/gc_level"
require_relative "support/no_leftovers"
require_relative "support/subprocess"

# A warning from our own files is a failure: the suite runs with -w.
module WarningsAreFailures
  ROOT = File.expand_path("..", __dir__)

  def warn(message, ...)
    raise "warning: #{message}" if message.start_with?(ROOT)

    super
  end
end
Warning.extend(WarningsAreFailures)

# The base of all tests. By default they run on one embedded cluster for the whole suite, each with topics of its own.
class PenstockTest < Minitest::Test
  include NoLeftovers
  include Subprocess

  LONGEST = Integer(ENV.fetch("PENSTOCK_TEST_TIMEOUT", GCLevel.slow? ? "300" : "60")) # seconds for one test

  def self.cluster
    @@cluster ||= Penstock::EmbeddedCluster.new(brokers: 3) # rubocop:disable Style/ClassVars
  end

  def run
    Timeout.timeout(LONGEST) { super }
  rescue Timeout::Error => e
    failures << Minitest::UnexpectedError.new(e)
    Minitest::Result.from(self)
  end

  def setup
    super
    @producers = []
    @clusters = []
    GCLevel.start
  end

  def teardown
    GCLevel.stop
    @producers.each { |producer| producer.close(timeout: 5) }
    @clusters.each(&:close)
    @producers = @clusters = nil
    super
  end

  def cluster = PenstockTest.cluster

  # A cluster that this test may break.
  def own_cluster(**options)
    Penstock::EmbeddedCluster.new(**options).tap { |made| @clusters << made }
  end

  # @return [String] the name of a topic that nobody else uses, made with that many partitions
  def topic(partitions: 4, on: cluster)
    "test-#{name.to_s.delete_prefix("test_")[0, 150].gsub(/[^\w.-]/, "_")}-#{rand(2**32)}".tap do |topic|
      on.create_topic(topic, partitions:)
    end
  end

  # A producer on the embedded cluster, closed after the test. Further settings for librdkafka as keywords.
  def producer(servers: cluster.bootstrap_servers, **kafka)
    made = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": servers, **kafka }
      yield config if block_given?
    end
    made.tap { @producers << made }
  end

  # A producer whose brokers do not exist: the port is one that nobody listens to.
  def unreachable_producer(**kafka, &block)
    producer(servers: "127.0.0.1:1", log_level: 0, **kafka, &block)
  end

  def eventually(seconds = 5)
    deadline = now + seconds
    sleep 0.01 until (result = yield) || now > deadline
    assert result, "not true within #{seconds} s"
    result
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # @return [Float] seconds that the block took
  def seconds_of
    start = now
    yield
    now - start
  end
end

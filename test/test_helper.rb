# frozen_string_literal: true

require "minitest/autorun"
require "json"
require "timeout"
require "logger"
require "stringio"
require "penstock"
require_relative "support/error_format"
require_relative "support/gc_level"
require_relative "support/internal"
require_relative "support/no_leftovers"
require_relative "support/shared_cluster"
require_relative "support/marks"
require_relative "support/slowness"
require_relative "support/subprocess"

# A warning about the project's own files is a failure: the suite runs with -w.
module WarningsAreFailures
  ROOT = File.expand_path("..", __dir__)

  def warn(message, ...)
    raise "warning: #{message}" if message.start_with?(ROOT)

    super
  end
end
Warning.extend(WarningsAreFailures)

# Newer versions of Timeout have a thread that starts at the first use and stays. NoLeftovers would take it for a test's.
Timeout.timeout(1) { nil }

# A shell makes its background programs ignore Ctrl-C, and so would the programs that tests interrupt with Ctrl-C.
Signal.trap("INT", "DEFAULT")

# The base of all tests. They share one cluster for the whole suite, each with its own topics: see SharedCluster.
class PenstockTest < Minitest::Test
  extend Marks
  include NoLeftovers
  include Subprocess

  # For tests to which idempotence makes no difference: with librdkafka 2.14, an idempotent producer's first message waits half a
  # second. 2.14 requests its producer id, finds itself between two connections, and repeats the request then. 2.0.2 waits some
  # ms.
  QUICK = { "enable.idempotence": false }.freeze

  # Seconds for one test, or more if the machine is slow.
  LONGEST = Integer(ENV.fetch("PENSTOCK_TEST_TIMEOUT", GCLevel.slow? ? "300" : "120"))

  def run
    Slowness.within(self.class::LONGEST) { super }
  rescue Timeout::Error => e
    failures << Minitest::UnexpectedError.new(e)
    Minitest::Result.from(self)
  end

  def setup
    super
    @producers = []
    @clusters = []
    @clients = []
    GCLevel.start
  end

  def teardown
    GCLevel.stop
    @clients.each { |client| client.close(5_000) }
    @producers.each { |producer| producer.close(timeout: 5) }
    @clusters.each(&:close)
    @producers = @clusters = @clients = nil
    super
  end

  def cluster = SharedCluster.instance

  # For tests with many transactions, instead of the shared cluster. librdkafka's mock cluster draws producer ids at random from
  # 900,000 and does not check that they are new. If a transactional producer draws the id of another producer, the mock cluster
  # rejects its transaction with INVALID_PRODUCER_ID_MAPPING, and librdkafka 2.14 requests a new epoch until the deadline.
  # It happened once in CI: the fewer producers share a cluster, the rarer it is.
  module FreshCluster
    def cluster
      return super if SharedCluster.real?

      @cluster ||= own_cluster(brokers: 3)
    end

    def teardown
      super
      @cluster = nil
    end
  end

  # Runs the block in a signal trap.
  # @return [Object] the block's value; an error of the block is raised again
  def in_trap
    result = error = done = nil
    before = Signal.trap("USR2") do
      result = yield
    rescue Exception => e # rubocop:disable Lint/RescueException -- it is raised below
      error = e
    ensure
      done = true
    end
    Process.kill(:USR2, Process.pid)
    sleep 0.001 until done
    raise error if error

    result
  ensure
    Signal.trap("USR2", before || "DEFAULT")
  end

  # The cluster of all tests that are about the embedded cluster, or need its features without changing anything in it.
  def embedded_cluster = SharedCluster.embedded

  # A cluster that this test may break.
  def own_cluster(**options)
    Penstock::EmbeddedCluster.new(**options).tap { |made| @clusters << made }
  end

  # @return [String] the name of a new topic with that many partitions, which no other test uses
  def topic(partitions: 4, on: cluster)
    "test-#{name.to_s.delete_prefix("test_")[0, 150].gsub(/[^\w.-]/, "_")}-#{rand(2**32)}".tap do |topic|
      on.create_topic(topic, partitions:)
    end
  end

  # A producer on the shared cluster, closed after the test. Further settings for librdkafka as keywords.
  def producer(servers: cluster.bootstrap_servers, **kafka)
    made = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": servers, **kafka }
      yield config if block_given?
    end
    made.tap { @producers << made }
  end

  # A producer that sends nothing for a minute, even if a caller waits for delivery results.
  def holding_producer(**kafka)
    producer("linger.ms": 60_000, **kafka) do |config|
      config.flush_on_wait = false
      yield config if block_given?
    end
  end

  # A separate client with that producer's configuration, closed after the test.
  # @return [Internal::ProducerClient]
  def native_client(producer = self.producer)
    Internal.of(producer).build_client(producer.config.kafka).tap { |client| @clients << client }
  end

  # A producer whose brokers do not exist: no process listens on the port.
  def unreachable_producer(**kafka, &block)
    producer(servers: "127.0.0.1:1", log_level: 0, **kafka, &block)
  end

  # @param seconds [Numeric] a guard against hanging, which grows with the slowness of the machine
  def eventually(seconds = 20, message = nil)
    deadline = Slowness.deadline(seconds)
    sleep 0.01 until (result = yield) || deadline.passed?
    assert result, message || "not true within #{deadline}"
    result
  end

  # Asserts how long something took. On a slow machine the upper limit is larger, because the program waits for processors, too.
  # @param limits [Numeric, Range] seconds on a quiet machine
  def assert_took(limits, seconds, message = nil)
    limits = 0..limits unless limits.is_a?(Range)
    limits = limits.begin..(limits.end * Slowness.factor) if seconds > limits.end
    assert_includes limits, seconds, message
  end

  # A thread that reports nothing, from its first moment on.
  def quiet_thread(&block)
    before = Thread.report_on_exception
    Thread.report_on_exception = false
    Thread.new(&block)
  ensure
    Thread.report_on_exception = before
  end

  # For tests of Penstock::ConnectionPool, on a machine with Ruby and librdkafka alone.
  def needs_connection_pool
    require "connection_pool"
  rescue LoadError
    skip "needs the connection_pool gem"
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # @return [Float] seconds that the block took
  def seconds_of
    start = now
    yield
    now - start
  end
end

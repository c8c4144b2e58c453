# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../bench/peer"
require_relative "../support/reader"

# The programs that bin/bench compares, and the code that runs them: bench/peer.rb and bench/peers.
class BenchPeersTest < PenstockTest
  ADAPTERS = File.join(Bench::Peers::PROGRAMS, "adapter.rb")
  FAKE = File.expand_path("../support/fake_peer.rb", __dir__)

  def setup
    super
    @runs = []
  end

  def teardown
    @runs.each(&:close)
    super
  end

  def test_a_peer_gets_its_settings_and_returns_the_figures_of_each_round
    run = start(fake("is good"), "sync", producers: 5, messages: 2, key: true, set: { "linger.ms" => 5, log_level: 3 })
    given = "--bootstrap nowhere:1 --topic it --producers 5 --messages 2 --size 100 --key --set linger.ms=5 --set log_level=3"
    assert_equal "sync #{given}", run.ready[:ready]
    2.times { assert_equal({ seconds: 0.5, delivered: 10, failed: 0 }, run.round) }
  end

  def test_settings_specific_to_librdkafka_are_not_passed_to_other_clients
    peer = fake("is good", librdkafka: false)
    run = start(peer, set: { "linger.ms" => 5, "log_level" => 3, acks: "all", "socket.nagle.disable" => true })
    assert_equal "--set linger.ms=5 --set acks=all", run.ready[:ready][/--set.*/]
  end

  # ---- figures of a peer that fails do not count ----

  { "dies" => "did not start", "says rubbish" => "said", "is not ready" => "did not say that it is ready" }.each do |how, what|
    define_method("test_a_peer_that_#{how.tr(" ", "_")}_at_startup_is_an_error") { assert_fails(how, what) { start(fake(how)) } }
  end

  { "dies in a round" => "did not run a round", "is killed in a round" => "did not run a round",
    "loses one" => "did not send all 10 messages" }.each do |how, what|
    define_method("test_a_peer_that_#{how.tr(" ", "_")}_is_an_error") do
      run = start(fake(how))
      assert_fails(how, what) { run.round }
    end
  end

  def test_a_peer_that_is_too_slow_is_killed
    run = start(fake("is slow"))
    pid = run.pid
    assert_fails("is slow", "did not run a round within 0.2 s") { run.round(limit: 0.2) }
    assert_raises(Errno::ESRCH) { Process.kill(0, pid) }
  end

  def test_a_workload_that_a_peer_does_not_support_raises_its_own_error
    assert_raises(Bench::Peer::NoSuchWorkload) { start(fake("has no such workload"), "sync") }
  end

  def test_a_peer_that_is_not_installed_is_not_available
    before = ENV.fetch("XDG_CACHE_HOME", nil)
    Dir.mktmpdir do |cache|
      ENV["XDG_CACHE_HOME"] = cache
      refute_predicate Bench::Peers["JavaScript"], :available?
      FileUtils.mkdir_p(Bench::Peers.directory("javascript"))
      FileUtils.touch(File.join(Bench::Peers.directory("javascript"), "installed"))
      assert_predicate Bench::Peers["JavaScript"], :available?
    end
  ensure
    ENV["XDG_CACHE_HOME"] = before
  end

  ADAPTER = <<~RUBY.freeze
    $LOAD_PATH.unshift #{Subprocess::LIBRARY.inspect}
    require "penstock"

    class OwnAdapter < Bench::Adapter
      def make_producer(settings) = Penstock::Producer.new { |config| config.kafka = settings }
      def async(message) = producer.produce_async(message)
    end
  RUBY

  # The adapters for other gems run only where these gems are installed.
  slow def test_an_adapter_runs_every_workload_and_every_message_arrives
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, "own.rb"), ADAPTER)
      peer = Bench::Peer.new("own") { [RbConfig.ruby, ADAPTERS, File.join(directory, "own.rb"), ""] }
      %w[batch async sync].each do |workload|
        topic = topic()
        run = peer.start(workload, servers: cluster.bootstrap_servers, topic:, messages: 20, key: true, headers: true)
        @runs << run
        assert_equal workload == "sync" ? 20 : 0, run.round[:latencies_us].to_a.size
        assert_operator Reader.new(cluster.bootstrap_servers).read(topic, partitions: 0...4).size, :>=, 20
      end
    end
  end

  # ---- installed peers: C and Penstock are in the tree, bin/bench --setup-peers installs the others ----

  Bench::Peers.all.each do |peer|
    reason = peer.why_not(embedded: !SharedCluster.real?)
    next puts("bench_peers_test: without #{reason}") if reason

    peer.workloads.each do |workload|
      define_method("test_#{peer.name.tr("-", "_")}_runs_#{workload}_and_every_message_arrives") do
        topic = topic()
        run = peer.start(workload, servers: cluster.bootstrap_servers, topic:, messages: 20,
                                   set: { "linger.ms" => 1, "enable.idempotence" => true, "log_level" => 3 })
        @runs << run
        result = run.round
        run.close
        assert_operator result[:seconds], :>, 0
        assert_equal 20, result.fetch(:latencies_us).size if workload == "sync"
        next if peer.name == "Java" # its warm-up sends 200,000 messages, too many to read; it counts acknowledged messages itself

        assert_operator Reader.new(cluster.bootstrap_servers).read(topic, partitions: 0...4).size, :>, 20
      end
    end
  end

  private

  def fake(how, **options) = Bench::Peer.new("bad", **options) { [RbConfig.ruby, FAKE, how] }

  def start(peer, workload = "batch", messages: 10, **options)
    peer.start(workload, servers: "nowhere:1", topic: "it", messages:, **options).tap { |run| @runs << run }
  end

  def assert_fails(how, what, &block)
    error = assert_raises(Bench::Peer::Failed, &block)
    assert_includes error.message, "bad (batch) #{what}"
    assert_includes error.message, "here is why: #{how}"
  end
end

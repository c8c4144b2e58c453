# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../bench/peer"
require_relative "support/reader"

# The programs that bin/bench compares, and the code that runs them: bench/peer.rb and bench/peers.
class BenchPeersTest < PenstockTest
  FAKE = File.expand_path("support/fake_peer.rb", __dir__)
  STAND_INS = File.expand_path("support/ruby_clients", __dir__)
  ADAPTERS = File.join(Bench::ROOT, "bench/adapters")

  def setup
    super
    @runs = []
  end

  def teardown
    @runs.each(&:close)
    super
  end

  # --- the protocol

  def test_a_peer_gets_every_setting_of_the_protocol
    run = start(fake("is good"), "sync", producers: 2, messages: 7, size: 10, key: true, headers: true,
                                         set: { "linger.ms" => 5, log_level: 3 })

    assert_equal "sync --bootstrap nowhere:1 --topic it --producers 2 --messages 7 --size 10 --key --headers " \
                 "--set linger.ms=5 --set log_level=3", run.ready[:ready]
    assert_equal [], run.ready[:differs]
  end

  def test_settings_specific_to_librdkafka_are_not_passed_to_other_clients
    peer = fake("is good", librdkafka: false)
    run = start(peer, set: { "linger.ms" => 5, "log_level" => 3, acks: "all", "socket.nagle.disable" => true })

    assert_equal "--set linger.ms=5 --set acks=all", run.ready[:ready][/--set.*/]
  end

  def test_each_round_returns_its_figures
    run = start(fake("is good"), producers: 5, messages: 2)

    2.times { assert_equal({ seconds: 0.5, delivered: 10, failed: 0 }, run.round) }
  end

  def test_closing_again_does_nothing
    run = start(fake("is good"))

    2.times { assert_nil run.close }
  end

  # --- peers that fail

  { "dies" => "did not start: it ended with status 3", "says rubbish" => 'said "hello\n"', "says a number" => 'said "1\n"',
    "is not ready" => "did not say that it is ready" }.each do |how, what|
    define_method("test_a_peer_that_#{how.tr(" ", "_")}_at_startup_is_an_error_that_shows_its_stderr") do
      assert_fails(how, what) { start(fake(how)) }
    end
  end

  { "dies in a round" => "did not run a round: it ended with status 3",
    "is killed in a round" => "did not run a round: it ended with signal 9",
    "has closed its stdin" => "did not run a round: it ended with status 0",
    "loses one" => "did not send all 10 messages" }.each do |how, what|
    define_method("test_a_peer_that_#{how.tr(" ", "_")}_is_an_error_that_shows_its_stderr") do
      run = start(fake(how))

      assert_fails(how, what) { run.round }
      assert_nil run.close, "closing a failed peer"
    end
  end

  def test_a_peer_that_never_answers_is_an_error
    error = assert_raises(Bench::Peer::Failed) { start(fake("is silent"), limit: 0.2) }

    assert_includes error.message, "bad (batch) did not start within 0.2 s"
  end

  def test_a_peer_that_is_too_slow_is_killed
    run = start(fake("is slow"))
    pid = run.pid

    assert_fails("is slow", "did not run a round within 0.2 s") { run.round(limit: 0.2) }
    assert_raises(Errno::ESRCH) { Process.kill(0, pid) }
  end

  def test_a_peer_that_does_not_exit_is_killed
    run = start(fake("does not end"))
    pid = run.pid

    assert_fails("does not end", "did not end within 0.2 s") { run.close(limit: 0.2) }
    assert_raises(Errno::ESRCH) { Process.kill(0, pid) }
  end

  def test_a_peer_that_exits_with_an_error_status_is_an_error
    run = start(fake("ends badly"))

    assert_fails("ends badly", "ended with status 3") { run.close }
  end

  def test_a_workload_that_a_peer_does_not_support_raises_its_own_error
    error = assert_raises(Bench::Peer::NoSuchWorkload) { start(fake("has no such workload"), "sync") }

    assert_includes error.message, "bad (sync) has no such workload"
  end

  # --- the list of peers

  def test_all_known_peers_are_listed
    assert_equal %w[C Penstock confluent-kafka Java JavaScript waterdrop rdkafka karafka-rdkafka ruby-kafka],
                 Bench::Peers.all.map(&:name)
    assert_nil Bench::Peers["no such"]
  end

  def test_a_peer_that_is_not_installed_says_how_to_install_it
    Dir.mktmpdir do |cache|
      with_environment("XDG_CACHE_HOME" => cache) do
        assert_equal "confluent-kafka: not installed; bin/bench --setup-peers does that", Bench::Peers["confluent-kafka"].why_not
        refute_predicate Bench::Peers["JavaScript"], :available?

        FileUtils.mkdir_p(Bench::Peers.directory("javascript"))
        FileUtils.touch(File.join(Bench::Peers.directory("javascript"), "installed"))

        assert_predicate Bench::Peers["JavaScript"], :available?
        refute Bench::Peers["JavaScript"].available?(embedded: true)
        assert_match(/\AJavaScript: needs a real Kafka/, Bench::Peers["JavaScript"].why_not(embedded: true))
      end
    end
  end

  def test_a_gem_that_is_not_installed_is_named
    with_peers do
      peer = Bench::Peers.ruby_client("some client", adapter: "it.rb", gem: "penstock-no-such-gem")

      assert_equal "some client: gem penstock-no-such-gem is not installed", peer.why_not
    end
  end

  def test_a_plug_in_file_adds_a_client_of_an_installed_gem
    with_peers do
      with_files("plugin.rb" => 'Bench::Peers.ruby_client "minitest", adapter: "own.rb"',
                 "own.rb" => PENSTOCK_ADAPTER) do |directory|
        Bench::Peers.plugin(File.join(directory, "plugin.rb"))
        peer = Bench::Peers["minitest"]

        assert_predicate peer, :available?
        assert_equal "minitest #{Gem.loaded_specs["minitest"].version}, Ruby #{RUBY_VERSION}", on_cluster(peer).ready[:ready]
      end
    end
  end

  def test_setup_reports_what_cannot_be_installed_and_why
    with_files({}) do |directory|
      tools = File.join(directory, "tools")
      FileUtils.mkdir_p(tools)
      %w[bash cat dirname grep mkdir rm tail].each { |tool| FileUtils.ln_s(`which #{tool}`.chomp, tools) }
      output, status = Open3.capture2e({ "PATH" => tools, "XDG_CACHE_HOME" => directory }, Bench::Peers::SETUP,
                                       "confluent-kafka", "javascript")

      assert_predicate status, :success?, output
      assert_match(/^==> confluent-kafka: could not be installed, and is left out: there is no python3 /, output)
      assert_match(/^==> javascript: could not be installed, and is left out: there is no node with npm /, output)
      with_environment("XDG_CACHE_HOME" => directory) { refute_predicate Bench::Peers["confluent-kafka"], :available? }
    end
  end

  def test_setup_rejects_an_unknown_client
    output, status = Open3.capture2e(Bench::Peers::SETUP, "unknown")

    refute_predicate status, :success?
    assert_match(/no client unknown/, output)
  end

  # --- adapters for Ruby clients

  PENSTOCK_ADAPTER = <<~RUBY.freeze
    $LOAD_PATH.unshift #{Subprocess::LIBRARY.inspect}
    require "penstock"

    class OwnAdapter < Bench::Adapter
      def make_producer(settings)
        puts "this line is ignored"
        Penstock::Producer.new { |config| config.kafka = settings }
      end

      def differs = ["it prints"]
      def async(message) = producer.produce_async(message)
    end
  RUBY

  HEADERS = [["trace", "t" * 32], %w[kind bench]].freeze

  %w[batch async sync].each do |workload|
    define_method("test_an_adapter_runs_#{workload}_and_every_message_arrives") do
      with_adapter(PENSTOCK_ADAPTER) do |peer|
        topic = topic()
        run = on_cluster(peer, workload, topic:, producers: workload == "batch" ? 3 : 1, key: true, headers: true, size: 7)
        results = Array.new(2) { run.round }
        run.close

        assert_equal ["it prints"], run.ready[:differs]
        assert_equal workload == "sync" ? [20, 20] : [0, 0], results.map { |result| result[:latencies_us].to_a.size }
        records = Reader.new(cluster.bootstrap_servers).read(topic, partitions: 0...4)

        assert_equal [["x" * 7, HEADERS]], records.map { |it| [it.payload, it.headers] }.uniq
        producers = workload == "batch" ? 3 : 1
        expected = (0...20).to_h { |number| [number.to_s, 2 * producers] }.merge("0" => 3 * producers) # one each at startup

        assert_equal expected, records.map(&:key).tally
      end
    end
  end

  def test_an_adapter_whose_message_fails_raises_with_the_reason
    failing = PENSTOCK_ADAPTER.sub("def async(message)", "def wait(*) = raise('lost it')\n  \\0")
    with_adapter(failing) do |peer|
      error = assert_raises(Bench::Peer::Failed) { on_cluster(peer) }

      assert_includes error.message, "lost it (RuntimeError)"
    end
  end

  def test_an_adapter_file_without_an_adapter_is_an_error
    with_adapter("") do |peer|
      error = assert_raises(Bench::Peer::Failed) { on_cluster(peer) }

      assert_match(/own.rb has no subclass of Bench::Adapter/, error.message)
    end
  end

  def test_an_adapter_without_async_does_not_support_the_async_workload
    with_adapter(PENSTOCK_ADAPTER.sub("def async", "def later")) do |peer|
      assert_raises(Bench::Peer::NoSuchWorkload) { on_cluster(peer, "async") }
      assert_raises(Bench::Peer::NoSuchWorkload) { on_cluster(peer, "something else") }
    end
  end

  WORKLOADS = { "waterdrop" => %w[batch async sync], "rdkafka" => %w[batch async sync], "ruby_kafka" => %w[batch sync] }.freeze
  WORKLOADS.each do |name, workloads|
    workloads.each do |workload|
      define_method("test_the_#{name}_adapter_runs_#{workload}_with_a_stand_in_for_its_gem") do
        set = { "enable.idempotence" => true, "retries" => 5 }
        run = on_cluster(on_stand_in(name), workload, key: true, headers: true, set:)

        assert_operator run.ready[:ready], :start_with?, name
        assert_operator run.round[:seconds], :>, 0
      end
    end
  end

  def test_the_ruby_kafka_adapter_names_unsupported_settings
    run = on_cluster(on_stand_in("ruby_kafka"), set: { "linger.ms" => 5, "acks" => "all" })

    assert_equal ["linger.ms is unknown to it"], run.ready[:differs]
  end

  # --- installed peers: C and Penstock are in the tree, bin/bench --setup-peers installs the others

  Bench::Peers.all.each do |peer|
    reason = peer.why_not(embedded: !SharedCluster.real?)
    next puts("bench_peers_test: without #{reason}") if reason

    peer.workloads.each do |workload|
      define_method("test_#{peer.name.tr("-", "_")}_runs_#{workload}_and_every_message_arrives") do
        topic = topic()
        run = on_cluster(peer, workload, topic:, set: { "linger.ms" => 1, "enable.idempotence" => true, "log_level" => 3 })
        result = run.round
        run.close

        assert_operator result[:seconds], :>, 0
        assert_equal 20, result.fetch(:latencies_us).size if workload == "sync"
        next if peer.name == "Java" # its warm-up sends 200,000 messages, too many to read; it counts acknowledged messages itself

        assert_operator Reader.new(cluster.bootstrap_servers).read(topic, partitions: 0...4).size, :>, 20
      end
    end

    define_method("test_#{peer.name.tr("-", "_")}_rejects_an_unknown_workload") do
      assert_raises(Bench::Peer::NoSuchWorkload) { on_cluster(peer, "something else") }
    end
  end

  private

  def fake(how, **options) = Bench::Peer.new("bad", **options) { [RbConfig.ruby, FAKE, how] }

  def start(peer, workload = "batch", messages: 10, **options)
    peer.start(workload, servers: "nowhere:1", topic: "it", messages:, **options).tap { |run| @runs << run }
  end

  def on_cluster(peer, workload = "batch", topic: self.topic, messages: 20, **options)
    peer.start(workload, servers: cluster.bootstrap_servers, topic:, messages:, **options).tap { |run| @runs << run }
  end

  # Runs the adapter with a stand-in for its gem.
  def on_stand_in(name)
    Bench::Peer.new(name) do
      [RbConfig.ruby, "-w", "-I", STAND_INS, "-I", Subprocess::LIBRARY, File.join(Bench::Peers::PROGRAMS, "adapter.rb"),
       File.join(ADAPTERS, "#{name}.rb"), ""]
    end
  end

  def assert_fails(how, what, &block)
    error = assert_raises(Bench::Peer::Failed, &block)

    assert_includes error.message, "bad (batch) #{what}"
    assert_operator error.message, :end_with?, "\nhere is why: #{how}"
  end

  def with_adapter(text)
    with_peers do
      with_files("own.rb" => text) do |directory|
        yield Bench::Peers.ruby_client("own", adapter: File.join(directory, "own.rb"), gem: nil)
      end
    end
  end

  def with_files(files)
    Dir.mktmpdir do |directory|
      files.each { |name, text| File.write(File.join(directory, name), text) }
      yield directory
    end
  end

  # Removes peers that the block adds.
  def with_peers
    peers = Bench::Peers.instance_variable_get(:@peers)
    before = peers.dup
    yield
  ensure
    peers.replace(before)
  end

  def with_environment(variables)
    before = ENV.to_h
    ENV.update(variables)
    yield
  ensure
    ENV.replace(before)
  end
end

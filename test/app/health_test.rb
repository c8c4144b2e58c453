# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/app_test_case"
require "net/http"
require "penstock/cli"
require "tmpdir"

# How a running application is, for operators and probes.
class AppHealthTest < AppTestCase
  # A test makes its commits fail.
  def cluster = embedded_cluster

  def setup
    super
    @directory = Dir.mktmpdir
    @gate = Thread::Queue.new # work ends when something is in it
  end

  def teardown
    8.times { @gate << true }
    super
    FileUtils.rm_rf(@directory)
  end

  def events(server_app, name) = Thread::Queue.new.tap { |queue| server_app.monitor.subscribe(name) { |event| queue << event } }

  # @return [Hash] the payload of the next event with this reason; an application that has just started is in no group
  def stall(queue, reason)
    payload = queue.pop.payload
    payload[:reason] == reason ? payload : stall(queue, reason)
  end

  # An application whose work lasts until the test lets it end.
  def blocked(name, probe: nil, threads: 1, stall_after: 300)
    app = app(name, configure: lambda { |one|
      one.probe = probe
      one.threads = threads
      one.stall_after = stall_after
    }) do |record|
      @seen << record.offset
      @gate.pop
    end
    yield app if block_given?
    app.start.tap { |server| @servers << server }
  end

  # @return [Array(Integer, String)] status and output
  def ask(*arguments)
    out = StringIO.new
    [Penstock::CLI.start(["probe", *arguments], out:, err: out), out.string]
  end

  def get(port, path) = Net::HTTP.start("127.0.0.1", port) { |http| http.get(path) }

  # ---- health ----

  slow def test_health_from_start_to_end
    server = start(topic(partitions: 1)) { nil }
    assert_equal [true, false, false], server.health.then { |health| [health.live?, health.ready?, health.started?] }
    eventually { server.health.ready? }
    assert_predicate server.health, :started?
    assert_equal "running, live, ready", server.health.to_s
    expected = { "class" => "Penstock::Health", "state" => "running", "live" => true, "ready" => true, "started" => true,
                 "stalls" => [] }
    assert_equal expected, JSON.parse(JSON.generate(server.health.as_json))
    assert_predicate server.health, :frozen?
    server.stop
    assert_equal [:ended, false, false, true],
                 server.health.then { |health| [health.state, health.live?, health.ready?, health.started?] }
  end

  # behaviour: app.quieting, app.quiet, app.stalled
  def test_work_that_takes_too_long_is_reported_once_and_ends_liveness_only_if_no_worker_is_left
    name = topic(partitions: 2)
    stalled = nil
    server = blocked(name, threads: 2, stall_after: 0.5) { |app| stalled = events(app, "app.stalled") }
    produce(name, %w[a])
    assert_equal [0], seen(1)
    payload = stall(stalled, :work)
    assert_equal [@group, name, 0, 0], payload.values_at(:group, :topic, :partition, :offset)
    assert_operator payload[:seconds], :>=, 0.5
    assert_equal [true, true, 1], server.health.then { |health| [health.live?, health.ready?, health.stalls.size] }
    assert_match(%r{\Awork of #{@group} #{name}/0/0 for \d+\.\d s\z}, server.health.stalls.first.to_s)
    produce(name, %w[b], partition: 1)
    assert_equal 1, stall(stalled, :work)[:partition]
    eventually { !server.health.live? }
    assert_empty stalled
    2.times { @gate << true }
    eventually { server.health.live? && server.health.stalls.empty? }
  end

  def test_a_group_that_cannot_be_joined_is_stalled
    app = app(topic(partitions: 1), configure: lambda { |one|
      one.kafka = { "bootstrap.servers": "127.0.0.1:1" }
      one.stall_after = 0.5
    }) { nil }
    stalled = events(app, "app.stalled")
    @servers << server = app.start
    assert_equal @group, stall(stalled, :group)[:group]
    assert_equal [true, false, false], server.health.then { |health| [health.live?, health.ready?, health.started?] }
  end

  def test_commits_that_fail_are_stalled
    name = topic(partitions: 1)
    app = app(name, configure: ->(one) { one.stall_after = 1 }) { |record| @seen << record.offset }
    stalled = events(app, "app.stalled")
    @servers << server = app.start
    eventually { server.health.ready? }
    cluster.inject_errors(:offset_commit, [:coordinator_load_in_progress] * 500)
    produce(name, %w[a])
    assert_equal [0], seen(1)
    assert_equal [@group, name, 0, 1], stall(stalled, :commit).values_at(:group, :topic, :partition, :offset)
    cluster.clear_errors(:offset_commit)
    eventually { server.health.stalls.empty? }
    assert_equal 1, committed_offset(name)
  ensure
    cluster.clear_errors(:offset_commit)
  end

  def test_a_partition_from_which_nothing_comes_is_stalled
    name = topic(partitions: 1)
    app = app(name, configure: ->(one) { one.stall_after = 1 }) { |record| @seen << record.offset }
    stalled = events(app, "app.stalled")
    @servers << server = app.start
    produce(name, %w[a])
    assert_equal [0], seen(1)
    cluster.inject_errors(:fetch, [:not_leader_for_partition] * 10_000)
    produce(name, %w[b])
    assert_equal [@group, name, 0, 1], stall(stalled, :fetch).values_at(:group, :topic, :partition, :offset)
    cluster.clear_errors(:fetch)
    assert_equal [1], seen(1)
    eventually { server.health.stalls.empty? }
  ensure
    cluster.clear_errors(:fetch)
  end

  # The leader has messages of one of them, which waits.
  def test_idle_and_paused_partitions_are_not_stalled
    name = topic(partitions: 3)
    pausing = processor { define_method(:process) { |_| partition == 1 ? pause(3_600) : nil } }
    app = app(name, pausing, configure: ->(one) { one.stall_after = 0.5 })
    stalled = events(app, "app.stalled")
    looks = events(app, "app.metrics")
    @servers << server = app.start
    eventually { server.health.ready? }
    produce(name, %w[a b])
    produce(name, %w[c d], partition: 1)
    looks.clear
    6.times { looks.pop } # one a second
    assert_empty Array.new(stalled.size) { stalled.pop[:reason] } - [:group]
  end

  def test_the_loop_that_hangs_is_an_event
    name = topic(partitions: 1)
    app = app(name) { nil }
    stalled = events(app, "app.stalled")
    app.monitor.subscribe("messages.polled") { @gate.pop } # the one event that is published by the loop
    @servers << server = app.start
    produce(name, %w[a])
    eventually { @gate.num_waiting.positive? }
    watch = server.instance_variable_get(:@loop).watch
    watch.instance_variable_set(:@clock, -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) + 40 })
    assert_operator stall(stalled, :loop)[:seconds], :>, 30
    refute_predicate server.health, :live?
    @gate << true
    eventually { server.health.live? }
  end

  # Also if it is a listener of the program that never returns.
  def test_the_loop_itself_hangs
    app = app(topic(partitions: 1)) { nil }
    @servers << server = app.start
    loop_ = server.instance_variable_get(:@loop)
    watch = loop_.instance_variable_get(:@watch)
    now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    watch.instance_variable_set(:@clock, -> { now + 40 })
    health = Penstock::App.const_get(:Watch).instance_method(:health).bind_call(watch)
    assert_equal [false, [:loop]], [health.live?, health.stalls.map(&:reason)]
  end

  # ---- quiet ----

  # behaviour: app.quiet, app.stalled
  thorough def test_a_quiet_application_takes_nothing_more_and_stays_in_its_group
    name = topic(partitions: 1)
    quieting = quiet = nil
    server = blocked(name) do |app|
      quieting = events(app, "app.quieting")
      quiet = events(app, "app.quiet")
    end
    produce(name, %w[a b])
    assert_equal [0], seen(1)
    2.times { server.quiet }
    quieting.pop
    assert_empty quiet # work goes on
    @gate << true
    quiet.pop
    eventually { committed_offset(name) == 1 }
    assert_equal [:quiet, true, false, true],
                 server.health.then { |health| [health.state, health.live?, health.ready?, server.running?] }
    produce(name, %w[c])
    assert_empty @seen
    assert_predicate server.stop, :complete?
    assert_equal [0, 0, 0], [@seen, quiet, quieting].map(&:size)
    assert_equal 1, committed_offset(name)
  end

  # ---- probes ----

  thorough def test_a_probe_over_http
    server = blocked(topic(partitions: 1), probe: "http://127.0.0.1:0")
    port = server.probe_port
    eventually { get(port, "/ready").code == "200" }
    answer = get(port, "/live?verbose=1")
    assert_equal ["200", true, "application/json"], [answer.code, JSON.parse(answer.body)["live"], answer["Content-Type"]]
    assert_equal "200", get(port, "/started").code
    assert_equal "404", get(port, "/").code
    metrics = get(port, "/metrics")
    assert_equal "text/plain; version=0.0.4", metrics["Content-Type"]
    assert_includes metrics.body.lines(chomp: true), "# TYPE penstock_app_processed_total counter"
    assert_equal [0, true], ask("http://127.0.0.1:#{port}").then { |status, out| [status, JSON.parse(out)["live"]] }
    server.quiet
    eventually { get(port, "/ready").code == "503" }
    assert_equal 1, ask("http://127.0.0.1:#{port}", "ready").first
    assert_equal [0, ""], ask("http://localhost:#{port}/", "live").then { |status, out| [status, status.zero? ? "" : out] }
    server.stop
    ask("http://127.0.0.1:#{port}").then do |status, out|
      assert_equal 1, status
      assert_match(/\Ano answer: Connection refused/, out)
    end
  end

  # Prometheus' format has no other character to be written differently.
  def test_names_in_metrics_are_quoted
    row = Penstock::AppMetrics.new("a\"b\\c", "t", 1, 2, 3, 4, 5, 6, 7, 8, 9, 1.5).freeze
    lines = Penstock::App.const_get(:Metrics).to_prometheus([row]).lines(chomp: true)
    assert_includes lines, 'penstock_app_in_work{group="a\"b\\\\c",topic="t"} 2'
    assert_includes lines, 'penstock_app_seconds_total{group="a\"b\\\\c",topic="t"} 1.5'
    assert(lines.all? { |line| line.start_with?("# ") || line.include?('{group="a\"b\\\\c"') })
  end

  thorough def test_metrics_of_an_application
    name = topic(partitions: 1)
    server = start(name) { |record| @seen << record.payload }
    produce(name, %w[a b])
    seen(2)
    eventually { server.metrics.first&.processed == 2 }
    assert_equal [@group, name, 1, 0, 0, 0], server.metrics.first.to_a.first(6)
  end

  # A program that says nothing, or too much, keeps the probe from others for a second at most.
  thorough def test_a_probe_with_hostile_clients
    server = blocked(topic(partitions: 1), probe: "http://127.0.0.1:0")
    port = server.probe_port
    silent = Array.new(2) { TCPSocket.new("127.0.0.1", port) }
    ["", "\0\xFF\r\n\r\n", "GET /live\r\n\r\n", "POST /live HTTP/1.1\r\n\r\n", "GET #{"/" * 9_000} HTTP/1.1\r\n\r\n",
     "x" * 20_000].each do |bytes|
      socket = TCPSocket.new("127.0.0.1", port)
      socket.write(bytes)
      socket.close_write
      refute_match(/ 200 /, socket.read.to_s)
    rescue SystemCallError
      next # it was cut off
    ensure
      socket&.close
    end
    assert_equal "200", get(port, "/live").code
  ensure
    silent&.each(&:close)
  end

  thorough def test_a_probe_on_a_socket
    path = File.join(@directory, "probe.sock")
    UNIXServer.new(path).close # of a process that was killed
    server = blocked(topic(partitions: 1), probe: "unix:#{path}")
    eventually { ask("unix:#{path}", "ready").first.zero? }
    assert_raises(Penstock::ConfigurationInvalidError) { blocked(topic(partitions: 1), probe: "unix:#{path}") }
    assert_equal 0, ask("unix:#{path}").first
    server.stop
    refute_path_exists path
    assert_equal 1, ask("unix:#{path}").first
  end

  thorough def test_a_probe_in_a_file
    path = File.join(@directory, "probe.json")
    server = blocked(topic(partitions: 1), probe: "file:#{path}")
    eventually { File.exist?(path) && ask("file:#{path}", "ready").first.zero? }
    File.utime(Time.now - 60, Time.now - 60, path)
    eventually { ask("file:#{path}", "live").first.zero? } # it is written again
    server.stop
    assert_empty Dir.children(@directory)
    File.write(path, JSON.generate(live: true))
    File.utime(Time.now - 60, Time.now - 60, path)
    assert_equal [1, "no answer: the file is old\n"], ask("file:#{path}")
    File.write(path, "[")
    assert_equal [1, "no answer: what came is not of a probe\n"], ask("file:#{path}")
  end

  def test_a_place_that_is_taken_raises_at_the_start_and_nothing_runs
    taken = TCPServer.new("127.0.0.1", 0)
    before = Thread.list.map(&:name)
    { "http://127.0.0.1:#{taken.local_address.ip_port}" => "Address already in use",
      "unix:#{@directory}/none/a" => "No such file or directory",
      "file:#{@directory}/none/a" => "No such file or directory" }.each do |probe, reason|
      error = assert_raises(Penstock::ConfigurationInvalidError, probe) { blocked(topic(partitions: 1), probe:) }
      assert_includes error.message, "app.probe cannot be opened: #{reason}"
    end
    assert_empty Thread.list.map(&:name) - before - ["penstock.poller"]
  ensure
    taken.close
  end

  def test_invalid_settings
    ["http://", "http://a", "http://a:70000", "ftp://a:1", "file:", "", 5, "http://a:1/live"].each do |probe|
      error = assert_raises(Penstock::ConfigurationInvalidError) { app("t", configure: ->(one) { one.probe = probe }) { nil } }
      assert_match(/app\.probe must be/, error.message)
    end
    [0, -1, nil, "5", 100_000].each do |seconds|
      configure = ->(one) { one.stall_after = seconds }
      error = assert_raises(Penstock::ConfigurationInvalidError) { app("t", configure:) { nil } }
      assert_match(/app\.stall_after must be/, error.message)
    end
  end

  def test_wrong_usage_of_the_command
    assert_equal 2, ask.first
    assert_equal 2, ask("ftp://a").first
    assert_equal 2, ask("unix:/a", "alive").first
    assert_equal 2, ask("unix:/a", "live", "ready").first
    assert_equal 0, ask("--help").first
  end

  # It must not load what takes long.
  def test_the_command_loads_neither_the_native_part_nor_the_application
    program = "require 'penstock/cli'; Penstock::CLI.start(%w[probe unix:/none]); " \
              "puts $LOADED_FEATURES.grep(%r{/penstock/}).map { |path| path[%r{penstock/[^/.]+}] }.uniq"
    output = IO.popen([RbConfig.ruby, "-I#{File.expand_path("../../lib", __dir__)}", "-e", program], &:read)
    assert_equal ["no answer: No such file or directory - connect(2) for /none", "penstock/cli", "penstock/version"],
                 output.lines(chomp: true).sort
  end
end

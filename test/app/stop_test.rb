# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/app_test_case"
require_relative "../support/broker_gate"

# Stopping ends in its time with the right report, whatever hangs, and wherever it is called.
class AppStopTest < AppTestCase
  slow(/./)

  # How much longer than its timeout `stop` may take.
  MORE = 2
  TIME = 1

  # @return [Penstock::StopReport]
  def stop_in_time(server)
    report = nil
    took = seconds_of { report = server.stop(timeout: TIME) }
    assert_took(TIME + MORE, took)
    report
  end

  # ---- what hangs ----

  def test_it_names_each_piece_of_work_that_hangs
    name = topic(partitions: 20)
    gate = Thread::Queue.new
    configure = ->(app) { app.threads = 20 }
    20.times { |partition| produce(name, 0...5, partition:) }
    done = Thread::Queue.new
    server = start(name, configure:) do |record|
      gate.pop if record.partition < 3 && record.offset == record.partition
      done << [record.partition, record.offset]
    end
    finished = []
    eventually(20, -> { "#{gate.num_waiting} hang, finished: #{finished.sort}, #{server.metrics}" }) do
      finished.concat(Array.new(done.size) { done.pop })
      gate.num_waiting == 3 && finished.uniq.size == (17 * 5) + 0 + 1 + 2
    end
    report = stop_in_time(server)
    assert_equal [3, [[name, 0, 0], [name, 1, 1], [name, 2, 2]]],
                 [report.status, report.blockers.map { |one| [one.topic, one.partition, one.offset] }.sort]
    gate.close
  end

  %i[assigned stopping revoked tick].each do |hook|
    define_method("test_the_hook_#{hook}_hangs") do
      name = topic(partitions: 1)
      gate = Thread::Queue.new
      seen = @seen
      server = start(name, processor do
        define_method(:process) { |_| seen << true }
        define_method(hook) { gate.pop }
      end, tick: 0.1)
      produce(name, ["a"])
      hook == :assigned ? eventually { gate.num_waiting == 1 } : seen(1)
      eventually { gate.num_waiting == 1 } if hook == :tick
      report = stop_in_time(server)
      assert_equal [3, [[name, 0, nil]]], [report.status, report.blockers.map { |one| [one.topic, one.partition, one.offset] }]
      gate.close
    end
  end

  # It can neither commit nor leave its group.
  def test_the_brokers_are_away
    own = own_cluster
    own.create_topic("orders", partitions: 1)
    define_singleton_method(:cluster) { own }
    server = start("orders") { |record| @seen << record }
    produce("orders", ["a"])
    seen(1)
    own.broker_down(1)
    report = stop_in_time(server)
    assert_includes [0, 3], report.status
    assert_equal [@group], report.groups if report.status == 3
    own.broker_up(1)
    assert_nil own.create_topic("later", partitions: 1)
  end

  # A delivery that nobody answers: the work that has sent it hangs.
  def test_a_delivery_hangs
    name = topic(partitions: 1)
    waiting = Thread::Queue.new
    sending = Object.new
    sending.define_singleton_method(:produce_async) do |_message|
      Object.new.tap { |handle| handle.define_singleton_method(:wait) { waiting.pop } }
    end
    produce(name, ["a"])
    server = start(name, processor { define_method(:process) { |_| produce({ topic: "t", payload: "x" }) } },
                   configure: ->(app) { app.producer = sending })
    eventually { waiting.num_waiting == 1 }
    report = stop_in_time(server)
    assert_equal [3, [[name, 0, 0]]], [report.status, report.blockers.map { |one| [one.topic, one.partition, one.offset] }]
    waiting.close
  end

  # Nobody answers a commit, nor the next ones.
  def test_a_commit_hangs
    own = own_cluster
    own.create_topic("orders", partitions: 1)
    gate = BrokerGate.new(own.bootstrap_servers)
    define_singleton_method(:cluster) { gate }
    commits = Array.new(20) { gate.hold(:offset_commit) }
    server = start("orders") { |record| @seen << record.offset }
    produce("orders", ["a"])
    assert_equal [0], seen(1)
    commits.first.await_request
    report = stop_in_time(server)
    assert_equal [3, [], [@group]], [report.status, report.blockers, report.groups]
  ensure
    gate&.close
  end

  # Other members join as this one stops, as in a deployment. A moment later brokers accept the commit.
  def test_the_last_commit_is_refused_while_a_rebalance_ends
    own = own_cluster
    own.create_topic("orders", partitions: 1)
    define_singleton_method(:cluster) { own }
    refused = Thread::Queue.new
    server = start("orders", configure: lambda { |app|
      app.commit_interval = 600
      app.monitor.subscribe("offsets.commit_failed") { |event| refused << event[:error].code }
    }) { |record| @seen << record.offset }
    produce("orders", %w[a b])
    assert_equal [0, 1], seen(2)
    eventually { server.metrics.sum(&:in_work).zero? }
    own.inject_errors(:offset_commit, :rebalance_in_progress, :rebalance_in_progress)
    assert_predicate stop_in_time(server), :complete?
    assert_equal [[:rebalance_in_progress] * 2, 2], [Array.new(refused.size) { refused.pop }, committed_offset("orders")]
  end

  # Work holds a revocation back when the application stops.
  def test_a_rebalance_hangs
    name = topic(partitions: 2)
    2.times { |partition| produce(name, ["a"], partition:) }
    gate = Thread::Queue.new
    held = Thread::Queue.new
    first = start(name, configure: ->(app) { app.monitor.subscribe("rebalance.held_back") { held << true } }) { gate.pop }
    eventually { gate.num_waiting == 2 }
    start(name) { nil }
    eventually { !held.empty? }
    assert_equal [3, [name, name]], stop_in_time(first).then { |report| [report.status, report.blockers.map(&:topic)] }
    gate.close
  end

  # ---- where it is called ----

  def test_idle_applications_stop_at_once
    name = topic(partitions: 1)
    produce(name, ["a"])
    server = start(name) { |record| @seen << record }
    seen(1)
    eventually { server.health.ready? }
    assert_took(0.3, seconds_of { assert_predicate server.stop, :complete? })
  end

  def test_work_of_twenty_workers_ends_first
    name = topic(partitions: 20)
    20.times { |partition| produce(name, ["a"], partition:) }
    started = Thread::Queue.new
    server = start(name, configure: ->(app) { app.threads = 20 }) { started << true && sleep(1) && @seen << true }
    eventually { started.size == 20 }
    assert_took(1.5, seconds_of { assert_predicate server.stop, :complete? })
    assert_equal 20, @seen.size
  end

  def test_several_threads_stop_it
    server = start(topic) { nil }
    reports = Array.new(5) { quiet_thread { server.stop } }.map(&:value)
    assert_equal [true], reports.map(&:complete?).uniq
    assert_equal 1, reports.uniq(&:object_id).size
  end

  { "a trap" => 'trap("USR1") { server.stop_later }; Process.kill("USR1", Process.pid)',
    "a trap, and blocks" => 'trap("USR1") { server.stop }; Process.kill("USR1", Process.pid)',
    "at_exit" => "at_exit { puts server.stop }; exit",
    "before it has joined" => "puts server.stop.complete?" }.each do |where, code|
    define_method("test_it_is_called_in_#{where.gsub(/\W+/, "_")}") do
      program = <<~RUBY
        require "penstock/app"
        app = Penstock.app do |app|
          app.kafka = { "bootstrap.servers": ARGV[0] }
          app.group("stop-\#{Process.pid}") { |group| group.topic(ARGV[1], to: ->(_) {}) }
        end
        server = app.start
        #{code}
        puts server.wait
      RUBY
      output, errors, status = ruby(program, cluster.bootstrap_servers, topic)
      assert_equal [0, "everything is finished"], [status.exitstatus, output.lines.last&.chomp], errors
    end
  end

  # ---- many times ----

  # PENSTOCK_STARTS=1000 is the long form.
  def test_many_groups_start_and_stop_at_any_moment_and_leave_nothing
    name = topic(partitions: 2)
    random = Random.new(Minitest.seed || 1)
    before = nil
    Integer(ENV.fetch("PENSTOCK_STARTS", "8")).times do |round|
      application = Penstock.app do |app|
        app.kafka = { "bootstrap.servers": cluster.bootstrap_servers }
        10.times { |i| app.group("#{@group}-#{i}", kafka: KAFKA) { |group| group.topic(name, to: ->(_) {}) } }
      end
      server = application.start
      sleep random.rand * 0.5
      report = server.stop(timeout: 20)
      assert_predicate report, :complete?, report.to_s
      before = [Thread.list, open_files] if round == 1
    end
    eventually { (Thread.list - before.first).empty? }
    eventually { open_files <= before.last + 20 }
  end

  private

  def open_files = Dir.children("/proc/self/fd").size
end

# frozen_string_literal: true

require_relative "test_helper"

class ForkTest < PenstockTest
  def test_a_child_uses_producers_that_the_parent_had_configured_used_or_closed
    name = topic(partitions: 1)
    configured, used, closed = Array.new(3) { producer }
    [used, closed].each { |one| one.produce_sync(topic: name, payload: "parent") }
    closed.close
    result = in_child do
      [configured, used].each { |one| one.produce_sync(topic: name, payload: "child") }
      refused = refusal { closed.produce_sync(topic: name, payload: "x") }
      [configured.close.pending, used.close.pending, closed.closed?, closed.close.pending, refused]
    end
    assert_equal [0, 0, true, 0, Penstock::ProducerClosedError], result
    assert_equal 4, used.produce_sync(topic: name, payload: "parent").offset
    assert_equal 5, configured.produce_sync(topic: name, payload: "parent").offset
  end

  def test_a_producer_keeps_its_settings_in_the_child
    one = producer("client.id": "mine", "message.timeout.ms": 300) { |config| config.id = "named" }
    dead = unreachable_producer("message.timeout.ms": 300)
    one.produce_sync(topic:, payload: "x")
    result = in_child do
      message = begin
        dead.produce_sync(topic: "test", payload: "x")
      rescue Penstock::MessageTimedOutError => e
        e.message
      end
      [one.id, message.include?("127.0.0.1:1"), message.include?(dead.id)]
    end
    assert_equal ["named", true, true], result
  end

  def test_parent_and_four_children_with_several_threads_each_deliver_every_message_once
    name = topic(partitions: 1)
    shared = Array.new(3) { producer }
    shared.first.produce_sync(topic: name, payload: "before")
    work = lambda do
      Array.new(4) do |i|
        Thread.new do
          50.times do
            shared[i % 3].produce_sync(topic: name, payload: "x", partition: 0)
          end
        end
      end.each(&:join)
      true
    end
    parent = Thread.new(&work)
    children = Array.new(4) { Thread.new { in_child { work.call && shared.map { |one| one.close.pending } } } }
    assert_equal [[0, 0, 0]] * 4, children.map(&:value)
    parent.join
    assert_equal 1 + (5 * 200), shared.first.produce_sync(topic: name, payload: "after", partition: 0).offset
  end

  def test_a_child_of_a_child_delivers
    name = topic(partitions: 1)
    one = producer
    one.produce_sync(topic: name, payload: "parent")
    result = in_child do
      one.produce_sync(topic: name, payload: "child")
      below = in_child { one.produce_sync(topic: name, payload: "grandchild").offset.tap { one.close } }
      [below, one.produce_sync(topic: name, payload: "child").offset].tap { one.close }
    end
    assert_equal [2, 3], result
    assert_equal 4, one.produce_sync(topic: name, payload: "parent").offset
  end

  def test_a_child_that_does_nothing_ends_well_however_it_ends_and_leaves_the_parent_alone
    name = topic(partitions: 1)
    ruby!(<<~RUBY, cluster.bootstrap_servers, name)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0], "linger.ms": 250 } }
      handles = Array.new(10) { producer.produce_async(topic: ARGV[1], payload: "x", partition: 0) }
      endings = [
        [0, -> {}], [3, -> { exit 3 }], [4, -> { exit!(4) }], [1, -> { $stderr.reopen(IO::NULL); raise "uncaught" }],
        [0, -> { handles.clear; producer = nil; 3.times { GC.start } }], [0, -> { GC.compact if GC.respond_to?(:compact) }]
      ]
      endings.each do |code, ending|
        Process.wait(fork(&ending))
        abort "a child ended with \#{$?}" unless $?.exitstatus == code
      end
      reports = (handles + [producer.produce_async(topic: ARGV[1], payload: "last", partition: 0)]).map(&:wait)
      abort "offsets \#{reports.map(&:offset)}" unless reports.map(&:offset) == (0..10).to_a
    RUBY
  end

  def test_messages_in_flight_at_the_fork_stay_the_parents_and_are_delivered_once
    name = topic(partitions: 1)
    one = producer("linger.ms": 250)
    handles = one.produce_many_async(Array.new(20) { { topic: name, payload: "x" } })
    assert_equal [0, 0, 0], in_child { [one.queue_size, one.flush ? 0 : 1, one.close.delivered] }
    assert_equal (0...20).to_a, handles.map { |handle| handle.wait.offset }
  end

  def test_waiting_in_the_child_for_a_verdict_of_the_parent_raises_at_once
    one, settled, pending = producer_with_settled_and_pending_handles
    result = in_child do
      error = begin
        pending.wait
      rescue Penstock::ForkedError => e
        e.message
      end
      [settled.wait.offset, settled.label, settled.pending?, pending.pending?, pending.report, pending.error, error]
    end
    assert_equal [0, :mine, false, true, nil, nil], result[0..5]
    assert_match(/forked/, result[6])
    one.close(timeout: 0)
  end

  def test_waiting_in_the_child_for_a_half_settled_batch_of_the_parent_raises_at_once
    slow = own_cluster(brokers: 2)
    name = topic(on: slow, partitions: 2)
    2.times { |i| slow.move_leader(name, i, i + 1) }
    one = producer(servers: slow.bootstrap_servers)
    2.times { |partition| one.produce_sync(topic: name, payload: "x", partition:) }
    slow.set_round_trip_time(60_000, broker: 2)
    handles = one.produce_many_async(Array.new(2) { |partition| { topic: name, payload: "x", partition: } })
    eventually { handles.map(&:pending?) == [false, true] }
    assert_equal Penstock::ForkedError, in_child { refusal { Penstock::DeliveryHandle.await_all(handles, 1_000) } }
  ensure
    one&.close(timeout: 0)
  end

  def test_the_poller_of_a_child_is_a_new_thread_with_statistics_of_its_own
    dedicated = Penstock::Poller.new
    one = producer { |config| config.polling.poller = dedicated }
    5.times { one.produce_sync(topic:, payload: "x") }
    before = dedicated.stats
    result = in_child do
      unused = dedicated.stats
      one.produce_sync(topic: "child", payload: "x")
      used = dedicated.stats.merge(threads: native_threads.size)
      one.close
      [unused.slice(:clients, :messages, :starts, :thread_id), used, eventually { !dedicated.alive? }]
    end
    assert_equal [{ clients: 0, messages: 0, starts: 0, thread_id: nil }, true], result.values_at(0, 2)
    assert_equal({ clients: 1, messages: 1, starts: 1, threads: 1 }, result[1].slice(:clients, :messages, :starts, :threads))
    refute_equal before[:thread_id], result[1][:thread_id]
    assert_equal before[:thread_id], dedicated.stats[:thread_id]
    assert_equal 5, dedicated.stats[:messages]
  end

  def test_the_embedded_cluster_is_refused_in_the_child_by_name_and_lives_on_in_the_parent
    shared = cluster
    servers = shared.bootstrap_servers
    result = in_child do
      [refusal { shared.bootstrap_servers }, refusal { shared.create_topic("child") }, shared.close, servers]
    end
    assert_equal [Penstock::ForkedError, Penstock::ForkedError, nil, servers], result
    producer.produce_sync(topic:, payload: "x")
  end

  def test_a_child_can_have_an_embedded_cluster_of_its_own
    result = in_child do
      own = Penstock::EmbeddedCluster.new
      one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": own.bootstrap_servers } }
      one.produce_sync(topic: "child", payload: "x").offset.tap { [one, own].each(&:close) }
    end
    assert_equal 0, result
  end

  def test_the_logger_of_a_producer_gets_lines_in_the_child_again
    lines = StringIO.new
    one = unreachable_producer { |config| config.logger = Logger.new(lines) }
    one.produce_async(topic: "test", payload: "x")
    eventually { lines.string.include?(one.id) }
    assert in_child {
      lines.truncate(0)
      one.produce_async(topic: "test", payload: "x")
      eventually { lines.string.include?(one.id) }.tap { one.close(timeout: 0) }
    }
    one.close(timeout: 0)
  end

  def test_a_daemon_made_by_forking_twice_delivers
    name = topic(partitions: 1)
    program = <<~RUBY
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      producer.produce_sync(topic: ARGV[1], payload: "before", partition: 0)
      RUBY_DAEMON
      producer.produce_async(topic: ARGV[1], payload: "daemon", partition: 0)
    RUBY
    ["Process.daemon(true, true)", "exit if fork; Process.setsid; exit if fork"].each do |daemon|
      ruby!(program.sub("RUBY_DAEMON", daemon), cluster.bootstrap_servers, name)
    end
    probe = producer
    sent = 0 # by this probe
    eventually(10) { probe.produce_sync(topic: name, payload: "probe", partition: 0).offset == 4 + (sent += 1) - 1 }
  end

  def test_running_other_programs_disturbs_nothing
    name = topic(partitions: 1)
    one = producer("linger.ms": 50)
    handles = Array.new(20) do
      one.produce_async(topic: name, payload: "x").tap do
        system("true", exception: true)
        assert_equal "x\n", `echo x`
        Process.wait(spawn("true"))
      end
    end
    assert_equal (0...20).to_a, handles.map { |handle| handle.wait.offset }
  end

  # Not while threads open producers or make native threads of ours that first use OpenSSL: see DESIGN.md, "Fork".
  def test_forking_while_threads_produce_gives_children_that_work
    stop = false
    busy = producer("linger.ms": 0)
    busy.produce_sync(topic: "fork-noise", payload: "x")
    batch = Array.new(200) { { topic: "fork-noise", payload: "x" } }
    threads = [
      -> { busy.produce_sync(batch.first) },
      -> { busy.produce_many_sync(batch) },
      -> { busy.produce_async(batch.first).wait }
    ]
    threads.map! { |work| Thread.new { work.call until stop } }
    name = topic(partitions: 1)
    shared = producer
    30.times do
      pending = in_child(5) do
        shared.produce_sync(topic: name, payload: "x", partition: 0)
        shared.close(timeout: 4).pending
      end
      assert_equal 0, pending
    end
    assert_equal 30, shared.produce_sync(topic: name, payload: "x", partition: 0).offset
  ensure
    stop = true
    threads&.each(&:join)
  end

  private

  # @return [Class, nil] of the error the block raises
  def refusal
    yield
    nil
  rescue StandardError => e
    e.class
  end

  def producer_with_settled_and_pending_handles
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    one = producer(servers: slow.bootstrap_servers)
    settled = one.produce_async(topic: name, payload: "x", label: :mine).tap(&:wait)
    slow.set_round_trip_time(60_000)
    [one, settled, one.produce_async(topic: name, payload: "x")]
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/reader"

class EmbeddedClusterTest < PenstockTest
  def on(cluster, **kafka)
    producer(servers: cluster.bootstrap_servers, log_level: 0, "retry.backoff.ms": 10, "reconnect.backoff.ms": 10,
             "reconnect.backoff.max.ms": 50, **kafka)
  end

  def assert_error(pattern, &block)
    assert_match pattern, assert_raises(ArgumentError, &block).message
  end

  def native_threads_named(name)
    Dir["/proc/self/task/*/comm"].count do |path|
      File.read(path).chomp == name
    rescue SystemCallError
      false
    end
  end

  # A signal would end this thread.
  def test_the_clusters_thread_blocks_every_signal
    skip "no /proc" unless File.directory?("/proc/self/task")
    own_cluster
    masks = eventually do
      found = Dir["/proc/self/task/*/status"].map { |path| File.read(path) }.grep(/^Name:\s+rdk:mock$/)
      found.map { |status| status[/^SigBlk:\s+(\h+)/, 1].to_i(16) } if found.any?
    end
    %w[CHLD USR1 TERM].each { |signal| assert(masks.all? { |mask| mask[Signal.list[signal] - 1] == 1 }, signal) }
  end

  slow def test_bootstrap_servers_lists_every_broker
    [1, 3, 100].each do |brokers|
      cluster = own_cluster(brokers:)
      servers = cluster.bootstrap_servers.split(",")
      assert_equal [brokers, brokers], [cluster.brokers, servers.uniq.size]
      servers.each { |server| assert_match(/\A127\.0\.0\.1:\d{4,5}\z/, server) }
    end
  end

  def test_a_cluster_has_one_broker_by_default
    assert_equal 1, own_cluster.brokers
  end

  def test_the_number_of_brokers_is_checked
    [0, -1, 101, 1.0, "1", nil].each do |brokers|
      assert_error(/brokers must be an Integer from 1 to 100/) { own_cluster(brokers:) }
    end
  end

  def test_create_topic_creates_the_given_number_of_partitions
    own = own_cluster(brokers: 3)
    assert_nil own.create_topic("events", partitions: 7, replication_factor: 3)
    own.create_topic(:symbol)
    assert_equal [7, 1], [on(own).partition_count("events"), on(own).partition_count("symbol")]
  end

  def test_create_topic_checks_its_arguments
    [0, -1, 10_001, 1.5, nil].each { |n| assert_error(/partitions must be/) { cluster.create_topic("a", partitions: n) } }
    [0, 4, nil].each do |n|
      assert_error(/replication_factor must be.*1 to 3/) { cluster.create_topic("a", replication_factor: n) }
    end
    ["", "a b", "a" * 250, nil, ".."].each do |name|
      error = assert_raises(Penstock::MessageInvalidError) { cluster.create_topic(name) }
      assert_includes error.message, "not a valid topic name"
    end
  end

  def test_create_topic_raises_if_the_topic_exists
    topic = topic(partitions: 1)
    error = assert_raises(Penstock::Error) { cluster.create_topic(topic) }
    assert_equal [:topic_already_exists, topic], [error.code, error.topic]
  end

  def test_producing_to_a_new_topic_creates_it_with_4_partitions
    own = own_cluster
    on(own).produce_sync(topic: "new", payload: "")
    assert_equal 4, on(own).partition_count("new")
  end

  PROGRAM = <<~'RUBY'
    producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
    print producer.produce_many_sync(Array.new(10) { |i| { topic: ARGV[1], payload: i.to_s } }).map { |h| h.report.offset }
    producer.close
  RUBY

  def test_another_process_can_connect_and_produce
    topic = topic(partitions: 1)
    assert_equal (0..9).to_a.to_s, ruby!(PROGRAM, cluster.bootstrap_servers, topic)
    assert_equal 10, producer.produce_sync(topic:, payload: "10").offset
    assert_equal (0..10).map(&:to_s), Reader.new(cluster.bootstrap_servers).read(topic).map(&:payload)
  end

  # ---- faults ----

  def test_injected_errors_occur_once_each_in_order
    own = own_cluster
    own.create_topic("events")
    producer = on(own, "linger.ms": 0)
    assert_nil own.inject_errors(:produce, :invalid_record, [:msg_size_too_large], 87)
    codes = Array.new(4) { producer.produce_async(topic: "events", payload: "").tap { producer.flush }.error&.code }
    assert_equal [:invalid_record, :msg_size_too_large, :invalid_record, nil], codes
  end

  def test_an_injected_local_error_closes_the_connection_and_the_message_is_sent_again
    own = own_cluster
    own.create_topic("events")
    producer = on(own)
    own.inject_errors(:produce, :transport)
    assert_equal 0, producer.produce_sync(topic: "events", payload: "").offset
  end

  slow def test_cleared_errors_do_not_occur
    own = own_cluster
    own.create_topic("events")
    own.inject_errors(:produce, *[:invalid_record] * 5)
    assert_nil own.clear_errors(:produce)
    assert_predicate on(own).produce_sync(topic: "events", payload: ""), :persisted?
  end

  slow def test_a_request_may_be_given_by_its_number
    own = own_cluster
    own.create_topic("events")
    own.inject_errors(0, :invalid_record)
    own.clear_errors(0)
    own.inject_errors(0, :invalid_record)
    assert_raises(Penstock::DeliveryError) { on(own).produce_sync(topic: "events", payload: "") }
  end

  def test_an_unknown_error_or_request_raises_with_a_suggestion
    assert_error(/no error :not_leader_for_partitio \(did you mean :not_leader_for_partition\?\)/) do
      cluster.inject_errors(:produce, :not_leader_for_partitio)
    end
    assert_error(/no error nil/) { cluster.inject_errors(:produce, nil) }
    assert_error(/no request :prduce; known: produce, /) { cluster.inject_errors(:prduce, :transport) }
    assert_error(/no request nil/) { cluster.clear_errors(nil) }
  end

  def test_numbers_out_of_the_range_of_requests_and_errors_raise
    [2**16, 2**40, -1].each { |api| assert_raises(ArgumentError) { cluster.inject_errors(api, :transport) } }
    [2**16, 2**40].each { |error| assert_raises(ArgumentError) { cluster.inject_errors(:fetch, error) } }
  ensure
    cluster.clear_errors(:produce)
    cluster.clear_errors(:fetch)
  end

  def test_no_error_is_injected_if_one_of_them_is_unknown
    own = own_cluster
    own.create_topic("events")
    assert_raises(ArgumentError) { own.inject_errors(:produce, :invalid_record, :nonsense) }
    assert_predicate on(own).produce_sync(topic: "events", payload: ""), :persisted?
  end

  slow def test_round_trip_time_delays_answers
    own = own_cluster(brokers: 2)
    own.create_topic("events")
    producer = on(own, "linger.ms": 0)
    producer.produce_sync(topic: "events", payload: "")
    assert_nil own.set_round_trip_time(seconds: 0.3)
    assert_operator producer.produce_sync(topic: "events", payload: "").latency, :>=, 290
  end

  def test_round_trip_time_may_apply_to_one_broker
    own = own_cluster(brokers: 2)
    own.create_topic("events", partitions: 2)
    2.times { |i| own.move_leader("events", i, i + 1) }
    producer = on(own, "linger.ms": 0)
    2.times { |partition| producer.produce_sync(topic: "events", payload: "", partition:) }
    own.set_round_trip_time(seconds: 0.4, broker: 2)
    slow = producer.produce_async(topic: "events", payload: "", partition: 1)
    fast = producer.produce_async(topic: "events", payload: "", partition: 0)
    fast.wait
    assert_predicate slow, :pending?
    assert_operator slow.wait.latency, :>=, 390
  end

  def test_round_trip_time_checks_its_arguments
    [-1, 600.1, 3_000, "1", nil, 1i, Float::NAN].each do |seconds|
      assert_error(/seconds must be a number from 0 to 600/) { cluster.set_round_trip_time(seconds:) }
    end
    assert_error(/\A1 positional argument too many; write set_round_trip_time\(seconds: /) { cluster.set_round_trip_time(300) }
    [0, 4, "1"].each do |broker|
      assert_error(/broker must be an Integer from 1 to 3/) { cluster.set_round_trip_time(seconds: 0, broker:) }
    end
  end

  def test_a_broker_that_is_down_delivers_nothing_until_it_is_up
    own = own_cluster
    own.create_topic("events")
    producer = on(own, "linger.ms": 0)
    producer.produce_sync(topic: "events", payload: "")
    assert_nil own.broker_down(1)
    handle = producer.produce_async(topic: "events", payload: "")
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 200) }
    assert_nil own.broker_up(1)
    assert_equal 1, handle.wait(max_wait_timeout_ms: 20_000).offset
  end

  def test_broker_down_and_broker_up_check_the_broker
    [0, 4, nil, :one].each do |broker|
      assert_error(/broker must be/) { cluster.broker_down(broker) }
      assert_error(/broker must be/) { cluster.broker_up(broker) }
    end
  end

  slow def test_messages_follow_a_partition_to_its_new_leader
    own = own_cluster(brokers: 2)
    own.create_topic("events", replication_factor: 2)
    own.move_leader("events", 0, 1)
    producer = on(own, "linger.ms": 0)
    producer.produce_sync(topic: "events", payload: "")
    assert_nil own.move_leader("events", 0, 2)
    assert_equal 1, producer.produce_sync(topic: "events", payload: "").offset
    own.broker_down(1)
    assert_equal 2, producer.produce_sync(topic: "events", payload: "").offset
  end

  def test_move_leader_raises_for_an_unknown_partition_or_broker
    topic = topic(partitions: 2)
    assert_raises(Penstock::Error) { cluster.move_leader(topic, 2, 1) }
    assert_error(/partition must be/) { cluster.move_leader(topic, -1, 1) }
    assert_error(/broker must be/) { cluster.move_leader(topic, 0, 4) }
  end

  def test_move_leader_creates_a_missing_topic
    topic = "not-there-#{rand(2**32)}"
    cluster.move_leader(topic, 0, 1)
    assert_equal 0, producer.produce_sync(topic:, payload: "x", partition: 0).offset
  end

  # ---- close, forks, collection ----

  def test_every_call_on_a_closed_cluster_raises_except_close
    own = own_cluster
    refute_predicate own, :closed?
    2.times { assert_nil own.close }
    assert_predicate own, :closed?
    [-> { own.bootstrap_servers }, -> { own.create_topic("a") }, -> { own.inject_errors(:produce, :transport) },
     -> { own.clear_errors(:produce) }, -> { own.set_round_trip_time(seconds: 0.001) },
     -> { own.broker_down(1) }, -> { own.broker_up(1) }, -> { own.move_leader("a", 0, 1) }].each do |call|
      assert_includes assert_raises(Penstock::ProducerClosedError, &call).message, "The embedded cluster is closed."
    end
  end

  def test_inspect_shows_the_addresses_or_that_the_cluster_is_closed
    own = own_cluster
    assert_includes own.inspect, own.bootstrap_servers
    own.close
    assert_includes own.inspect, "closed"
  end

  slow def test_messages_time_out_after_the_cluster_is_closed
    own = own_cluster
    producer = on(own, "message.timeout.ms": 2_000)
    producer.produce_sync(topic: "events", payload: "")
    own.close
    assert_raises(Penstock::MessageTimedOutError) { producer.produce_sync(topic: "events", payload: "") }
  end

  def test_every_thread_can_use_and_close_the_cluster
    own = own_cluster
    threads = Array.new(8) do |i|
      Thread.new do
        own.create_topic("t#{i}")
        own.bootstrap_servers
        own.close
      rescue Penstock::ProducerClosedError
        :closed
      end
    end
    assert_empty threads.map(&:value) - [nil, :closed]
    assert_predicate own, :closed?
  end

  def test_a_fork_child_can_connect_to_the_cluster_but_not_control_it
    topic = topic(partitions: 1)
    used, produced = in_child do
      used = begin
        cluster.create_topic("other")
      rescue Penstock::ForkedError => e
        e.message
      end
      child = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": SERVERS[0] } }
      [used, child.produce_sync(topic:, payload: "").offset.tap { child.close }]
    end
    assert_includes used, "runs in the parent process"
    assert_equal 0, produced
    assert_equal 1, producer.produce_sync(topic:, payload: "").offset
  end

  SERVERS = [SharedCluster.embedded.bootstrap_servers].freeze

  def test_the_cluster_keeps_running_after_a_fork_child_closes_it_and_exits
    own = own_cluster
    ended = in_child do
      own.close
      GC.start
      true
    end
    assert ended
    assert_predicate on(own).produce_sync(topic: "events", payload: ""), :persisted?
  end

  def test_a_cluster_without_references_is_collected_and_its_threads_end
    cluster
    eventually { native_threads_named("penstock.cluste").zero? }
    before = native_threads_named("rdk:mock")
    Thread.new { 5.times { Penstock::EmbeddedCluster.new } }.join
    assert_operator native_threads_named("rdk:mock"), :>, before
    eventually(20) do
      GC.start
      native_threads_named("rdk:mock") <= before + 1
    end
  end

  def test_a_cluster_cannot_be_copied
    assert_raises(TypeError, NoMethodError) { cluster.dup }
    assert_raises(TypeError, NoMethodError) { cluster.clone }
    assert_raises(TypeError) { Marshal.dump(cluster) }
  end

  def test_a_cluster_that_was_never_started_counts_as_closed
    bare = Class.instance_method(:allocate).bind_call(Penstock::EmbeddedCluster)
    assert_predicate bare, :closed?
    assert_nil bare.close
    assert_raises(Penstock::ProducerClosedError) { bare.bootstrap_servers }
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../support/raw_records"

# config.stuck_after, config.restart_stuck.
class StuckPartitionTest < ConsumerTestCase
  AFTER = 400 # ms
  ERRORS = 10_000 # of requests for messages, of which fetch.error.backoff.ms lets the consumer send 100 a second

  def setup
    super
    @own = own_cluster
    @topic = topic(partitions: 2, on: @own)
    @producer = producer(servers: @own.bootstrap_servers)
    @events = Queue.new
  end

  def watched(**kafka)
    one = consumer(servers: @own.bootstrap_servers, **kafka) do |config|
      config.stuck_after = AFTER
      yield config if block_given?
    end
    one.monitor.subscribe("partition.stuck") { |event| @events << event }
    one.assign(@topic => { 0 => 0, 1 => 0 })
  end

  # Its brokers always answer that each partition has two more messages.
  def lags_by_two(one)
    Internal.of(one).offsets.define_singleton_method(:lag) do |partitions, *|
      partitions.transform_values { |list| list.to_h { |each| [each, 2] } }
    end
  end

  def fill(payloads, partition: 0) = produce(@topic, payloads, partition:, on: @producer)

  # Brokers reject every request for messages, so none arrives. They answer questions about ends.
  def without_fetches(one)
    @own.inject_errors(:fetch, *([:not_leader_for_partition] * ERRORS)) # before anything can be fetched
    yield
  ensure
    @own.clear_errors(:fetch)
    eventually { one.assignment.any? }
  end

  def poll_until(one)
    eventually do
      one.poll(timeout: 0.05)
      yield
    rescue Penstock::ConsumeError
      false # the rejected requests
    end
  end

  def test_a_check_that_meets_the_end_of_its_consumer_is_no_error
    one = watched
    one.monitor.subscribe("error.occurred") { |event| @events << event }
    parts = Internal.of(one)
    parts.offsets.define_singleton_method(:lag) { |*| raise Penstock::ConsumerClosedError, "closed meanwhile" }
    watch = Internal::StuckWatch.new(parts)
    watch.start
    2.times { watch.call } # the first one sees where the consumer is
    assert_nil watch.due_at
    assert_empty @events
  end

  # behaviour: consumer.caught_up, partition.stuck, rebalance.held_back
  slow def test_a_partition_from_which_nothing_comes_is_reported
    one = watched
    fill(%w[a])
    assert_equal ["a"], take(one, 1).map(&:payload)
    without_fetches(one) do
      fill(%w[b c])
      poll_until(one) { @events.size.positive? }
    end
    event = @events.pop
    assert_equal [@topic, 0, 1, 2, false, one.id],
                 event.payload.values_at(:topic, :partition, :position, :lag, :restarted, :consumer_id)
    assert_operator event[:time], :>=, AFTER
    assert_equal %w[b c], take(one, 2).map(&:payload)
  end

  slow def test_a_partition_that_moves_while_the_brokers_are_asked_is_not_restarted
    one = watched { |config| config.restart_stuck = true }
    fill(%w[a])
    take(one, 1)
    asked = Queue.new
    test = self
    Internal.of(one).offsets.define_singleton_method(:lag) do |partitions, *|
      test.fill(%w[b c])
      test.take(one, 2)
      singleton_class.remove_method(:lag)
      asked << true
      partitions.transform_values { |list| list.to_h { |partition| [partition, 2] } }
    end
    asked.pop
    assert_nil one.poll(timeout: 1)
    assert_empty @events.size.times.map { @events.pop.payload }.select { |payload| payload[:partition].zero? }
  end

  slow def test_a_restart_loses_and_repeats_nothing
    one = watched { |config| config.restart_stuck = true }
    fill(%w[a])
    take(one, 1)
    without_fetches(one) do
      fill(%w[b c])
      poll_until(one) { @events.size.positive? }
    end
    assert @events.pop[:restarted]
    assert_equal %w[b c], take(one, 2).map(&:payload)
    assert_nil one.poll(timeout: 0.2)
  end

  # The marker at a transaction's end is an offset without a message, and the only one behind the position.
  slow def test_a_partition_whose_messages_are_followed_by_a_marker_is_not_stuck
    one = watched { |config| (config.restart_stuck = true) && config.mark = :manual }
    fill(%w[a])
    RawRecords.write_commit_marker(@own, @topic)
    message = quiet_thread { take(one, 1).first }.value
    checks = 0
    lag = Internal.of(one).offsets.method(:lag)
    Internal.of(one).offsets.define_singleton_method(:lag) { |*given| lag.call(*given).tap { checks += 1 } }
    poll_until(one) { checks > 6 }
    assert_empty @events
    assert one.mark(message)
  end

  # A new message needs a moment to come.
  slow def test_an_idle_partition_is_not_stuck_as_soon_as_it_has_a_message
    one = watched
    fill(%w[a])
    take(one, 1)
    idle_until = now + (AFTER * 2 / 1000.0)
    one.poll(timeout: 0.05) while now < idle_until
    published_at = []
    one.monitor.subscribe("partition.stuck") { published_at << now }
    without_fetches(one) do
      filled = now
      fill(%w[b])
      poll_until(one) { published_at.any? }
      assert_operator published_at.first - filled, :>=, AFTER / 1000.0
    end
  end

  thorough def test_partitions_that_are_read_paused_or_not_polled_are_not_stuck
    one = watched
    fill(%w[a])
    fill(%w[x y], partition: 1)
    one.pause(@topic => [1])
    take(one, 1)
    finish = now + (AFTER * 4 / 1000.0)
    one.poll(timeout: 0.05) while now < finish
    fill(%w[b])
    eventually { one.metrics.queue_length.positive? }
    sleep AFTER * 4 / 1000.0 # the program does not poll
    assert_empty @events
    assert_equal ["b"], take(one, 1).map(&:payload)
  end

  def test_a_partition_is_stuck_though_messages_of_another_one_always_wait
    one = watched
    lags_by_two(one)
    fill(%w[x] * 100, partition: 1)
    eventually do
      fill(%w[x] * 100, partition: 1)
      eventually { one.metrics.queue_length >= 200 }
      take(one, 100)
      @events.size.positive?
    end
    assert_equal 0, @events.pop[:partition]
  end

  def test_an_error_that_was_not_expected_is_reported_and_ends_nothing
    one = watched
    errors = Queue.new
    one.monitor.subscribe("error.occurred") { |event| errors << event }
    Internal.of(one).offsets.define_singleton_method(:lag) do |partitions, *|
      raise "unexpected" if errors.empty?

      partitions.transform_values { |list| list.to_h { |each| [each, 2] } }
    end
    poll_until(one) { @events.size.positive? }
    type, error = errors.pop.payload.values_at(:type, :error)
    assert_equal %w[consumer.stuck_after unexpected], [type, error.message]
  end

  def threads = Thread.list.select { |thread| thread.name == "penstock.stuck" }

  def test_all_consumers_share_a_thread_which_ends_with_the_last
    made = Array.new(20) { watched { |config| config.stuck_after = 3_000 } }
    eventually { threads.size == 1 } # that of an earlier test may be about to end
    checks = Queue.new
    made.each { |one| Internal.of(one).offsets.define_singleton_method(:lag) { |*| checks << true && {} } }
    eventually { checks.size >= 40 }
    eventually(5, -> { "#{threads.size} threads" }) { threads.size == 1 }
    made.pop(19).each(&:close)
    assert_equal 1, threads.size
    made.first.close
    eventually { threads.empty? }
  end

  def test_a_consumer_whose_brokers_do_not_answer_does_not_delay_the_checks_of_others
    stop = Queue.new
    asked = Queue.new
    3.times do
      Internal.of(watched).offsets.define_singleton_method(:lag) do |partitions, *|
        asked << stop.pop
        partitions.transform_values { |list| list.to_h { |each| [each, 0] } }
      end
    end
    eventually { stop.num_waiting == 3 }
    one = watched
    fill(%w[a])
    take(one, 1)
    lags_by_two(one)
    poll_until(one) { @events.size.positive? }
    assert_equal [one.id, 0], [@events.pop[:consumer_id], asked.size]
    stop.close
    eventually { threads.size == 1 }
  end

  def test_a_fork_child_watches_its_own_consumers
    watched
    servers = @own.bootstrap_servers
    @own.define_singleton_method(:bootstrap_servers) { servers } # the cluster itself is out of a child's reach
    eventually { threads.size == 1 }
    assert_equal 1, (in_child do
      one = watched
      asked = Queue.new
      Internal.of(one).offsets.define_singleton_method(:lag) { |*| asked << true && {} }
      eventually { asked.size.positive? }
      threads.size.tap do
        one.close
        eventually { threads.empty? }
      end
    end)
  end

  def test_a_dropped_consumer_is_not_kept_by_its_watch
    forget_one
    eventually(10) do
      GC.start
      threads.empty?
    end
  end

  def forget_one
    Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": @own.bootstrap_servers }
      config.stuck_after = AFTER
    end.assign(@topic => [0])
    sleep AFTER / 1000.0 # the thread has used it
  end

  slow def test_its_thread_ends_with_the_consumer
    one = watched
    assert_includes Thread.list.map(&:name), "penstock.stuck"
    one.close
    eventually { !Thread.list.map(&:name).include?("penstock.stuck") }
    consumer.assign(topic => [0])
    refute_includes Thread.list.map(&:name), "penstock.stuck"
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Errors that last until somebody does something, and that librdkafka reports once: a group that the consumer cannot join, an
# answer of a broker that is too large.
class LastingErrorsTest < ConsumerTestCase
  DENIED = :group_authorization_failed

  # A consumer on a cluster whose broker answers requests of this kind with an error.
  def refused(api, error = DENIED, **kafka)
    @own = own_cluster
    @own.create_topic("orders", partitions: 2)
    @own.inject_errors(api, *[error] * 1_000)
    kafka = { servers: @own.bootstrap_servers, "group.id": "billing", log_level: 0, **kafka }
    consumer(**kafka) { |config| config.logger = Logger.new(nil) }
  end

  # @return [Penstock::ConsumeError] the next one that a poll raises
  def error_of_poll(one, seconds: 30)
    error = nil
    eventually(seconds) do
      one.poll(timeout: 0.05)
      false
    rescue Penstock::ConsumeError => e
      error = e
    end
    error
  end

  def test_a_group_that_cannot_be_joined_is_named_by_polls_the_membership_and_timeouts
    one = refused(:find_coordinator).subscribe("orders")
    error = error_of_poll(one)
    assert_equal [DENIED, "billing", one.id, false], [error.code, error.group, error.consumer_id, error.fatal?]
    assert_match(/\[consumer .*, group billing\]\. Grant this client the right to use the group \(the operation Read\)\./,
                 error.message)
    assert_equal :joining, one.membership.state
    assert_match(/FindCoordinator .*Group authorization failed/, one.membership.error)
    assert_names_group_error { one.committed("orders", [0], timeout: 0.1) }
  end

  def assert_names_group_error(&call)
    error = assert_raises(Penstock::ConsumeTimeoutError, &call)
    assert_equal [:timed_out, "billing"], [error.code, error.group]
    assert_match(/as the consumer cannot use its group \(FindCoordinator .*Group authorization failed\)/, error.message)
    assert_match(/Grant this client the right to use the group/, error.message)
    refute_match(/brokers are up/, error.message)
  end

  # Nobody polls such a consumer.
  def test_a_consumer_that_joins_no_group_names_its_error_in_timeouts
    one = refused(:find_coordinator)
    assert_names_group_error { one.committed("orders", [0], timeout: 0.4) }
  end

  slow def test_a_commit_that_times_out_names_it
    one = refused(:find_coordinator).subscribe("orders")
    error_of_poll(one)
    assert_names_group_error { one.commit({ "orders" => { 0 => 1 } }, timeout: 0.1) }
    @own.clear_errors(:find_coordinator) # else librdkafka ends the commit only after session.timeout.ms
  end

  def test_errors_of_joining_have_advice
    one = refused(:join_group, :inconsistent_group_protocol).subscribe("orders")
    error = error_of_poll(one)
    assert_equal [:inconsistent_group_protocol, "billing"], [error.code, error.group]
    assert_match(/JoinGroup failed: .* one partition\.assignment\.strategy in common/, error.message)
  end

  slow def test_it_is_raised_again_also_after_a_new_subscription_until_the_member_has_joined
    one = refused(:find_coordinator).subscribe("orders")
    first = now
    2.times { assert_equal DENIED, error_of_poll(one).code }
    assert_operator now - first, :>, 4
    one.unsubscribe
    one.poll(timeout: 0.1)
    assert_nil one.membership.state
    one.subscribe("orders")
    set = Penstock::ConsumerSet.new(one)
    error = nil
    eventually(30) do
      set.wait(timeout: 1).each { |ready| ready.poll(timeout: 0) }
      error
    rescue Penstock::ConsumeError => e
      error = e
    end
    assert_equal DENIED, error.code
    set.clear
    @own.clear_errors(:find_coordinator)
    eventually(30) do
      one.poll(timeout: 0.1)
      one.membership.state == :stable
    rescue Penstock::ConsumeError
      nil # until it has joined
    end
    assert_nil one.membership.error
  end

  # Its coordinator has moved, and the search for the new one fails for a while.
  slow def test_a_member_that_goes_on_after_an_error_of_its_group_stays_one
    own = own_cluster
    own.create_topic("orders", partitions: 1)
    one = consumer(servers: own.bootstrap_servers, "group.id": "billing", log_level: 0, "heartbeat.interval.ms": 50) do |config|
      config.logger = Logger.new(nil)
    end
    one.subscribe("orders")
    eventually { one.poll(timeout: 0.1) || one.membership.state == :stable }
    own.inject_errors(:find_coordinator, *[DENIED] * 1_000)
    own.inject_errors(:heartbeat, :not_coordinator)
    assert_equal DENIED, error_of_poll(one).code
    assert_equal [:stable, nil], one.membership.to_h.values_at(:state, :error)
    own.clear_errors(:find_coordinator)
    assert one.commit({ "orders" => { 0 => 0 } })
    assert_nil one.poll(timeout: 0)
    assert_equal [:stable, nil], one.membership.to_h.values_at(:state, :error)
  end

  # librdkafka says nothing of them, except in a debug line.
  slow def test_failures_of_sync_group_are_raised
    one = refused(:sync_group, "session.timeout.ms": 6_000).subscribe("orders")
    error = error_of_poll(one)
    assert_equal [DENIED, "billing"], [error.code, error.group]
    assert_match(/SyncGroup failed/, error.message)
    assert_equal :joining, one.membership.state
    assert_match(/SyncGroup failed/, one.membership.error)
  end

  # The group begins anew each time, as another member joins or leaves.
  thorough slow def test_a_sync_group_that_another_rebalance_ends_is_no_error
    own = own_cluster
    own.create_topic("orders", partitions: 1)
    own.inject_errors(:sync_group, *[:rebalance_in_progress] * 4)
    kafka = { "group.id": "billing", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 50 }
    one = consumer(servers: own.bootstrap_servers, **kafka).subscribe("orders")
    eventually { one.poll(timeout: 0.1) || one.membership.state == :stable }
    assert_nil one.membership.error
  end

  # ---- answers that are too large ----

  def with_large_message(partitions)
    own = own_cluster
    own.create_topic("orders", partitions:)
    sender = producer(servers: own.bootstrap_servers, "message.max.bytes": 2_000_000) do |config|
      config.max_payload_size = 2_000_000
    end
    produce("orders", ["small", "x" * 1_200_000, "small"], on: sender)
    kafka = { servers: own.bootstrap_servers, log_level: 0, "receive.message.max.bytes": 1_000_512 }
    consumer(**kafka) { |config| config.logger = Logger.new(nil) }.assign("orders" => (0...partitions).to_h { |i| [i, 1] })
  end

  def test_a_message_above_receive_message_max_bytes_names_its_partition_and_the_settings
    one = with_large_message(1)
    error = error_of_poll(one)
    assert_equal [:msg_size_too_large, "orders", 0], [error.code, error.topic, error.partition]
    assert_match(/An answer of 12\d{5} bytes exceeds receive\.message\.max\.bytes \(1000512\)/, error.message)
    assert_match(/Set receive\.message\.max\.bytes above the topic's max\.message\.bytes, .* fetch\.max\.bytes\./, error.message)
    one.seek("orders", 0, 2)
    assert_equal 2, poll_again(one).offset
  end

  # What was asked for before a seek may still be answered, with the same error.
  def poll_again(one)
    one.poll(timeout: 10)
  rescue Penstock::ConsumeError
    one.poll(timeout: 10)
  end

  slow def test_it_is_raised_again_while_no_message_comes
    one = with_large_message(2)
    2.times do
      error = error_of_poll(one)
      assert_equal [:msg_size_too_large, "orders", nil], [error.code, error.topic, error.partition]
    end
  end
end

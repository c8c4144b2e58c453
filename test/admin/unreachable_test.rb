# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/admin_test_case"

# An admin client while no broker can be reached: its calls end at once, and not at their timeouts.
class AdminUnreachableTest < AdminTestCase
  LONG = 60 # seconds: the timeout of calls
  SOON = GCLevel.slow? ? 30 : 4

  # The rest of the calls ask in the same ways. The last two use a client of their own (Penstock::Admin::Readers).
  PLACES = { "a" => { 0 => 1 } }.freeze
  CALLS = WAYS.merge(
    "a_call_for_a_group" => ->(one, **options) { one.group_offsets({ "g" => nil }, **options).raise! },
    "a_change_of_a_group" => ->(one, **options) { one.alter_group_offsets("g", PLACES, **options) },
    "offsets" => ->(one, **options) { one.offsets({ "a" => { 0 => :end } }, **options) }
  ).freeze

  def unreachable(servers: "127.0.0.1:1,127.0.0.1:2", **kafka)
    admin(servers:, **kafka) { |config| config.unreachable_timeout = 400 }
  end

  def assert_unreachable(call, one)
    error = nil
    elapsed = seconds_of { error = assert_raises(Penstock::AdminUnreachableError) { call.call(one, timeout: LONG) } }
    assert_took(SOON, elapsed)
    error
  end

  CALLS.each do |name, call|
    define_method("test_#{name}_ends_soon_while_all_brokers_refuse_connections") do
      one = unreachable
      error = assert_unreachable(call, one)
      assert_equal [:all_brokers_down, one.id], [error.code, error.admin_id]
      assert_match(/\ANo broker could be reached for 400 ms: .*brokers 127\.0\.0\.1:1,127\.0\.0\.1:2\]/, error.message)
      assert_kind_of Penstock::ConnectionError, error
      assert_unreachable(call, one)
    end
  end

  def test_a_question_may_be_repeated_and_a_change_says_that_it_may_take_effect
    assert_predicate assert_unreachable(WAYS["a_question"], unreachable), :retriable?
    error = assert_unreachable(WAYS["a_request"], unreachable)
    refute_predicate error, :retriable?
    assert_match(/If it was a change, it may still take effect/, error.message)
  end

  def test_a_host_that_does_not_exist_is_no_broker
    assert_unreachable(WAYS["a_question"], unreachable(servers: "no-such-host.invalid:9092"))
  end

  def test_calls_of_many_threads_end
    one = unreachable
    threads = Array.new(8) { |i| quiet_thread { assert_unreachable(CALLS.values[i % CALLS.size], one) } }
    threads.each(&:value)
  end

  # librdkafka would send the request of the call that has ended.
  def test_calls_succeed_when_a_broker_is_back_and_what_has_failed_is_not_made_later
    cluster = own_cluster(brokers: 1)
    cluster.create_topic("away", partitions: 1)
    one = unreachable(servers: cluster.bootstrap_servers)
    place = ->(offset) { { "away" => { 0 => offset } } }
    one.alter_group_offsets("g", place.call(1))
    cluster.broker_down(1)
    3.times { assert_unreachable(->(it, **options) { it.alter_group_offsets("g", place.call(2), **options).raise! }, one) }
    assert_unreachable(WAYS["a_question"], one)
    cluster.broker_up(1)
    assert_took(SOON, seconds_of { assert_includes one.topics(timeout: LONG).keys, "away" })
    assert_equal 1, one.group_offsets({ "g" => { "away" => [0] } })["g"]["away"][0].offset
  end

  # librdkafka's own pause before the next attempt does not count.
  def test_a_call_after_one_that_found_no_broker_connects_at_once
    cluster = own_cluster(brokers: 1)
    one = unreachable(servers: cluster.bootstrap_servers, "reconnect.backoff.ms": 8_000, "reconnect.backoff.max.ms": 8_000)
    cluster.broker_down(1)
    assert_unreachable(WAYS["a_question"], one)
    cluster.broker_up(1)
    assert_took(SOON, seconds_of { one.topics(timeout: LONG) })
  end

  # Such as the proxy of a container whose Kafka has stopped. A client that a broker has served is not rejected.
  def test_a_port_that_hangs_up_since_the_client_was_replaced_does_not_reject_it
    cluster = own_cluster(brokers: 1)
    servers = cluster.bootstrap_servers
    one = admin(servers:, "reconnect.backoff.max.ms": 100) do |config|
      config.unreachable_timeout = 400
      config.rejection_timeout = 100
    end
    one.topics
    cluster.close
    assert_unreachable(WAYS["a_question"], one)
    port_that_hangs_up(Integer(servers[/\d+\z/]))
    WAYS.each_value { |way| assert_raises(Penstock::AdminTimeoutError) { way.call(one, timeout: 2) } }
  end

  def test_a_call_that_waits_goes_on_if_a_broker_comes_back_soon_enough
    cluster = own_cluster(brokers: 1)
    one = admin(servers: cluster.bootstrap_servers, "reconnect.backoff.max.ms": 100) do |config|
      config.unreachable_timeout = 20_000
    end
    one.topics
    cluster.broker_down(1)
    call = waiting(one, WAYS["a_question"])
    cluster.broker_up(1)
    assert_kind_of Penstock::Admin::Results, call.value
  end

  # The system accepts the connections of a process that is stopped.
  def test_a_broker_that_accepts_connections_and_does_not_answer_is_reachable
    one = admin(servers: "127.0.0.1:1,#{frozen_broker}") { |config| config.unreachable_timeout = 100 }
    WAYS.each_value { |way| assert_raises(Penstock::AdminTimeoutError) { way.call(one, timeout: 1.5) } }
  end

  # librdkafka gives up a connection on which nothing was answered, and makes the next one.
  slow def test_a_silent_broker_stays_reachable_while_connections_to_it_are_made_again
    kafka = { "api.version.request.timeout.ms": 300, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20 }
    one = admin(servers: "127.0.0.1:1,#{frozen_broker}", **kafka) do |config|
      config.unreachable_timeout = 100
      config.rejection_timeout = 100
    end
    WAYS.each_value { |way| assert_raises(Penstock::AdminTimeoutError) { way.call(one, timeout: 3) } }
  end

  def test_one_broker_of_several_suffices
    cluster = own_cluster(brokers: 1)
    one = unreachable(servers: "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3,#{cluster.bootstrap_servers}")
    5.times { assert_kind_of Penstock::Admin::Results, one.topics(timeout: LONG) }
  end

  def test_without_an_unreachable_timeout_calls_wait_for_their_own
    one = admin(servers: "127.0.0.1:1") { |config| config.unreachable_timeout = 0 }
    CALLS.each_value { |call| assert_raises(Penstock::AdminTimeoutError) { call.call(one, timeout: 1.3) } }
  end

  def test_an_invalid_timeout_is_named
    [-1, 99, "1", nil, 1.5].each do |wrong|
      error = assert_raises(Penstock::ConfigurationInvalidError) { admin { |config| config.unreachable_timeout = wrong } }
      assert_match(/unreachable_timeout/, error.message)
    end
  end

  def test_a_close_and_an_interrupt_still_end_a_call
    one = admin(servers: "127.0.0.1:1") { |config| config.unreachable_timeout = 30_000 }
    WAYS.each_value do |way|
      assert_raises(Timeout::Error) { Timeout.timeout(0.1) { way.call(one, timeout: LONG) } }
    end
    threads = WAYS.each_value.map { |way| waiting(one, way) }
    assert one.close
    threads.each { |thread| assert_raises(Penstock::AdminClosedError) { thread.value } }
  end
end

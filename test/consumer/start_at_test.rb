# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# config.start_at: where a group begins partitions for which it has not committed an offset.
class ConsumerStartAtTest < ConsumerTestCase
  include SharedCluster::ForGroups

  slow(/begins|again|precedence|closes|keep_alive/) # they join groups, which takes some seconds

  def filled(count, partitions: 1)
    topic(partitions:).tap do |name|
      partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:) }
    end
  end

  def member(name, start_at, group: "group-#{rand(2**32)}", listener: nil, **kafka)
    settings = { "group.id": group, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 100, **kafka }
    made = consumer(**settings) do |config|
      config.start_at = start_at
      config.rebalance_listener = listener
    end
    made.subscribe(name)
  end

  def offsets(consumer, count) = take(consumer, count).map { |message| [message.partition, message.offset] }.sort

  # The consumer's question for committed offsets fails so often.
  def unanswered(consumer, times)
    failures = Array.new(times) do
      Penstock.const_get(:ErrorFactory).build(Penstock::ConsumeTimeoutError, "no answer", consumer_id: consumer.id)
    end
    Internal.of(consumer).client.define_singleton_method(:committed_offsets) do |*given|
      error = failures.pop
      error ? raise(error) : super(*given)
    end
    failures
  end

  def settings(start_at, **kafka)
    Penstock::Consumer.new("bootstrap.servers": "127.0.0.1:1", **kafka) { |config| config.start_at = start_at }.config.kafka
  end

  slow def test_only_partitions_without_a_committed_offset_begin_there
    name = filled(5, partitions: 2)
    group_consumer("group-#{name}").commit({ name => { 0 => 1 } })
    one = member(name, [:last, 2], group: "group-#{name}")
    assert_equal [[0, 1], [0, 2], [0, 3], [0, 4], [1, 3], [1, 4]], offsets(one, 6)
  end

  # No message is so late: the end. (The embedded cluster does not search by time, and always answers so.)
  def test_a_group_begins_at_a_time
    name = filled(3)
    one = member(name, Time.now + 60, "auto.offset.reset": "earliest")
    starts = []
    one.monitor.subscribe("rebalance.partitions_assigned") { |event| starts << event[:starts] }
    eventually { one.poll(timeout: 0.1).tap { |message| assert_nil message, starts.inspect } || starts.any? }
    assert_equal [{ name => { 0 => { offset: 3, reason: :start_at } } }], starts
    produce(name, ["new"])
    assert_equal ["new", 3], take(one, 1).first.then { |message| [message.payload, message.offset] }
  end

  def test_a_cooperative_member_begins_there
    name = filled(4)
    assert_equal [[0, 3]], offsets(member(name, [:last, 1], "partition.assignment.strategy": "cooperative-sticky"), 1)
  end

  def test_a_listeners_place_has_precedence
    name = filled(4, partitions: 2)
    listener = Object.new
    listener.define_singleton_method(:assigned) { |rebalance| rebalance.start_at(name, 0, 2) }
    assert_equal [[0, 2], [0, 3], [1, 3]], offsets(member(name, [:last, 1], listener:), 3)
  end

  def test_it_begins_there_if_the_listener_raises
    name = filled(4)
    listener = Object.new
    listener.define_singleton_method(:assigned) { |_| raise "cannot prepare" }
    one = member(name, [:last, 1], listener:)
    assert_raises(RuntimeError) { take(one, 1) }
    assert_equal [[0, 3]], offsets(one, 1)
  end

  def test_polls_raise_and_ask_again_while_nobody_answers
    name = filled(4)
    told = []
    listener = Object.new
    listener.define_singleton_method(:assigned) { |rebalance| told << rebalance.partitions }
    one = member(name, [:last, 1], listener:, "auto.offset.reset": "earliest")
    failures = unanswered(one, 3)
    seen = Queue.new
    one.monitor.subscribe("error.occurred") { |event| seen << event.payload }
    3.times { assert_raises(Penstock::ConsumeTimeoutError) { take(one, 1) } }
    assert_empty failures
    assert_empty told
    assert_equal({}, one.assignment)
    assert_equal [[0, 3]], offsets(one, 1)
    assert_equal [{ name => [0] }], told
    assert_equal 3, seen.size
    payload = seen.pop
    assert_equal ["consumer.start_at", { name => [0] }], payload.values_at(:type, :partitions)
  end

  # A program that rescues the error and polls on would keep a processor and the brokers busy.
  slow def test_errors_that_come_at_once_are_raised_at_most_once_a_second
    one = member(filled(1), [:last, 1])
    unanswered(one, 1_000)
    assert_raises(Penstock::ConsumeTimeoutError) { take(one, 1) }
    seconds = seconds_of { 2.times { assert_raises(Penstock::ConsumeTimeoutError) { one.poll(timeout: 5) } } }
    assert_operator seconds, :>=, 1.9
  end

  def test_an_interrupt_of_the_question_leaves_it_to_the_next_poll_again
    name = filled(4)
    one = member(name, [:last, 1], "auto.offset.reset": "earliest")
    asking = Queue.new
    first = true
    Internal.of(one).client.define_singleton_method(:committed_offsets) do |*given|
      if first
        first = false
        asking << true
        sleep
      end
      super(*given)
    end
    thread = quiet_thread { one.poll(timeout: 30) }
    asking.pop
    thread.raise(IOError, "enough")
    assert_raises(IOError) { thread.join }
    assert_equal [[0, 3]], offsets(one, 1)
  end

  def test_it_closes_while_nobody_answers
    name = filled(1)
    one = member(name, [:last, 1])
    unanswered(one, 1)
    assert_raises(Penstock::ConsumeTimeoutError) { take(one, 1) }
    started = now
    one.close
    assert_took(9, now - started)
  end

  def test_keep_alive_asks_too_and_raises_after_the_block
    name = filled(4)
    one = member(name, [:last, 1])
    failures = unanswered(one, 1)
    error = assert_raises(Penstock::ConsumeTimeoutError) do
      one.keep_alive { eventually { failures.empty? && one.assignment == { name => [0] } } }
    end
    assert_match(/No answer/, error.message)
    assert_equal [[0, 3]], offsets(one, 1)
  end

  def test_the_fed_client_begins_there
    one = Penstock::Consumer.new("bootstrap.servers": "127.0.0.1:1", "group.id": "g") do |config|
      config.client_class = Penstock::Clients::InMemoryConsumer
      config.start_at = [:last, 1]
    end
    3.times { |i| one.client.feed(topic: "orders", payload: i.to_s) }
    one.client.fail_next(:_timed_out, on: :committed)
    one.subscribe("orders")
    assert_raises(Penstock::Error) { one.poll }
    assert_equal "2", one.poll.payload
  end

  # ---- settings ----

  def test_beginning_and_end_stand_for_auto_offset_reset
    assert_equal "earliest", settings(:beginning, "group.id": "g")[:"auto.offset.reset"]
    assert_equal "latest", settings(:end)[:"auto.offset.reset"]
    assert_equal "smallest", settings(:beginning, "auto.offset.reset" => "smallest")[:"auto.offset.reset"]
    refute_includes settings(nil), :"auto.offset.reset"
    refute_includes settings([:last, 5], "group.id": "g"), :"auto.offset.reset"
  end

  def test_another_auto_offset_reset_contradicts_it
    [{ "auto.offset.reset": "latest" }, { "auto.offset.reset" => "error" }].each do |kafka|
      error = assert_raises(Penstock::ConfigurationInvalidError) { settings(:beginning, **kafka) }
      assert_match(/start_at :beginning stands for auto\.offset\.reset "earliest".*set only one/, error.message)
    end
    assert_equal "latest", settings(Time.now, "group.id": "g", "auto.offset.reset": "latest")[:"auto.offset.reset"]
  end

  def test_other_values_raise
    [:stored, 5, "beginning", [:last], [:last, -1], [:last, 1.5], [:first, 1], Time.at(-1), [], {}].each do |wrong|
      error = assert_raises(Penstock::ConfigurationInvalidError, wrong.inspect) { settings(wrong, "group.id": "g") }
      assert_match(/config\.start_at must be/, error.message)
    end
    error = assert_raises(Penstock::ConfigurationInvalidError) { settings([:last, 5]) }
    assert_match(/requires config.kafka\["group.id"\]/, error.message)
  end
end

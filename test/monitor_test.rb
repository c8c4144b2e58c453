# frozen_string_literal: true

require_relative "test_helper"

class MonitorTest < PenstockTest
  ACKNOWLEDGED = "message.acknowledged"
  ERROR = "error.occurred"

  def setup
    super
    @monitor = Penstock::Monitor.new
    @seen = []
  end

  def record(event = ACKNOWLEDGED, &block)
    @monitor.subscribe(event) { |it| @seen << (block ? block.call(it) : it) }
  end

  class Listener
    attr_reader :seen

    def initialize = @seen = []
    def on_message_acknowledged(event) = @seen << event.id
    def on_error_occurred(event) = @seen << event[:error]
    def on_something_else(_event) = raise("not an event")
  end

  # ---- who is told what ----

  def test_a_block_is_told_of_its_event_with_the_payload
    record
    assert_nil @monitor.instrument(ACKNOWLEDGED, { producer_id: "p", offset: 3 })
    @monitor.instrument("producer.closed", { producer_id: "p" })
    assert_equal [[ACKNOWLEDGED, { producer_id: "p", offset: 3 }]], (@seen.map { |event| [event.id, event.payload] })
    assert_equal [3, { producer_id: "p", offset: 3 }], [@seen[0][:offset], @seen[0].to_h]
  end

  def test_an_object_is_told_of_the_events_that_it_has_methods_for
    listener = @monitor.subscribe(Listener.new)
    @monitor.instrument(ACKNOWLEDGED)
    @monitor.instrument("producer.closed")
    @monitor.instrument(ERROR, { error: :it })
    assert_equal [ACKNOWLEDGED, :it], listener.seen
  end

  def test_listeners_are_told_in_the_order_they_subscribed
    3.times { |i| record { i } }
    @monitor.instrument(ACKNOWLEDGED)
    assert_equal [0, 1, 2], @seen
  end

  def test_a_symbol_names_an_event_as_a_string_does
    record(:"message.acknowledged", &:id)
    assert @monitor.listening?(:"message.acknowledged")
    @monitor.instrument(:"message.acknowledged")
    assert_equal [ACKNOWLEDGED], @seen
  end

  def test_an_event_is_immutable_and_does_not_show_values
    record
    payload = { payload: "secret" }
    @monitor.instrument(ACKNOWLEDGED, payload)
    assert_raises(FrozenError) { @seen[0].payload[:more] = 1 }
    refute_predicate payload, :frozen?
    refute_includes @seen[0].inspect, "secret"
    assert_raises(KeyError) { @seen[0][:missing] }
  end

  # ---- blocks ----

  def test_the_blocks_value_comes_back_and_its_time_is_in_the_event
    record
    assert_equal 5, @monitor.instrument("message.acknowledged", { a: 1 }) { 5 }
    assert_kind_of Float, @seen[0][:time]
    assert_operator @seen[0][:time], :>=, 0
    assert_equal 1, @seen[0][:a]
    @monitor.clear
    assert_equal(6, @monitor.instrument(ACKNOWLEDGED) { 6 })
  end

  def test_the_time_is_in_milliseconds
    record { |event| event[:time] }
    @monitor.instrument(ACKNOWLEDGED) { sleep 0.05 }
    assert_includes 50.0..20_000.0, @seen[0]
  end

  def test_there_is_no_event_when_the_block_does_not_return
    record
    assert_raises(KeyError) { @monitor.instrument(ACKNOWLEDGED) { raise KeyError } }
    catch(:out) { @monitor.instrument(ACKNOWLEDGED) { throw :out } }
    assert_empty @seen
  end

  def test_an_event_happens_after_its_block
    record { :event }
    @monitor.instrument(ACKNOWLEDGED) { @seen << :block }
    assert_equal %i[block event], @seen
  end

  # ---- names ----

  def test_the_names_are_those_of_a_producer
    assert_includes @monitor.available_events, ACKNOWLEDGED
    assert_includes @monitor.available_events, "transaction.marked_as_consumed"
    assert_equal @monitor.available_events.uniq, @monitor.available_events
    @monitor.available_events.each { |event| refute @monitor.listening?(event) }
  end

  def test_an_unknown_event_is_refused_everywhere_with_the_nearest
    called = false
    [-> { @monitor.subscribe("message.acknowleged") { nil } }, -> { @monitor.clear("message.acknowleged") },
     -> { @monitor.listening?("message.acknowleged") },
     -> { @monitor.instrument("message.acknowleged") { called = true } }].each do |call|
      error = assert_raises(Penstock::EventUnknownError, &call)
      assert_includes error.message, 'did you mean "message.acknowledged"?'
    end
    refute called
  end

  def test_what_cannot_listen_is_refused
    assert_raises(ArgumentError) { @monitor.subscribe(ACKNOWLEDGED) }
    error = assert_raises(ArgumentError) { @monitor.subscribe(Object.new) }
    assert_match(/on_message_acknowledged; Object has none/, error.message)
    assert_raises(ArgumentError) { @monitor.subscribe(Listener.new) { nil } }
  end

  # ---- no longer listening ----

  def test_unsubscribe_takes_a_block_or_an_object_from_all_events
    block = record
    listener = @monitor.subscribe(Listener.new)
    assert_equal [true, false], Array.new(2) { @monitor.unsubscribe(block) }
    assert @monitor.listening?(ERROR)
    assert @monitor.unsubscribe(listener)
    refute(@monitor.available_events.any? { |event| @monitor.listening?(event) })
    @monitor.instrument(ACKNOWLEDGED)
    assert_equal [[], []], [@seen, listener.seen]
  end

  def test_clear_forgets_the_listeners_of_one_event_or_of_all
    [ACKNOWLEDGED, ERROR, "producer.closed"].each { |event| record(event) }
    assert @monitor.clear(ACKNOWLEDGED)
    assert_equal([false, true], [ACKNOWLEDGED, ERROR].map { |event| @monitor.listening?(event) })
    assert_equal [true, false], [@monitor.clear, @monitor.clear]
    refute @monitor.listening?(ERROR)
  end

  def test_a_listener_that_leaves_while_it_is_told_keeps_none_from_being_told
    2.times { |i| record { i } }
    leaving = @monitor.subscribe(ACKNOWLEDGED) { @monitor.unsubscribe(leaving) }
    2.times { |i| record { i + 2 } }
    2.times { @monitor.instrument(ACKNOWLEDGED) }
    assert_equal [0, 1, 2, 3] * 2, @seen
  end

  def test_who_subscribes_during_an_event_is_told_from_the_next_on
    once = true
    @monitor.subscribe(ACKNOWLEDGED) do
      record { :late } if once
      once = false
    end
    @monitor.instrument(ACKNOWLEDGED)
    assert_empty @seen
    @monitor.instrument(ACKNOWLEDGED)
    assert_equal [:late], @seen
  end

  # ---- listeners that raise ----

  def test_a_listener_that_raises_breaks_neither_the_caller_nor_later_listeners
    errors = []
    @monitor.subscribe(ERROR) { |event| errors << event.to_h }
    problem = KeyError.new("mine")
    @monitor.subscribe(ACKNOWLEDGED) { raise problem }
    record(&:id)
    assert_equal(7, @monitor.instrument(ACKNOWLEDGED, { producer_id: "p" }) { 7 })
    assert_equal [ACKNOWLEDGED], @seen
    assert_equal [{ type: "callbacks.delivery.error", error: problem, event: ACKNOWLEDGED, producer_id: "p" }], errors
  end

  def test_a_listener_with_an_unwritten_or_endless_method_harms_nobody
    errors = []
    @monitor.subscribe(ERROR) { |event| errors << event[:error].class }
    @monitor.subscribe(ACKNOWLEDGED) { raise NotImplementedError }
    endless = -> { endless.call }
    @monitor.subscribe(ACKNOWLEDGED) { endless.call }
    @monitor.instrument(ACKNOWLEDGED)
    assert_equal [NotImplementedError, SystemStackError], errors
  end

  def test_without_a_listener_of_errors_there_is_one_warning
    @monitor.subscribe(ACKNOWLEDGED) { raise KeyError, "mine" }
    _, text = capture_io { @monitor.instrument(ACKNOWLEDGED) }
    assert_match(/\Apenstock: a listener of message\.acknowledged raised KeyError: mine \(.*monitor_test.rb:\d+.*\)\n\z/, text)
  end

  def test_a_listener_of_errors_that_raises_gets_a_warning_and_no_event
    calls = 0
    @monitor.subscribe(ERROR) { (calls += 1) && raise("second") }
    @monitor.subscribe(ACKNOWLEDGED) { raise KeyError, "first" }
    _, text = capture_io { @monitor.instrument(ACKNOWLEDGED) }
    assert_equal [1, 1], [calls, text.lines.size]
    assert_match(/a listener of error\.occurred raised RuntimeError: second .*when it handled KeyError: first/, text)
  end

  def test_every_listener_of_errors_is_told_though_one_raises
    @monitor.subscribe(ERROR) { raise "first" }
    record(ERROR) { |event| event[:type] }
    @monitor.subscribe(ACKNOWLEDGED) { raise KeyError }
    capture_io { @monitor.instrument(ACKNOWLEDGED) }
    assert_equal ["callbacks.delivery.error"], @seen
  end

  def test_with_no_stderr_a_raising_listener_still_breaks_nothing
    @monitor.subscribe(ACKNOWLEDGED) { raise KeyError }
    before = $stderr
    $stderr = StringIO.new.tap(&:close_write)
    assert_equal(1, @monitor.instrument(ACKNOWLEDGED) { 1 })
  ensure
    $stderr = before
  end

  def test_what_ends_a_thread_or_the_process_is_not_held_up
    record
    [Interrupt, SystemExit].each do |error|
      listener = @monitor.subscribe(ACKNOWLEDGED) { raise error, "now" }
      assert_raises(error) { @monitor.instrument(ACKNOWLEDGED) }
      @monitor.unsubscribe(listener)
    end
  end

  # ---- threads, traps ----

  def test_threads_that_subscribe_lose_nobody_while_others_emit
    count = 0
    @monitor.subscribe(ACKNOWLEDGED) { count += 1 }
    threads = Array.new(3) do
      Thread.new { 100.times { @monitor.unsubscribe(@monitor.subscribe(ACKNOWLEDGED) { nil }) && record(ERROR) } }
    end
    100.times { @monitor.instrument(ACKNOWLEDGED) }
    threads.each(&:join)
    @monitor.instrument(ERROR)
    assert_equal [100, 300], [count, @seen.size]
  end

  def test_a_signal_trap_may_cause_events
    record(&:id)
    before = trap(:USR2) { @monitor.instrument(ACKNOWLEDGED) if @monitor.listening?(ACKNOWLEDGED) }
    Process.kill(:USR2, Process.pid)
    eventually { @seen == [ACKNOWLEDGED] }
  ensure
    trap(:USR2, before)
  end

  def test_it_shows_who_listens_to_what
    record
    assert_includes @monitor.inspect, "message.acknowledged=1"
  end
end

# frozen_string_literal: true

require_relative "../test_helper"

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

  # ---- which listeners are notified ----

  # behaviour: subscribe, unsubscribe, clear, available_events
  def test_a_block_is_called_with_its_event_and_the_payload
    record
    assert_nil @monitor.instrument(ACKNOWLEDGED, { producer_id: "p", offset: 3 })
    @monitor.instrument("producer.closed", { producer_id: "p" })
    assert_equal [[ACKNOWLEDGED, { producer_id: "p", offset: 3 }]], (@seen.map { |event| [event.id, event.payload] })
    assert_equal [3, { producer_id: "p", offset: 3 }], [@seen[0][:offset], @seen[0].to_h]
  end

  # behaviour: subscribe, unsubscribe, clear, available_events
  def test_an_object_is_notified_of_the_events_that_it_has_methods_for
    listener = @monitor.subscribe(Listener.new)
    @monitor.instrument(ACKNOWLEDGED)
    @monitor.instrument("producer.closed")
    @monitor.instrument(ERROR, { error: :it })
    assert_equal [ACKNOWLEDGED, :it], listener.seen
  end

  def test_listeners_are_notified_in_order_of_subscription
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

  def test_instrument_returns_the_blocks_value_and_the_event_has_its_time
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

  def test_no_event_is_published_when_the_block_does_not_return
    record
    assert_raises(KeyError) { @monitor.instrument(ACKNOWLEDGED) { raise KeyError } }
    catch(:out) { @monitor.instrument(ACKNOWLEDGED) { throw :out } }
    assert_empty @seen
  end

  def test_an_event_is_published_after_its_block
    record { :event }
    @monitor.instrument(ACKNOWLEDGED) { @seen << :block }
    assert_equal %i[block event], @seen
  end

  # ---- names ----

  # behaviour: subscribe, unsubscribe, clear, available_events
  def test_available_events_lists_a_producers_events
    assert_includes @monitor.available_events, ACKNOWLEDGED
    assert_includes @monitor.available_events, "transaction.marked_as_consumed"
    assert_equal @monitor.available_events.uniq, @monitor.available_events
    @monitor.available_events.each { |event| refute @monitor.listening?(event) }
  end

  # behaviour: subscribe, unsubscribe, clear, available_events
  def test_an_unknown_event_raises_everywhere_and_the_error_names_the_nearest
    called = false
    [-> { @monitor.subscribe("message.acknowleged") { nil } }, -> { @monitor.clear("message.acknowleged") },
     -> { @monitor.listening?("message.acknowleged") },
     -> { @monitor.instrument("message.acknowleged") { called = true } }].each do |call|
      error = assert_raises(Penstock::EventUnknownError, &call)
      assert_includes error.message, 'did you mean "message.acknowledged"?'
    end
    refute called
  end

  def test_an_object_that_cannot_listen_is_rejected
    assert_raises(ArgumentError) { @monitor.subscribe(ACKNOWLEDGED) }
    error = assert_raises(ArgumentError) { @monitor.subscribe(Object.new) }
    assert_match(/on_message_acknowledged; Object has none/, error.message)
    assert_raises(ArgumentError) { @monitor.subscribe(Listener.new) { nil } }
  end

  # ---- unsubscribing ----

  # behaviour: subscribe, unsubscribe, clear, available_events
  def test_unsubscribe_removes_a_block_or_an_object_from_all_events
    block = record
    listener = @monitor.subscribe(Listener.new)
    assert_equal [true, false], Array.new(2) { @monitor.unsubscribe(block) }
    assert @monitor.listening?(ERROR)
    assert @monitor.unsubscribe(listener)
    refute(@monitor.available_events.any? { |event| @monitor.listening?(event) })
    @monitor.instrument(ACKNOWLEDGED)
    assert_equal [[], []], [@seen, listener.seen]
  end

  # behaviour: subscribe, unsubscribe, clear, available_events
  def test_clear_removes_the_listeners_of_one_event_or_of_all
    [ACKNOWLEDGED, ERROR, "producer.closed"].each { |event| record(event) }
    assert @monitor.clear(ACKNOWLEDGED)
    assert_equal([false, true], [ACKNOWLEDGED, ERROR].map { |event| @monitor.listening?(event) })
    assert_equal [true, false], [@monitor.clear, @monitor.clear]
    refute @monitor.listening?(ERROR)
  end

  def test_a_listener_that_unsubscribes_during_an_event_does_not_affect_the_others
    2.times { |i| record { i } }
    leaving = @monitor.subscribe(ACKNOWLEDGED) { @monitor.unsubscribe(leaving) }
    2.times { |i| record { i + 2 } }
    2.times { @monitor.instrument(ACKNOWLEDGED) }
    assert_equal [0, 1, 2, 3] * 2, @seen
  end

  def test_a_listener_that_subscribes_during_an_event_gets_the_next_one
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

  # behaviour: error.occurred of listeners
  def test_a_listener_that_raises_affects_neither_the_caller_nor_later_listeners
    errors = []
    @monitor.subscribe(ERROR) { |event| errors << event.to_h }
    problem = KeyError.new("mine")
    @monitor.subscribe(ACKNOWLEDGED) { raise problem }
    record(&:id)
    assert_equal(7, @monitor.instrument(ACKNOWLEDGED, { producer_id: "p" }) { 7 })
    assert_equal [ACKNOWLEDGED], @seen
    assert_equal [{ type: "callbacks.delivery.error", error: problem, event: ACKNOWLEDGED, producer_id: "p" }], errors
  end

  def test_a_listener_with_an_unimplemented_or_endless_method_affects_no_other
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

  def test_every_error_listener_is_notified_even_if_one_raises
    @monitor.subscribe(ERROR) { raise "first" }
    record(ERROR) { |event| event[:type] }
    @monitor.subscribe(ACKNOWLEDGED) { raise KeyError }
    capture_io { @monitor.instrument(ACKNOWLEDGED) }
    assert_equal ["callbacks.delivery.error"], @seen
  end

  def test_without_stderr_a_raising_listener_still_does_no_harm
    @monitor.subscribe(ACKNOWLEDGED) { raise KeyError }
    before = $stderr
    $stderr = StringIO.new.tap(&:close_write)
    assert_equal(1, @monitor.instrument(ACKNOWLEDGED) { 1 })
  ensure
    $stderr = before
  end

  def test_exceptions_that_end_a_thread_or_the_process_pass_through
    record
    [Interrupt, SystemExit].each do |error|
      listener = @monitor.subscribe(ACKNOWLEDGED) { raise error, "now" }
      assert_raises(error) { @monitor.instrument(ACKNOWLEDGED) }
      @monitor.unsubscribe(listener)
    end
  end

  # ---- threads, traps ----

  def test_no_listener_is_lost_when_threads_subscribe_while_others_publish
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

  def test_events_may_be_published_in_a_signal_trap
    record(&:id)
    before = trap(:USR2) { @monitor.instrument(ACKNOWLEDGED) if @monitor.listening?(ACKNOWLEDGED) }
    Process.kill(:USR2, Process.pid)
    eventually { @seen == [ACKNOWLEDGED] }
  ensure
    trap(:USR2, before)
  end

  def test_inspect_shows_the_number_of_listeners_of_each_event
    record
    assert_includes @monitor.inspect, "message.acknowledged=1"
  end
end

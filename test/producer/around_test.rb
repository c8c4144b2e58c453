# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"

# Hooks around each call that sends.
class ProducerAroundTest < ProducerTestCase
  slow(/that_ends_before_it_sends/)

  include FreshCluster

  MESSAGE = { topic: "events", payload: "x" }.freeze
  WAYS = {
    produce_sync: [MESSAGE, :produce_sync, 1, true], produce_async: [MESSAGE, :produce_async, 1, false],
    produce_many_sync: [[MESSAGE] * 2, :produce_many_sync, 2, true],
    produce_many_async: [[MESSAGE] * 2, :produce_many_async, 2, false],
    tombstone_sync: [{ topic: "events", key: "k", partition: 0 }, :produce_sync, 1, true]
  }.freeze

  def setup
    super
    @seen = []
  end

  # A producer that keeps the messages in memory.
  def buffered(**kafka)
    producer(**kafka) do |config|
      config.client_class = Penstock::Clients::Buffered
      yield config if block_given?
    end
  end

  def sent(producer) = producer.client.messages.map { |message| message[:payload] }

  # Adds a hook that notes when it begins and ends.
  def noting(producer, name)
    producer.around do |sending|
      @seen << :"#{name} begins"
      sending.call
    ensure
      @seen << :"#{name} ends"
    end
  end

  def error_events(producer)
    [].tap { |errors| producer.monitor.subscribe("error.occurred") { |event| errors << event.payload } }
  end

  # ---- what a hook sees and may change ----

  WAYS.each do |method, (given, operation, size, sync)|
    # behaviour: around
    define_method(:"test_a_hook_wraps_#{method}_and_the_caller_gets_its_result") do
      producer = buffered
      producer.around do |sending|
        @seen << [sending.producer, sending.operation, sending.messages.size, sending.sync?, sending.many?, sending.called?]
        @seen << sending.call << sending.called?
        "the return value of a hook is ignored"
      end
      result = producer.public_send(method, given)
      assert_equal [[producer, operation, size, sync, size > 1, false], result, true], @seen
      assert_equal size, producer.client.messages.size
    end
  end

  def test_hooks_run_in_order_after_the_middleware_with_the_first_hook_outermost
    producer = buffered
    producer.middleware.append { |message| message.tap { @seen << :middleware } }
    assert_same producer, noting(producer, "outer")
    noting(producer, "inner")
    producer.produce_sync(MESSAGE)
    assert_equal [:middleware, :"outer begins", :"inner begins", :"inner ends", :"outer ends"], @seen
  end

  # behaviour: around
  slow def test_replaced_messages_reach_inner_hooks_and_kafka_and_the_callers_stay_unchanged
    name = topic(partitions: 1)
    producer = self.producer
    %w[a b].each do |letter|
      producer.around do |sending|
        @seen << sending.messages.map { |message| message[:headers] }
        sending.messages = sending.messages.map { |message| message.merge(headers: { **message[:headers].to_h, letter => "1" }) }
        sending.call
      end
    end
    message = { topic: name, payload: "x", headers: { "own" => "1" }.freeze }.freeze
    producer.produce_sync(message)
    handles = producer.produce_many_sync([message, message])
    assert_equal 2, handles.size
    assert_equal [{ "own" => "1" }, { "own" => "1", "a" => "1" }], @seen[0..1].flatten
    headers = stored(name).map { |record| record.headers.to_h }
    assert_equal [{ "own" => "1", "a" => "1", "b" => "1" }] * 3, headers
  end

  # behaviour: HookError
  def test_replacements_must_be_as_many_hashes_and_come_before_the_call
    producer = buffered
    producer.around do |sending|
      [[MESSAGE], [MESSAGE] * 3, [MESSAGE, "x"], MESSAGE, nil].each do |messages|
        assert_match(/2 Hashes/, assert_raises(Penstock::HookError) { sending.messages = messages }.message)
      end
      assert_raises(FrozenError) { sending.messages << MESSAGE }
      sending.call
      assert_match(/after they were sent/, assert_raises(Penstock::HookError) { sending.messages = [MESSAGE] * 2 }.message)
      @seen << sending.messages
    end
    producer.produce_many_sync([MESSAGE] * 2)
    assert_equal [[MESSAGE] * 2], @seen
  end

  def test_a_hook_runs_in_the_thread_and_fiber_that_sends
    producer = buffered
    producer.around { |sending| sending.call.tap { @seen << Fiber.current } }
    Fiber.new { producer.produce_sync(MESSAGE).tap { @seen << Fiber.current } }.resume
    assert_equal 2, @seen.size
    assert_same(*@seen)
  end

  def test_a_hook_must_respond_to_call
    hook = Class.new { def self.call(sending) = sending.call }
    producer = buffered.around(hook)
    assert_equal 0, producer.produce_sync(MESSAGE).offset
    assert_match(/respond to call/, assert_raises(ArgumentError) { producer.around("text") }.message)
    assert_raises(ArgumentError) { producer.around }
    assert_raises(ArgumentError) { producer.around(hook) { nil } }
  end

  def test_hooks_do_not_run_for_invalid_calls_and_empty_batches
    producer = buffered
    producer.around { flunk "asked" }
    assert_raises(Penstock::MessageInvalidError) { producer.produce_sync("text") }
    assert_raises(Penstock::MessageInvalidError) { producer.produce_many_sync([MESSAGE, "text"]) }
    assert_raises(Penstock::MessageInvalidError) { producer.produce_many_sync("text") }
    assert_equal [[], []], [producer.produce_many_sync([]), producer.flush_sync]
    producer.close
    assert_raises(Penstock::ProducerClosedError) { producer.produce_sync(MESSAGE) }
  end

  def test_a_hook_added_while_another_runs_applies_from_the_next_call_on
    producer = buffered
    producer.around { |sending| noting(producer, "late") && sending.call }
    producer.produce_sync(MESSAGE)
    assert_empty @seen
    producer.produce_sync(MESSAGE)
    assert_equal [:"late begins", :"late ends"], @seen
  end

  def test_threads_that_add_hooks_lose_none
    producer = buffered
    count = 0
    Array.new(4) { Thread.new { 50.times { producer.around { |sending| sending.call.tap { count += 1 } } } } }.each(&:join)
    producer.produce_sync(MESSAGE)
    assert_equal 200, count
  end

  def test_events_of_the_call_are_published_inside_the_hooks_with_the_sent_messages
    producer = buffered
    noting(producer, "hook")
    producer.around { |sending| (sending.messages = [MESSAGE.merge(payload: "other")]) && sending.call }
    producer.monitor.subscribe("message.produced_sync") { |event| @seen << event[:message][:payload] }
    producer.produce_sync(MESSAGE)
    assert_equal [:"hook begins", "other", :"hook ends"], @seen
  end

  def test_a_listener_of_producer_created_may_add_hooks
    listener = Penstock.monitor.subscribe("producer.created") { |event| noting(event[:producer], "hook") }
    buffered.produce_sync(MESSAGE)
    assert_equal [:"hook begins", :"hook ends"], @seen
  ensure
    Penstock.monitor.unsubscribe(listener)
  end

  # ---- errors of hooks, and errors that hooks hide ----

  WAYS.each do |method, (given, *)|
    # behaviour: around
    define_method(:"test_an_error_of_a_hook_before_#{method}_is_raised_and_nothing_is_sent") do
      producer = buffered
      errors = error_events(producer)
      noting(producer, "outer")
      producer.around { raise KeyError, "mine" }
      assert_equal "mine", assert_raises(KeyError) { producer.public_send(method, given) }.message
      assert_empty producer.client.messages
      assert_equal [:"outer begins", :"outer ends"], @seen
      assert_empty errors
    end

    # behaviour: error.occurred of hooks
    define_method(:"test_an_error_of_a_hook_after_#{method}_is_an_event_and_the_caller_gets_the_result") do
      producer = buffered
      errors = error_events(producer)
      hook = ->(sending) { sending.call && raise(KeyError, "mine") }
      producer.around(hook)
      result = Array(producer.public_send(method, given))
      assert_equal [given].flatten.size, result.size
      assert_equal result.size, producer.client.messages.size
      assert_equal [["around.error", "mine", producer]],
                   (errors.map { |event| [event[:type], event[:error].message, event[:caller]] })
      assert_match(/Proc at .*around_test\.rb:\d+/, errors[0][:hook])
    end
  end

  def test_an_error_of_a_hook_after_the_send_is_a_warning_without_listeners
    producer = buffered
    producer.around { |sending| sending.call && raise(KeyError, "mine") }
    report = nil
    _, warning = capture_io { report = producer.produce_sync(MESSAGE) }
    assert_equal 0, report.offset
    assert_match(/\Apenstock: the hook Proc at \S+ raised KeyError: mine \(.*\), after the messages were sent\n\z/, warning)
  end

  def test_a_failure_passes_the_hooks_and_is_published_as_without_them
    producer = buffered
    producer.client.fail_next(:msg_timed_out)
    errors = error_events(producer)
    producer.around do |sending|
      sending.call
    ensure
      @seen << sending.error
    end
    error = assert_raises(Penstock::MessageTimedOutError) { producer.produce_sync(MESSAGE) }
    assert_equal [error], @seen
    assert_equal %w[librdkafka.dispatch_error message.produce_sync], errors.map { |event| event[:type] }.sort
  end

  def test_a_hook_can_neither_hide_nor_replace_a_failure
    producer = buffered
    producer.client.fail_next(:msg_timed_out, times: 2)
    hide = true
    producer.around do |sending|
      sending.call
    rescue Penstock::Error
      raise KeyError, "another" unless hide
    end
    assert_raises(Penstock::MessageTimedOutError) { producer.produce_sync(MESSAGE) }
    hide = false
    errors = error_events(producer)
    assert_raises(Penstock::MessageTimedOutError) { producer.produce_sync(MESSAGE) }
    assert_equal ["another"], (errors.filter_map { |event| event[:error].message if event[:type] == "around.error" })
  end

  # behaviour: HookError
  def test_a_hook_that_does_not_call_is_named_in_the_error_and_nothing_is_sent
    producer = buffered
    producer.around { :nothing }
    errors = error_events(producer)
    error = assert_raises(Penstock::HookError) { producer.produce_sync(MESSAGE) }
    assert_match(/Proc at \S+around_test\.rb:\d+ did not call [^.]*\. Nothing was sent\./, error.message)
    assert_empty producer.client.messages
    assert_equal [error], (errors.map { |event| event[:error] })
  end

  # behaviour: HookError
  def test_a_hook_that_calls_twice_sends_once
    producer = buffered
    producer.around { |sending| [sending.call, assert_raises(Penstock::HookError) { sending.call }] }
    assert_equal 0, producer.produce_sync(MESSAGE).offset
    assert_equal 1, producer.client.messages.size
  end

  def test_exceptions_that_are_no_standard_errors_are_raised_even_after_the_send
    producer = buffered
    producer.around { |sending| sending.call && raise(NoMemoryError, "mine") }
    assert_raises(NoMemoryError) { producer.produce_sync(MESSAGE) }
    assert_equal 1, producer.client.messages.size
  end

  def test_a_throw_passes_the_hooks_and_a_hook_that_stops_it_gets_an_error
    producer = buffered
    producer.client.script { throw :away, :thrown }
    noting(producer, "hook")
    assert_equal(:thrown, catch(:away) { producer.produce_sync(MESSAGE) })
    assert_equal [:"hook begins", :"hook ends"], @seen
    producer.around(Keeper.new)
    error = assert_raises(Penstock::HookError) { catch(:away) { producer.produce_sync(MESSAGE) } }
    assert_match(/ProducerAroundTest::Keeper .*a throw/, error.message)
  end

  # Swallows every way out of the send.
  class Keeper
    def call(sending)
      sending.call
    ensure
      return nil # rubocop:disable Lint/EnsureReturn -- the test needs it
    end
  end

  # ---- the buffer, variants, transactions ----

  def test_hooks_run_when_the_buffer_is_flushed_and_when_the_producer_closes
    producer = buffered
    producer.around { |sending| sending.call.tap { @seen << [sending.operation, sending.messages.size] } }
    producer.buffer_many([MESSAGE] * 3)
    assert_empty @seen
    producer.flush_sync
    producer.buffer(MESSAGE)
    producer.flush_async
    producer.buffer(MESSAGE)
    client = producer.client
    producer.close
    assert_equal [[:produce_many_sync, 3], [:produce_many_async, 1], [:produce_many_async, 1]], @seen
    assert_equal 5, client.messages.size
  end

  def test_an_error_of_a_hook_before_a_flush_leaves_all_messages_in_the_buffer
    producer = buffered
    fails = true
    producer.around { |sending| fails ? raise(KeyError, "mine") : sending.call }
    producer.buffer_many(Array.new(3) { |i| MESSAGE.merge(payload: i.to_s) })
    assert_raises(KeyError) { producer.flush_sync }
    assert_equal 3, producer.messages.size
    fails = false
    producer.flush_sync
    assert_equal %w[0 1 2], sent(producer)
  end

  [{}, { "transactional.id": "tx" }].each do |settings|
    define_method(:"test_an_exception_of_a_hook_after_a_flush#{"_and_its_transaction" if settings.any?}_puts_nothing_back") do
      producer = buffered(**settings)
      producer.around { |sending| sending.call && raise(NoMemoryError, "mine") }
      producer.buffer_many([MESSAGE] * 3)
      assert_raises(NoMemoryError) { producer.flush_sync }
      assert_empty producer.messages
      assert_equal 3, producer.client.messages.size
    end
  end

  def test_hooks_run_for_a_variant_and_see_it_as_the_current_one
    producer = buffered
    producer.around { |sending| sending.call.tap { @seen << sending.producer.current_variant.max_wait_timeout } }
    producer.with(max_wait_timeout: 123).produce_sync(MESSAGE)
    producer.produce_sync(MESSAGE)
    assert_equal [123, 180_000], @seen
  end

  def test_a_hook_wraps_the_messages_own_transaction_and_runs_inside_the_callers
    producer = buffered("transactional.id": "tx")
    %w[started committed].each { |name| producer.monitor.subscribe("transaction.#{name}") { @seen << :"transaction #{name}" } }
    noting(producer, "hook")
    producer.produce_sync(MESSAGE)
    apart = [:"hook begins", :"transaction started", :"transaction committed", :"hook ends"]
    assert_equal apart, @seen
    @seen.clear
    producer.transaction { producer.produce_async(MESSAGE) }
    assert_equal apart.values_at(1, 0, 3, 2), @seen
  end

  def test_an_error_of_a_hook_before_the_send_aborts_the_callers_transaction
    producer = buffered("transactional.id": "tx")
    fails = false
    producer.around { |sending| fails ? raise(KeyError, "mine") : sending.call }
    assert_raises(KeyError) do
      producer.transaction do
        producer.produce_async(MESSAGE)
        fails = true
        producer.produce_async(MESSAGE)
      end
    end
    assert_empty producer.client.messages
  end

  def test_hooks_run_for_a_producer_that_delivers_nothing
    producer = self.producer { |config| config.deliver = false }
    noting(producer, "hook")
    assert_equal 0, producer.produce_sync(MESSAGE).offset
    assert_equal 2, @seen.size
  end

  # ---- costs ----

  def allocated_by(count, &block)
    yield
    GC.disable
    before = GC.stat(:total_allocated_objects)
    count.times(&block)
    GC.stat(:total_allocated_objects) - before
  ensure
    GC.enable
  end

  # behaviour: around
  def test_without_hooks_a_message_takes_the_fast_path_and_allocates_nothing_extra
    producer = self.producer { |config| config.client_class = Nothing }
    client = producer.client
    direct = allocated_by(200) { client.produce(MESSAGE) }
    assert_operator allocated_by(200) { producer.produce_async(MESSAGE) } - direct, :<, 10
    Internal.of(producer).publisher.define_singleton_method(:dispatching) { |*| raise "not the fast path" }
    producer.produce_async(MESSAGE)
    producer.produce_sync(MESSAGE)
    producer.around(&:call)
    assert_raises(RuntimeError) { producer.produce_async(MESSAGE) }
  end

  # Accepts messages without looking at them.
  class Nothing < Penstock::Clients::Dummy
    HANDLE = Object.new.tap { |handle| def handle.wait(**) = nil }
    def produce(_message) = HANDLE
  end

  # ---- however middleware and hooks end ----

  ENDINGS = {
    raises: -> { raise KeyError, "mine" },
    raises_exception: -> { raise Exception, "mine" }, # rubocop:disable Lint/RaiseException
    throws: -> { throw :out, "mine" },
    is_killed: -> { Thread.current.kill }
  }.freeze

  CALLS = {
    produce_sync: ->(one, message) { one.produce_sync(message) },
    produce_many_async: ->(one, message) { one.produce_many_async([message]) },
    flush_sync: ->(one, message) { one.buffer(message) && one.flush_sync }
  }.freeze

  # Both end in the way that the message's label names.
  BEFORE = {
    middleware: ->(one) { one.middleware.append { |message| message.tap { ENDINGS[message[:label]]&.call } } },
    hook: lambda do |one|
      one.around do |sending|
        ENDINGS[sending.messages.first[:label]]&.call
        sending.call
      end
    end
  }.freeze

  # @return [Object] the block's result in a separate thread, or nil if the block ended the thread
  def outcome
    Thread.new do
      catch(:out) { yield && "went on" }
    rescue Exception => e # rubocop:disable Lint/RescueException
      e.message
    end.value
  end

  BEFORE.to_a.product([nil, "in_a_transaction"]).each do |(place, add), transactional|
    define_method(["test_a_#{place}_that_ends_before_it_sends", transactional, "leaves_the_producer_usable"].compact.join("_")) do
      topic = topic(partitions: 1)
      one = producer(**(transactional ? { "transactional.id": topic } : {}))
      add.call(one)
      ENDINGS.keys.product(CALLS.values) do |name, call|
        assert_equal [name == :is_killed ? nil : "mine"], [outcome { call.call(one, { topic:, payload: "bad", label: name }) }]
        assert_predicate one.produce_sync(topic:, payload: name.to_s), :persisted?, name
        assert_equal call == CALLS[:flush_sync] ? [name] : [], one.messages.map { |message| message[:label] } # put back
        one.messages.clear
      end
      assert_predicate one.close(timeout: 5), :complete?
      assert_equal ENDINGS.keys.flat_map { |name| [name.to_s] * CALLS.size }, stored(topic).map(&:payload)
    end
  end

  slow def test_a_hook_that_ends_after_the_send_leaves_the_producer_usable
    topic = topic(partitions: 1)
    one = producer
    one.around { |sending| sending.call.tap { ENDINGS[sending.messages.first[:label]]&.call } }
    capture_io do # for the warning about the hook's error
      ENDINGS.keys.product(CALLS.values) do |name, call|
        assert_equal [{ is_killed: nil, raises: "went on" }.fetch(name, "mine")],
                     [outcome { call.call(one, { topic:, payload: "bad", label: name }) }]
        assert_predicate one.produce_sync(topic:, payload: "good"), :persisted?, name
      end
    end
    assert_empty one.messages
    assert_predicate one.close(timeout: 5), :complete?
    assert_equal %w[bad good] * (ENDINGS.size * CALLS.size), stored(topic).map(&:payload)
  end
end

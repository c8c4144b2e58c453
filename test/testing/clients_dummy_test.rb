# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/client_test_case"
require "fiddle"

class ClientsDummyTest < ClientTestCase
  ACKNOWLEDGED = "message.acknowledged"
  ERROR = "error.occurred"

  def described = Penstock::Clients::Dummy

  # ---- delivering ----

  def test_a_message_is_delivered_at_once
    handle = client.produce({ topic: :events, payload: "x", label: :mine })
    assert_equal [false, true, nil], [handle.pending?, handle.delivered?, handle.error]
    assert_equal ["events", :mine], [handle.topic, handle.label]
    assert_same handle.report, handle.wait(max_wait_timeout_ms: 5)
    assert_equal "#<Penstock::Clients::Handle topic=events persisted>", handle.inspect
  end

  # behaviour: A stand-in without a cluster
  def test_a_report_equals_that_of_a_real_delivery
    report = client.produce({ topic: "events", payload: "x", label: 5 }).report
    assert_instance_of Penstock::DeliveryReport, report
    assert_equal ["events", 0, 0, :persisted, 5], [report.topic, report.partition, report.offset, report.status, report.label]
    assert_kind_of Float, report.latency
    assert_operator report.timestamp, :>, 1_700_000_000_000
  end

  def test_a_handle_has_all_methods_of_a_real_handle
    missing = Penstock::DeliveryHandle.public_instance_methods(false) - Penstock::Clients::Handle.public_instance_methods(false)
    assert_empty missing
    handles = client.produce_many(Array.new(2) { { topic: "t", payload: "" } }, false).first
    assert_equal true, Penstock::Clients::Handle.await_all(handles, timeout: 0.005)
  end

  def test_delivery_handles_can_be_waited_for_without_knowing_the_client
    client = self.client.fail_next(:msg_timed_out)
    failed, *delivered = client.produce_many(Array.new(3) { { topic: "t", payload: "" } }, false).first
    assert_equal true, Penstock::DeliveryHandle.await_all(delivered)
    assert_equal false, Penstock::DeliveryHandle.await_all([*delivered, failed])
    assert_raises(TypeError) { Penstock::DeliveryHandle.await_all([Object.new]) }
  end

  def test_a_wait_in_ms_rejects_other_keywords
    handle = client.produce({ topic: "t", payload: "" })
    assert_same handle.report, handle.wait(max_wait_timeout_ms: nil)
    error = assert_raises(ArgumentError) { handle.wait(max_wait_timeout: 5) }
    assert_match(/max_wait_timeout_ms/, error.message)
  end

  # behaviour: A stand-in without a cluster
  def test_a_client_has_all_methods_of_a_real_client
    missing = Internal::ProducerClient.public_instance_methods(false) - described.public_instance_methods(false)
    assert_equal [:test_fatal_error], missing # it needs librdkafka
  end

  # behaviour: A stand-in without a cluster
  def test_offsets_count_from_zero_in_each_partition
    client = self.client
    places = [["a1", 1], ["a", 11], ["a1", 1], ["a", 11], ["a", 1], ["a1", nil], ["a1", -1]].map do |topic, partition|
      report = client.produce({ topic:, payload: "", partition: }.compact).report
      [report.topic, report.partition, report.offset]
    end
    assert_equal [["a1", 1, 0], ["a", 11, 0], ["a1", 1, 1], ["a", 11, 1], ["a", 1, 0], ["a1", 0, 0], ["a1", 0, 1]], places
  end

  def test_a_given_timestamp_is_kept
    [[Time.at(1, 999_999, :nsec), 1_000], [Time.at(5, 1.9r, :millisecond), 5_001], [77, 77]].each do |given, expected|
      assert_equal expected, client.produce({ topic: "t", payload: "", timestamp: given }).report.timestamp
    end
  end

  def test_a_batch_has_a_handle_for_each_message_and_a_delivery_result_if_the_call_waits
    client = self.client
    messages = Array.new(3) { |i| { topic: "t", payload: "", label: i } }
    handles, error, delivered = client.produce_many(messages, 1_000)
    assert_equal [[0, 1, 2], nil, true], [handles.map(&:label), error, delivered]
    assert_equal [0, 1, 2], (handles.map { |handle| handle.report.offset })
    assert_nil client.produce_many(messages, false).last
    assert_equal [[], nil, true], client.produce_many([], nil)
  end

  def test_no_two_threads_get_the_same_offset
    client = self.client
    handles = Array.new(4) { Thread.new { Array.new(200) { client.produce({ topic: "t", payload: "" }) } } }.flat_map(&:value)
    assert_equal (0...800).to_a, handles.map { |handle| handle.report.offset }.sort
  end

  # ---- checking ----

  BAD = [
    "text", {}, { topic: "t" }, { topic: "no such name", payload: "" }, { topic: 5, payload: "" }, { topic: "t", payload: 5 },
    { topic: "t", payload: "", partition: -2 }, { topic: "t", payload: "", headers: { 5 => "b" } },
    { topic: "t", payload: "", partition: 1, partition_key: "k" }, { topic: "t", payload: "", timestamp: -1 },
    { topic: "t", payload: "", topik: 1 }, { "topic" => "t" }, { topic: "t", payload: "x" * 101 },
    { topic: "t", payload: "", key: "k" * 2_000 }
  ].freeze

  def test_an_invalid_message_raises_the_same_error_as_a_real_client
    kafka = { "message.max.bytes": 1_000 }
    dummy = client(**kafka) { |config| config.max_payload_size = 100 }
    real = unreachable_producer(**kafka) { |config| config.max_payload_size = 100 }
    BAD.each do |message|
      expected = assert_raises(Penstock::MessageInvalidError) { real.produce_async(message) }
      assert_equal expected.message, assert_raises(Penstock::MessageInvalidError) { dummy.produce(message) }.message
      batch = [{ topic: "t", payload: "" }, message]
      expected = assert_raises(Penstock::MessageInvalidError) { real.produce_many_async(batch) }
      assert_equal expected.message, assert_raises(Penstock::MessageInvalidError) { dummy.produce_many(batch, false) }.message
    end
    expected = assert_raises(Penstock::MessageInvalidError) { real.produce_many_async("text") }
    assert_equal expected.message, assert_raises(Penstock::MessageInvalidError) { dummy.produce_many("text", false) }.message
    assert_equal 0, dummy.produce({ topic: "t", payload: "" }).report.offset
  end

  def test_the_topic_of_a_checked_message_cannot_be_changed
    name = +"t"
    checked = Internal::ProducerClient.check({ topic: name, payload: "" }, nil, 5, 100)
    name << "x"
    symbol = Internal::ProducerClient.check({ topic: :t, payload: "" }, 0, 5, 100)
    assert_equal ["t", true, "t"], [checked, checked.frozen?, symbol]
  end

  def test_message_max_bytes_may_be_a_string_that_contains_a_number
    large = { topic: "t", payload: "", key: "k" * 1_500_000 }
    assert_raises(Penstock::MessageInvalidError) { client.produce(large) }
    assert_predicate client("message.max.bytes": "2000000").produce(large), :delivered?
    assert_raises(Penstock::ConfigurationInvalidError) { client("message.max.bytes": "many") }
  end

  # ---- events ----

  # behaviour: message.acknowledged
  # behaviour: The handle and the report have the message's label
  def test_each_message_is_published_to_listeners
    seen = events(ACKNOWLEDGED)
    client = self.client
    handle = client.produce({ topic: "t", payload: "", partition: 3, label: :mine })
    assert_equal [{ producer_id: "dummy", topic: "t", partition: 3, offset: 0, delivery_report: handle.report, label: :mine,
                    caller: client }], seen.map(&:to_h)
    client.producer = :owner
    client.produce_many([{ topic: "t", payload: "" }] * 2, false)
    assert_equal [:owner] * 2, (seen.last(2).map { |event| event[:caller] })
  end

  def test_a_listener_may_produce
    client = self.client
    @monitor.subscribe(ACKNOWLEDGED) { |event| client.produce({ topic: "next", payload: "" }) if event[:topic] == "t" }
    client.produce({ topic: "t", payload: "" })
    assert_equal 1, client.produce({ topic: "next", payload: "" }).report.offset
  end

  # ---- failing ----

  def test_the_next_messages_fail_as_often_as_asked
    client = self.client.fail_next(:msg_timed_out, times: 2).fail_next(:topic_authorization_failed)
    errors = Array.new(4) { client.produce({ topic: "t", payload: "" }).error }
    assert_equal [:msg_timed_out, :msg_timed_out, :topic_authorization_failed, nil], errors.map { |error| error&.code }
    assert_equal [Penstock::MessageTimedOutError] * 2 + [Penstock::DeliveryError], errors.first(3).map(&:class)
  end

  def test_a_failed_delivery_result_equals_that_of_a_real_client
    message = { topic: "events", payload: "x", partition: 3, label: 5 }
    real = unreachable_producer { |config| config.id = "dummy" }
    expected = real.produce_async(message)
    real.close(timeout: 0)
    handle = client.fail_next(:purge_queue).produce(message)
    text = expected.error.message.sub(/ \(no connection works; .*\(_TRANSPORT\)\)/, "") # unless it was purged before it failed
    assert_equal [expected.error.class, text, expected.error.deconstruct_keys(nil)],
                 [handle.error.class, handle.error.message, handle.error.deconstruct_keys(nil)]
    facts = %i[topic partition offset timestamp latency status label]
    assert_equal(facts.map { |fact| expected.report.public_send(fact) }, facts.map { |fact| handle.report.public_send(fact) })
    assert_same handle.error, assert_raises(Penstock::DeliveryError) { handle.wait }
    refute_predicate handle, :delivered?
    assert_equal [expected.status, expected.inspect[/ .*/]], [handle.status, handle.inspect[/ .*/]]
  end

  def test_a_failed_message_has_no_partition_and_offset
    client = self.client.fail_next(:msg_timed_out)
    report = client.produce({ topic: "t", payload: "" }).report
    assert_equal [nil, nil, :not_persisted], [report.partition, report.offset, report.status]
    assert_equal 0, client.produce({ topic: "t", payload: "" }).report.offset
  end

  def test_a_message_that_may_be_stored_is_not_retriable
    handle = client.fail_next(:request_timed_out).produce({ topic: "t", payload: "" })
    assert_predicate handle.report, :possibly_persisted?
    refute_predicate handle.error, :retriable?
    assert_includes handle.error.message, "but it may be in the topic"
  end

  def test_a_network_error_names_the_brokers
    assert_includes client.fail_next(:transport).produce({ topic: "t", payload: "" }).error.message, "brokers 127.0.0.1:1"
  end

  def test_an_injected_full_queue_raises_and_accepts_no_message
    client = self.client.fail_next(:queue_full)
    error = assert_raises(Penstock::QueueFullError) { client.produce({ topic: "t", payload: "" }) }
    assert_equal [:queue_full, -184, "_QUEUE_FULL", true], [error.code, error.number, error.name, error.retriable?]
    assert_includes error.message, "The message was not accepted."
    assert_equal 0, client.produce({ topic: "t", payload: "" }).report.offset
  end

  def test_an_injected_fatal_error_raises
    error = assert_raises(Penstock::ProduceError) { client.fail_next(:fatal).produce({ topic: "t", payload: "" }) }
    assert_predicate error, :fatal?
  end

  def test_a_batch_stops_at_the_rejected_message
    seen = events(ACKNOWLEDGED)
    client = self.client.script { |message| :queue_full if message[:label] == 2 }.fail_next(:msg_timed_out)
    handles, error, delivered = client.produce_many(Array.new(5) { |i| { topic: "t", payload: "", label: i } }, 1_000)
    assert_equal [[0, 1], :queue_full, false], [handles.map(&:label), error.code, delivered]
    assert_equal [:msg_timed_out, nil], (handles.map { |handle| handle.error&.code })
    assert_equal [1], (seen.map { |event| event[:label] })
  end

  def test_a_batch_whose_rest_is_rejected_counts_as_not_delivered_and_the_producer_raises
    client = self.client.script { |message| :queue_full if message[:label] == 2 }
    messages = Array.new(5) { |i| { topic: "t", payload: "", label: i } }
    assert_equal false, client.produce_many(messages, 1_000).last
    one = producer { |config| config.client_class = described }
    one.client.script { |message| :queue_full if message[:label] == 2 }
    error = assert_raises(Penstock::ProduceManyError) { one.produce_many_sync(messages) }
    assert_equal [:queue_full, [0, 1]], [error.code, error.dispatched.map(&:label)]
  end

  def test_a_script_decides_on_each_message_until_it_is_replaced
    client = self.client.script { |message| :invalid_record if message[:payload] == "bad" }
    codes = lambda do
      %w[bad good].map { |payload| client.produce({ topic: "t", payload: }).error&.code }
    end
    assert_equal [:invalid_record, nil], codes.call
    client.script { :policy_violation }.fail_next(:transport)
    assert_equal %i[transport policy_violation], codes.call
    client.script
    assert_equal [nil, nil], codes.call
  end

  def test_a_custom_error_becomes_the_delivery_result_or_is_raised
    custom = Penstock::DeliveryError.new("mine", retriable: true)
    handle = client.fail_next(custom).produce({ topic: "t", payload: "" })
    assert_same custom, handle.error
    assert_predicate handle.report, :not_persisted?
    raised = Penstock::WaitTimeoutError.new("mine")
    client = self.client.script { raised }
    assert_same raised, assert_raises(Penstock::WaitTimeoutError) { client.produce({ topic: "t", payload: "" }) }
  end

  def test_no_message_of_a_batch_is_accepted_if_the_script_raises
    seen = events(ACKNOWLEDGED)
    client = self.client.script { |message| raise KeyError if message[:label] == 1 }
    assert_raises(KeyError) { client.produce_many(Array.new(2) { |i| { topic: "t", payload: "", label: i } }, false) }
    assert_empty seen
  end

  def test_an_invalid_failure_raises
    assert_match(/did you mean :msg_timed_out\?/, assert_raises(ArgumentError) { client.fail_next(:msg_timedout) }.message)
    [nil, "msg_timed_out", KeyError.new].each { |error| assert_raises(ArgumentError) { client.fail_next(error) } }
    [-1, 1.5, nil].each { |times| assert_raises(ArgumentError) { client.fail_next(:transport, times:) } }
    assert_raises(ArgumentError) { client.script { true }.produce({ topic: "t", payload: "" }) }
  end

  def test_a_failed_message_is_published_to_error_listeners
    seen = events(ERROR, ACKNOWLEDGED)
    client = self.client.fail_next(:msg_timed_out)
    handle = client.produce({ topic: "t", payload: "", label: 1 })
    assert_equal [[ERROR, { type: "librdkafka.dispatch_error", error: handle.error, producer_id: "dummy", topic: "t",
                            partition: nil, offset: nil, delivery_report: handle.report, label: 1, caller: client }]],
                 (seen.map { |event| [event.id, event.to_h] })
  end

  def test_reset_clears_injected_failures_and_offsets
    client = self.client.script { :transport }.fail_next(:msg_timed_out)
    assert_equal(0, client.reset.produce({ topic: "t", payload: "" }).report.offset)
    assert_equal(0, client.reset.produce({ topic: "t", payload: "" }).report.offset)
  end

  def test_the_error_codes_match_librdkafka
    library = Fiddle.dlopen($LOADED_FEATURES.grep(%r{penstock/penstock\.\w+\z}).first)
    name, text = %w[rd_kafka_err2name rd_kafka_err2str].map do |function|
      Fiddle::Function.new(library[function], [Fiddle::TYPE_INT], Fiddle::TYPE_VOIDP)
    end
    Penstock::Clients::Failure::CODES.each do |code, (number, *rest)|
      assert_equal [name.call(number).to_s, text.call(number).to_s], rest.first(2)
      assert_equal code, rest.first.delete_prefix("_").downcase.to_sym
    end
  end

  # ---- other calls of the producer ----

  def test_the_state_is_configured_then_open_then_closed
    client = self.client
    states = [client.state, client.connect.state]
    assert_equal [0, 0, 0, 0, 0], client.close(1_000)
    assert_equal %i[configured open closed], [*states, client.state]
    assert_equal [[0, 0, 0, 0, 0], 0, 0], [client.close(nil), client.purge, client.queue_size]
    assert_includes client.inspect, "closed"
  end

  def test_every_call_raises_after_close
    client = self.client
    client.close(1_000)
    [-> { client.produce({ topic: "t", payload: "" }) }, -> { client.produce_many([], false) }, -> { client.connect },
     -> { client.flush(5) }, -> { client.partition_count("t", 1, 1) }, -> { client.init_transactions(1) }].each do |call|
      assert_includes assert_raises(Penstock::ProducerClosedError, &call).message, "The producer is closed [producer dummy]."
    end
    assert_equal :closed, client.state
  end

  def test_a_signal_trap_can_close_the_client
    client = self.client
    before = trap(:USR2) { client.close(0) }
    Process.kill(:USR2, Process.pid)
    eventually { client.state == :closed }
  ensure
    trap(:USR2, before)
  end

  def test_no_message_is_ever_in_flight
    client = self.client
    client.produce({ topic: "t", payload: "" })
    assert_equal [true, 0, 0, nil], [client.flush(5), client.queue_size, client.purge, client.fatal_error]
  end

  def test_a_valid_topic_has_one_partition
    assert_equal 1, client.partition_count("t", 5_000, 30_000)
    assert_equal [nil, -1, []], client.brokers(5_000)
    assert_raises(Penstock::MessageInvalidError) { client.partition_count("no name", 5_000, 30_000) }
  end

  def test_timeout_errors_equal_those_of_a_real_client
    error = client.timeout_error("no delivery result", "t")
    real = unreachable_producer { |config| config.id = "dummy" }.client
    expected = real.timeout_error("no delivery result", "t")
    assert_equal [expected.class, expected.message], [error.class, error.message]
  end

  def test_transactional_and_idempotent_follow_the_settings
    assert_equal([[false, true], [false, true], [false, true], [true, true], [false, false]],
                 [{}, { "enable.idempotence": true }, { "enable.idempotence": "true" }, { "transactional.id": "x" },
                  { "enable.idempotence": false }].map { |kafka| [client(**kafka).transactional?, client(**kafka).idempotent?] })
  end

  # ---- transactions ----

  def test_a_transactional_client_accepts_messages_only_in_a_transaction
    client = self.client("transactional.id": "tx")
    client.init_transactions(1_000)
    error = assert_raises(Penstock::ProduceError) { client.produce({ topic: "t", payload: "" }) }
    assert_equal :state, error.code
    client.begin_transaction
    assert_equal 0, client.produce({ topic: "t", payload: "" }).report.offset
    client.commit_transaction(1_000)
    assert_equal [[], :state], client.produce_many([{ topic: "t", payload: "" }], false).then { |handles, e| [handles, e.code] }
  end

  def test_transaction_calls_in_the_wrong_order_raise
    client = self.client("transactional.id": "tx")
    assert_raise_state = lambda do |*calls|
      calls.each { |call| assert_equal :state, assert_raises(Penstock::Error) { client.public_send(*call) }.code, call.inspect }
    end
    commit = [:commit_transaction, 1]
    abort = [:abort_transaction, 1]
    offsets = [:send_offsets_to_transaction, {}, "group", 1]
    assert_raise_state.call([:begin_transaction], commit, abort, offsets)
    client.init_transactions(1)
    assert_raise_state.call(commit, abort, offsets)
    client.begin_transaction
    assert_raise_state.call([:begin_transaction])
    assert_nil client.send_offsets_to_transaction({}, "group", 1)
    assert_nil client.commit_transaction(1)
    assert_raise_state.call(commit, abort, offsets)
    client.begin_transaction
    assert_nil client.abort_transaction(1)
    assert_raise_state.call(commit, abort)
  end

  def test_transactions_require_a_transactional_id
    error = assert_raises(Penstock::Error) { client.init_transactions(1) }
    assert_equal :not_configured, error.code
  end

  def test_after_a_failed_message_the_transaction_can_only_be_aborted
    client = transactional
    client.fail_next(:topic_authorization_failed).produce({ topic: "t", payload: "" })
    error = assert_raises(Penstock::Error) { client.commit_transaction(1) }
    assert_equal [:inconsistent, true], [error.code, error.abortable?]
    assert_raises(Penstock::Error) { client.send_offsets_to_transaction({}, "group", 1) }
    client.abort_transaction(1)
    client.begin_transaction
    assert_nil client.commit_transaction(1)
  end

  def test_a_rejected_message_does_not_affect_the_transaction
    client = transactional.fail_next(:queue_full)
    assert_raises(Penstock::QueueFullError) { client.produce({ topic: "t", payload: "" }) }
    assert_nil client.commit_transaction(1)
  end
end

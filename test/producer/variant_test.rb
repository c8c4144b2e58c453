# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"

class ProducerVariantTest < ProducerTestCase
  # ---- making one ----

  # behaviour: with, variant
  def test_a_variant_has_the_given_settings
    one = producer
    variant = one.with(max_wait_timeout: 1_234, topic_config: { "acks" => 1 })
    assert_equal [one, 1_234, { acks: 1 }], [variant.producer, variant.max_wait_timeout, variant.topic_config]
    refute_predicate variant, :default?
    assert_predicate one.with, :default?
    assert_predicate one.variant(max_wait_timeout: one.config.max_wait_timeout), :default?
    refute_predicate one.variant(max_wait_timeout: nil), :default?
    assert_predicate variant, :frozen?
    assert_predicate variant.topic_config, :frozen?
    assert_match(/max_wait_timeout=1234.*acks/, variant.inspect)
  end

  # behaviour: with, variant
  # behaviour: VariantInvalidError
  def test_an_unknown_topic_setting_is_rejected_and_the_error_names_the_nearest
    error = assert_raises(Penstock::VariantInvalidError) { producer.with(topic_config: { ack: 1 }) }
    assert_match(/did you mean :acks\?/, error.message)
    assert_raises(Penstock::VariantInvalidError) { producer.with(topic_config: { "bootstrap.servers": "x" }) }
  end

  # behaviour: with, variant
  def test_an_invalid_value_is_rejected_when_the_variant_is_made
    [{ acks: "many" }, { "compression.type": "zip" }, { "message.timeout.ms": -5 }, { "compression.level": 99 },
     { acks: nil }, { acks: Object.new }, { partitioner: "mine" }, { 5 => 1 }, nil, [[:acks, 1]]].each do |topic_config|
      error = assert_raises(Penstock::VariantInvalidError, topic_config.inspect) { producer.with(topic_config:) }
      assert_includes error.message, "topic_config"
    end
    [-1, 1.5, "1", :none].each do |max_wait_timeout|
      assert_raises(Penstock::VariantInvalidError) { producer.with(max_wait_timeout:) }
    end
    assert_equal 0, Internal::ProducerClient.open_count
  end

  # behaviour: topic settings of a variant
  def test_acks_can_be_changed_only_if_idempotence_was_not_set_explicitly
    asked = producer("enable.idempotence": true)
    assert_raises(Penstock::VariantInvalidError) { asked.with(topic_config: { acks: 1 }) }
    assert_raises(Penstock::VariantInvalidError) { asked.with(topic_config: { "request.required.acks": 0 }) }
    default = producer
    assert_predicate default, :idempotent?
    name = topic
    assert_predicate default.with(topic_config: { acks: 1 }).produce_sync(topic: name, payload: "x"), :persisted?
  end

  # behaviour: topic settings of a variant
  def test_a_transactional_producers_variants_cannot_have_topic_settings
    one = producer("transactional.id": "tx-#{rand(2**32)}")
    assert_raises(Penstock::VariantInvalidError) { one.with(topic_config: { "compression.type": "gzip" }) }
    variant = one.with(max_wait_timeout: 20_000)
    seen = variant.transaction { [one.current_variant.max_wait_timeout, one.produce_sync(topic:, payload: "x").offset] }
    assert_equal [20_000, 0], seen
  end

  def test_new_and_existing_variants_of_a_closed_producer_raise
    one = producer
    used, unused = [{ acks: 1 }, { acks: 0 }].map { |topic_config| one.with(topic_config:) }
    used.produce_sync(topic:, payload: "x")
    one.close
    [used, unused].each do |variant|
      assert_raises(Penstock::ProducerClosedError) { variant.produce_sync(topic: "test", payload: "x") }
      assert_raises(Penstock::ProducerClosedError) { variant.buffer(topic: "test", payload: "x") }
    end
    assert_raises(Penstock::ProducerClosedError) { one.with(max_wait_timeout: 1) }
    assert_equal 0, Internal::ProducerClient.open_count
  end

  # ---- its settings take effect ----

  def test_max_wait_timeout_limits_sync_calls
    one = unreachable_producer
    variant = one.with(max_wait_timeout: 200)
    message = { topic: "test", payload: "x" }
    [-> { variant.produce_sync(message) }, -> { variant.produce_many_sync([message]) },
     -> { variant.buffer(message) && variant.flush_sync }].each do |call|
      assert_took(10, seconds_of { assert_raises(Penstock::WaitTimeoutError, &call) })
    end
    one.close(timeout: 0)
  end

  # behaviour: topic settings of a variant
  def test_a_variants_acks_apply_to_it_and_not_to_its_producer
    name = topic
    one = producer
    none, all = [0, "all"].map { |acks| one.with(topic_config: { acks: }) }
    other = producer(acks: 0)
    senders = [none, all, one, other, other.with(topic_config: { acks: -1 })]
    assert_equal %i[possibly_persisted persisted persisted possibly_persisted persisted],
                 (senders.map { |sender| sender.produce_sync(topic: name, payload: "x").status })
  end

  slow def test_a_variant_overrides_a_setting_that_the_producer_has_under_an_alias
    [%w[message.timeout.ms delivery.timeout.ms], %w[delivery.timeout.ms message.timeout.ms]].each do |own, varied|
      one = unreachable_producer(own => 100_000)
      variant = one.with(max_wait_timeout: 20_000, topic_config: { varied => 300 })
      error = assert_raises(Penstock::MessageTimedOutError, varied) { variant.produce_sync(topic: "test", payload: "x") }
      assert_equal :msg_timed_out, error.code
    end
    %i[acks request.required.acks].permutation(2) do |own, varied|
      variant = producer(own => 1).with(topic_config: { varied => 0 })
      assert_predicate variant.produce_sync(topic:, payload: "x"), :possibly_persisted?
    end
  end

  # ---- the current variant ----

  # behaviour: A variant applies to one fiber
  def test_while_a_variant_runs_only_messages_of_the_same_fiber_use_it
    one = producer
    variant = one.with(max_wait_timeout: 1, topic_config: { acks: 0 })
    seen = {}
    one.middleware.append do |message|
      seen[:inside] = one.current_variant
      seen[:fiber] = Fiber.new { one.current_variant }.resume
      seen[:thread] = Thread.new { one.current_variant }.value
      message
    end
    variant.produce_async(topic:, payload: "x").wait
    assert_same variant, seen[:inside]
    assert_equal [true, true, true], [seen[:fiber], seen[:thread], one.current_variant].map(&:default?)
  end

  # behaviour: A variant applies to one fiber
  def test_variants_nest_and_are_restored_even_after_an_error
    one = producer("transactional.id": "tx-#{rand(2**32)}")
    outer, inner = [10_000, 20_000].map { |max_wait_timeout| one.with(max_wait_timeout:) }
    seen = []
    outer.transaction do
      seen << one.current_variant
      inner.transaction { seen << one.current_variant }
      assert_raises(Penstock::MessageInvalidError) { inner.produce_sync(topic: nil) }
      seen << one.current_variant
    end
    assert_equal [outer, inner, outer], seen
    assert_predicate one.current_variant, :default?
  end

  # behaviour: A variant applies to one fiber
  def test_variants_leave_no_fiber_local_key_and_those_of_two_producers_do_not_mix
    before = Thread.current.keys
    one, two = Array.new(2) { producer }
    variant = one.with(max_wait_timeout: 1_000)
    seen = nil
    one.middleware.append { |message| message.tap { seen = two.current_variant.default? } }
    variant.produce_async(topic:, payload: "x").wait
    assert_raises(Penstock::MessageInvalidError) { variant.produce_sync({}) }
    one.current_variant
    assert seen
    assert_equal before, Thread.current.keys
  end

  # ---- calls on the producer include the clients of its variants ----

  def test_variants_with_equal_settings_share_a_client
    one = producer
    one.produce_sync(topic:, payload: "x")
    [one.with(max_wait_timeout: 9_000), one.with(topic_config: {})].each { |variant| variant.produce_sync(topic:, payload: "x") }
    assert_equal 1, Internal::ProducerClient.open_count
    2.times { one.with(topic_config: { acks: 1 }).produce_sync(topic:, payload: "x") }
    assert_equal 2, Internal::ProducerClient.open_count
    one.with(topic_config: { acks: 0 }).produce_sync(topic:, payload: "x")
    assert_equal 3, Internal::ProducerClient.open_count
  end

  def test_threads_that_make_the_same_variant_simultaneously_share_its_client
    name = topic
    5.times do
      one = producer
      gate = Queue.new
      use = -> { one.with(topic_config: { acks: 1 }).produce_sync(topic: name, payload: "x") }
      threads = Array.new(8) { Thread.new { gate.pop && use.call } }
      8.times { gate << true }
      threads.each(&:join)
      assert_equal 1, Internal::ProducerClient.open_count
      one.close
      assert_equal 0, Internal::ProducerClient.open_count
    end
  end

  slow def test_making_variants_does_not_disturb_threads_that_use_them
    one = producer("linger.ms": 0)
    name = topic
    done = false
    threads = [-> { one.queue_size }, -> { one.flush }, -> { one.disconnect }, -> { one.produce_sync(topic: name, payload: "x") }]
    threads.map! { |call| Thread.new { call.call until done } }
    30.times do |i|
      variant = one.with(topic_config: { "message.timeout.ms": 100_000 + i })
      variant.produce_async(topic: name, payload: "x") if i < 5
    end
    done = true
    threads.each(&:join)
  end

  # ---- many variants ----

  def settings(number) = { "message.timeout.ms": 100_000 + number }

  # Runs the block in a thread, whose stack ends with it, so that the GC collects dropped objects.
  def aside(&block) = Thread.new(&block).value

  # defect 32
  # behaviour: with, variant
  def test_variants_for_each_message_use_no_more_clients_than_the_limit
    name = topic(partitions: 1)
    one = producer("linger.ms": 0)
    most = 0
    counted = []
    8.times do |i| # newer versions of librdkafka take half a second to connect
      aside do
        Array.new(20) { |j| one.with(topic_config: settings((i * 20) + j)).produce_async(topic: name, payload: "x") }.each(&:wait)
        nil
      end
      most = [most, Internal::ProducerClient.open_count].max
      counted << Internal.of(one).totals.delivered
    end
    assert_operator most, :<=, Penstock::Producer::Variant::MOST + 1
    assert_equal Array.new(8) { |i| 20 * (i + 1) }, counted
    one.close
    assert_equal 160, Internal.of(one).totals.delivered
  end

  # defect 32
  # behaviour: with, variant
  def test_too_many_variants_raise_and_existing_ones_keep_working
    name = topic(partitions: 1)
    one = producer
    aside do
      kept = Array.new(100) { |i| one.with(topic_config: settings(i)) }
      error = assert_raises(Penstock::VariantInvalidError) { one.with(topic_config: settings(100)) }
      assert_match(/100 variants.*#{one.id}.*keep it/, error.message)
      assert_equal [0, 1], [kept.first, kept.last].map { |variant| variant.produce_sync(topic: name, payload: "x").offset }
      assert_equal settings(50), one.with(topic_config: settings(50)).topic_config
      one.with(max_wait_timeout: 5)
      nil
    end
    aside { assert_equal 2, one.with(topic_config: settings(100)).produce_sync(topic: name, payload: "x").offset }
  end

  def test_a_variant_that_is_dropped_keeps_its_client_until_its_messages_are_delivered
    name = topic(partitions: 1)
    one = producer("linger.ms": 60_000)
    handle = aside { one.with(topic_config: settings(0)).produce_async(topic: name, payload: "x") }
    aside { 120.times { |i| one.with(topic_config: settings(i + 1)) } && nil }
    assert_predicate handle, :pending?
    assert_equal 1, one.queue_size
    one.flush(timeout: 20)
    assert_predicate handle, :delivered?
    aside { 120.times { |i| one.with(topic_config: settings(i + 200)) } && nil }
    eventually do
      GC.start
      aside { one.with(topic_config: settings(rand(1_000..1_000_000))) && nil }
      Internal::ProducerClient.open_count.zero?
    end
    assert_equal 1, Internal.of(one).totals.delivered
  end

  # behaviour: queue_size, queue_length
  def test_queue_size_flush_purge_disconnect_and_close_cover_the_clients_of_variants
    name = topic(partitions: 1)
    one = producer("linger.ms": 60_000)
    senders = [one, one.with(topic_config: { acks: 1 })]
    send_one_each = -> { senders.map { |sender| sender.produce_async(topic: name, payload: "x") } }

    handles = send_one_each.call
    assert_equal 2, one.queue_size
    one.flush(timeout: 20)
    assert_delivered(handles)

    handles = send_one_each.call
    assert_equal 2, one.purge
    eventually { handles.none?(&:pending?) }
    assert_equal(%i[purge_queue purge_queue], handles.map { |handle| handle.error.code })

    handles = send_one_each.call
    assert one.disconnect
    assert_equal 0, Internal::ProducerClient.open_count
    assert_delivered(handles)

    handles = send_one_each.call
    assert_equal Penstock::CloseReport.new(2, 0, 0, 0), one.close
    assert_delivered(handles)
  end

  def assert_delivered(handles) = assert_equal([[nil, true]], handles.map { |handle| [handle.error, handle.delivered?] }.uniq)

  def test_messages_buffered_by_a_variant_use_the_settings_of_the_flushing_caller
    name = topic(partitions: 1)
    one = producer
    variant = one.with(topic_config: { acks: 0 })
    variant.buffer(topic: name, payload: "0")
    variant.buffer_many([{ topic: name, payload: "1" }])
    assert_equal 2, one.messages.size
    assert_equal([:possibly_persisted], variant.flush_sync.map { |handle| handle.report.status }.uniq)
    variant.buffer(topic: name, payload: "2")
    assert_equal :persisted, one.flush_sync.first.report.status
  end
end

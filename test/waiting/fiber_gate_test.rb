# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../support/fiber_schedulers"
require_relative "../support/gate_scheduler"

# The fibers' cluster answers only while their scheduler sleeps. So any wait outside the scheduler never ends.
class FiberGateTest < ConsumerTestCase
  include FiberSchedulers

  SECONDS = GCLevel.slow? ? 60 : 20 # the limit for waits that would otherwise never end

  def setup
    super
    @topic = topic(on: embedded_cluster)
    @gated = GatedCluster.new(embedded_cluster.bootstrap_servers)
  end

  def teardown
    GCLevel.stop
    @consumers.each { |consumer| consumer.close(timeout: 1) }
    @producers.each { |producer| producer.close(timeout: 1) }
    @gated.close
    super
  end

  # Proves that the gate detects a wait that blocks the thread.
  def test_behind_the_gate_only_a_wait_through_the_scheduler_ends
    through_the_gate do
      handle = gated_producer.produce_async(record)
      Fiber.new(blocking: true) do
        assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 700) }
      end.resume
      assert_equal @topic, handle.wait.topic
    end
  end

  def test_messages_of_many_fibers_get_their_delivery_results
    through_the_gate do |fibers|
      one = gated_producer
      strands = Array.new(20) { fibers.start { one.produce_sync(record).offset } }
      strands += Array.new(20) { fibers.start { one.produce_many_sync([record] * 3).count(&:delivered?) } }
      offsets, counts = strands.map(&:join).each_slice(20).to_a
      assert_equal 20, offsets.compact.size
      assert_equal [3] * 20, counts
    end
  end

  def test_fibers_can_wait_for_one_handle_or_several
    through_the_gate do |fibers|
      one = gated_producer
      handles = one.produce_many_async([record] * 10)
      strands = Array.new(5) { fibers.start { handles.sum { |handle| handle.wait ? 1 : 0 } } }
      strands << fibers.start { Penstock::DeliveryHandle.await_all(handles, timeout: nil) }
      assert_equal [10] * 5 << true, strands.map(&:join)
    end
  end

  def test_flush_partition_count_disconnect_and_close_end_in_a_fiber
    through_the_gate do
      one = gated_producer("linger.ms": 300)
      handles = one.produce_many_async([record] * 10)
      assert_equal true, one.flush
      assert handles.all?(&:delivered?)
      one.buffer(record)
      assert_equal 4, one.partition_count(@topic)
      one.flush_sync.each { |handle| assert_predicate handle, :delivered? }
      assert_equal true, one.disconnect
      one.produce_async(record)
      assert_equal 1, one.close.delivered
    end
  end

  def test_fibers_that_wait_for_queue_space_get_it
    through_the_gate do |fibers|
      one = gated_producer("queue.buffering.max.messages": 2, "linger.ms": 1)
      strands = Array.new(10) { fibers.start { 3.times.map { one.produce_async(record) } } }
      assert_equal 30, strands.flat_map(&:join).count(&:wait)
    end
  end

  thorough slow def test_transactions_commit_abort_and_include_consumed_offsets
    produce(@topic, %w[a], on: producer(servers: embedded_cluster.bootstrap_servers))
    through_the_gate do
      one = gated_producer("transactional.id": @topic)
      assert_predicate one.transaction { one.produce_async(record) }, :delivered?
      assert_nil(one.transaction { one.produce_sync(record) && raise(Penstock::AbortTransaction) })
      reader = gated_consumer
      reader.subscribe(@topic)
      consumed = poll_until(reader)
      assert_nil(one.transaction { one.transaction_mark_as_consumed(reader, consumed) })
      assert_equal [0], reader.committed(@topic, [0]).keys # the embedded cluster does not count them
    end
  end

  thorough slow def test_a_group_consumer_polls_commits_queries_and_leaves_its_group
    produce(@topic, %w[a b c], on: producer(servers: embedded_cluster.bootstrap_servers))
    through_the_gate do
      reader = gated_consumer
      reader.subscribe(@topic)
      assert_equal "a", poll_until(reader).payload
      reader.commit
      assert_equal({ 0 => 1 }, reader.committed(@topic, [0]))
      assert_equal [0, 3], reader.watermarks(@topic, 0)
      assert_equal({ @topic => [0, 1, 2, 3] }, reader.assignment)
      reader.seek(@topic, 0, 2)
      assert_equal "c", poll_until(reader).payload
      reader.unsubscribe
      assert_predicate reader.close, :complete?
    end
  end

  def test_a_consumer_of_assigned_partitions_supports_poll_batch_and_each
    produce(@topic, %w[a b c], on: producer(servers: embedded_cluster.bootstrap_servers))
    through_the_gate do
      reader = gated_consumer
      reader.assign(@topic => { 0 => :beginning })
      batch = []
      batch.concat(reader.poll_batch(max: 3, timeout: 0.1)) while batch.size < 3
      assert_equal %w[a b c], batch.map(&:payload)
      reader.assign(@topic => { 0 => 1 })
      assert_equal %w[b c], reader.each.first(2).map(&:payload)
      assert_predicate reader.close, :complete?
    end
  end

  private

  def record = { topic: @topic, payload: "x", partition: 0 }

  def gated_producer(**kafka) = producer(servers: @gated.bootstrap_servers, **kafka)

  def gated_consumer
    group_consumer("group.id": @topic, "bootstrap.servers": @gated.bootstrap_servers, "enable.auto.commit": false)
  end

  def poll_until(reader)
    message = reader.poll(timeout: 0.1) until message
    message
  end

  def through_the_gate(&block)
    run_fibers(Plain.new(GateScheduler.new(@gated.gate)), seconds: SECONDS, &block)
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/fiber_test_case"

# The scheduler's own timeouts (Async's `task.with_timeout`). Each wait ends at its timeout, whether the fiber waits alone, is
# the leader of other waiting fibers, or is a follower. The waits of other fibers do not change.
class FiberTimeoutTest < FiberTestCase
  thorough(/_ends_(partition_count|close|a_consumers_commit)_under_async\z/) if KINDS.include?(:async)

  slow

  SECONDS = 0.2
  SLACK = GCLevel.slow? ? 8 : 2 # seconds that a fiber may be late while other programs run
  PLACE = { "test" => { 0 => 1 } }.freeze

  # Calls that wait for brokers that do not answer. Each block gets an unused producer or consumer. The method under test has no
  # timeout of its own that would end it earlier.
  PRODUCER = {
    produce_sync: ->(made) { made.produce_sync(MESSAGE) },
    produce_many_sync: ->(made) { made.produce_many_sync([MESSAGE] * 3) },
    handle_wait: ->(made) { made.produce_async(MESSAGE).wait },
    await_all: ->(made) { Penstock::DeliveryHandle.await_all(made.produce_many_async([MESSAGE] * 3), timeout: nil) },
    flush: ->(made) { made.produce_async(MESSAGE) && made.flush },
    flush_sync: ->(made) { made.buffer(MESSAGE) && made.flush_sync },
    partition_count: ->(made) { made.partition_count("test") },
    queue_space: ->(made) { 3.times { made.produce_async(MESSAGE) } },
    disconnect: ->(made) { made.produce_async(MESSAGE) && made.disconnect },
    close: ->(made) { made.produce_async(MESSAGE) && made.close(timeout: 3) },
    transaction: ->(made) { made.transaction { flunk "no broker has answered" } }
  }.freeze
  KAFKA = { queue_space: { "queue.buffering.max.messages": 1 }, transaction: { "transactional.id": "tx" } }.freeze
  CONSUMER = {
    poll: ->(made) { made.assign("test" => [0]).poll(timeout: nil) },
    poll_batch: ->(made) { made.assign("test" => [0]).poll_batch(max: 10, timeout: nil) },
    subscribed_poll: ->(made) { made.subscribe("test").poll(timeout: nil) },
    select: ->(made) { Penstock::Consumer.select([made], timeout: nil) },
    each: ->(made) { made.assign("test" => [0]).each(timeout: nil) { flunk "there are no messages" } },
    committed: ->(made) { made.committed("test", [0], timeout: nil) },
    watermarks: ->(made) { made.watermarks("test", 0, timeout: nil) },
    offsets_for_times: ->(made) { made.offsets_for_times("test", 0, Time.now, timeout: nil) }
  }.freeze

  def teardown
    GCLevel.stop
    @consumers&.each { |consumer| consumer.close(timeout: 5) }
    super
  end

  FiberSchedulers::KINDS.each do |kind|
    PRODUCER.each do |wait, call|
      # defect 19
      define_method("test_a_timeout_ends_#{wait}_under_#{kind}") do
        assert_ended_in_every_place(kind) { call.call(stuck_producer(**KAFKA.fetch(wait, {}))) }
      end
    end

    CONSUMER.each do |wait, call|
      define_method("test_a_timeout_ends_a_consumers_#{wait}_under_#{kind}") do
        assert_ended_in_every_place(kind) { call.call(stuck_consumer) }
      end
    end

    # A commit without an answer of the coordinator would delay the close of librdkafka by 45 s. This coordinator answers late.
    define_method("test_a_timeout_ends_a_consumers_commit_under_#{kind}") do
      slow = own_cluster.tap { |made| made.create_topic("test") }
      slow.set_round_trip_time(seconds: 0.5)
      assert_ended_in_every_place(kind) { stuck_consumer(slow.bootstrap_servers).commit(PLACE) }
    end

    # Two timeouts expire in one turn of the scheduler: the leader's, and that of a fiber that the leader wakes at its deadline.
    # defect 19
    define_method("test_a_timeout_at_another_fibers_deadline_ends_the_leaders_wait_under_#{kind}") do
      handle = stuck_producer.produce_async(MESSAGE)
      with_scheduler(kind) do |fibers|
        leader = fibers.start { seconds_of { timed_out(fibers) { handle.wait } } }
        followers = Array.new(20) do |i|
          fibers.start { seconds_of { assert_wait_times_out(handle, (SECONDS * 1000) - 10 + i) } }
        end
        sleep(SECONDS - 0.015)
        busy_wait(0.03) # so that all timeouts have expired when the scheduler looks
        [leader, *followers].each { |strand| assert_took((SECONDS - 0.02)..(SECONDS + SLACK), strand.join) }
      end
    end

    define_method("test_a_timeout_raises_the_error_that_it_was_given_under_#{kind}") do
      handle = stuck_producer.produce_async(MESSAGE)
      with_scheduler(kind) do |fibers|
        errors = [Class.new(fibers.timeout_error), Class.new(StandardError)]
        errors.each { |error| assert_raises(error) { fibers.timeout(0.01, error) { handle.wait } } }
      end
    end
  end

  private

  def stuck_consumer(servers = "127.0.0.1:1")
    made = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": servers, "group.id": "group", log_level: 0 }
    end
    made.tap { (@consumers ||= []) << made }
  end

  # Waits alone (its client opens during the wait), as the leader of others, and as a follower.
  def assert_ended_in_every_place(kind, &wait)
    other = stuck_producer.produce_async(MESSAGE)
    with_scheduler(kind) do |fibers|
      assert_ended(fibers, &wait)
      leader = fibers.start { assert_ended(fibers, &wait) }
      others = Array.new(3) { fibers.start { other.wait(max_wait_timeout_ms: nil) } }
      leader.join
      assert_ended(fibers, &wait)
      assert others.none?(&:done?)
      others.each { |strand| fibers.cancel(strand) }
    end
  end

  def assert_ended(fibers, &wait)
    elapsed = seconds_of { timed_out(fibers, &wait) }
    assert_took((SECONDS - 0.01)..(SECONDS + SLACK), elapsed)
  end

  def timed_out(fibers, &wait) = assert_raises(fibers.timeout_error) { fibers.timeout(SECONDS, &wait) }

  def assert_wait_times_out(handle, max_wait_timeout_ms)
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms:) }
  end

  def busy_wait(seconds)
    deadline = now + seconds
    nil until now > deadline
  end
end

# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/plain_scheduler"

begin
  require "async"
rescue LoadError
  nil # the tests under Async are not defined then
end

# Who takes a producer's events: config.polling.mode, and pollers without a thread.
class PollingModeTest < PenstockTest
  def reactor_producer(**kafka)
    producer("linger.ms": 0, **kafka) do |config|
      config.polling.mode = :reactor
      yield config if block_given?
    end
  end

  def pollers_threads = native_threads.grep(/\Apenstock.poller/)

  # In a thread of its own, as a scheduler belongs to one.
  def under_plain(&block)
    scheduler = PlainScheduler.new
    thread = quiet_thread do
      Fiber.set_scheduler(scheduler)
      result = nil
      Fiber.schedule { result = block.call }
      scheduler.run
      result
    end
    thread.value.tap { assert_equal 0, scheduler.strays }
  end

  def under_async(&block) = quiet_thread { Sync(&block) }.value

  SCHEDULERS = [:plain, (:async if defined?(Async))].compact.freeze

  def self.test_under_each_scheduler(claim, &block)
    SCHEDULERS.each do |kind|
      define_method("test_#{claim}_under_#{kind}") { instance_exec(->(&part) { send("under_#{kind}", &part) }, &block) }
    end
  end

  # ---- a thread for each producer ----

  def test_in_mode_thread_each_producer_has_a_poller_and_a_thread_of_its_own
    name = topic
    pair = Array.new(2) { producer { |config| config.polling.mode = :thread } }
    assert_empty pollers_threads
    pair.each { |one| one.produce_sync(topic: name, payload: "x") }
    assert_equal 2, pollers_threads.size
    assert_equal [1, 1], pair.map { |one| one.poller.count }
    refute_includes pair.map(&:poller), Penstock::Poller.instance
    assert_equal 2, pair.map(&:poller).uniq.size
    pair.first.close
    eventually { pollers_threads.size == 1 }
  end

  def test_a_variant_is_served_by_its_producers_poller
    name = topic
    one = producer { |config| config.polling.mode = :thread }
    one.with(topic_config: { "compression.type": "gzip" }).produce_sync(topic: name, payload: "x")
    one.produce_sync(topic: name, payload: "x")
    assert_equal 2, one.poller.count
  end

  # ---- reactor ----

  test_under_each_scheduler "a_reactor_needs_no_thread" do |under|
    name = topic
    one = reactor_producer
    threads = []
    offsets = under.call do
      reports = Array.new(3) { one.produce_sync(topic: name, payload: "x", partition: 0) }
      handles = one.produce_many_sync([{ topic: name, payload: "x", partition: 0 }] * 300)
      later = one.produce_async(topic: name, payload: "x", partition: 0)
      threads.concat(pollers_threads)
      sleep 0.001 while later.pending?
      [*reports, *handles.map(&:report), later.report].map(&:offset)
    end
    assert_equal (0..303).to_a, offsets
    assert_empty threads
    assert_operator one.poller.stats[:wakeups], :>, 0
    assert_equal [0, 0], one.poller.stats.values_at(:starts, :missed_wakeups)
  end

  test_under_each_scheduler "a_reactor_ends_soon_after_the_last_verdict" do |under|
    name = topic
    one = reactor_producer
    ended = nil
    under.call do
      one.produce_sync(topic: name, payload: "x")
      ended = now
    end
    assert_operator now - ended, :<, 0.9 # a sweep would be a second
    refute one.produce_async(topic: name, payload: "x").wait.error
  end

  test_under_each_scheduler "what_is_sent_and_not_waited_for_is_delivered_before_the_reactor_ends" do |under|
    name = topic
    one = reactor_producer
    handles = under.call { Array.new(50) { one.produce_async(topic: name, payload: "x") } }
    assert handles.none?(&:pending?)
  end

  test_under_each_scheduler "many_fibers_of_a_reactor_send_at_once" do |under|
    name = topic
    one = reactor_producer
    sent = 0
    under.call do
      200.times do
        Fiber.schedule { 5.times { sent += 1 if one.produce_sync(topic: name, payload: "x").delivered? } }
      end
    end
    assert_equal 1_000, sent
  end

  test_under_each_scheduler "flush_close_and_room_in_the_queue_work_in_a_reactor" do |under|
    name = topic
    one = reactor_producer("queue.buffering.max.messages": 10)
    report = under.call do
      200.times { one.produce_async(topic: name, payload: "x") }
      assert_equal true, one.flush
      assert_equal 0, one.queue_size
      one.produce_async(topic: name, payload: "x")
      one.close
    end
    assert_equal 0, report.failed + report.purged + report.pending
    eventually { pollers_threads.empty? }
  end

  test_under_each_scheduler "transactions_work_in_a_reactor" do |under|
    name = topic
    one = reactor_producer("transactional.id": "reactor-#{rand(2**32)}")
    reports = under.call { one.transaction { Array.new(3) { one.produce_sync(topic: name, payload: "x") } } }
    assert_equal [true] * 3, reports.map(&:delivered?)
    under.call { one.close }
  end

  def test_when_the_fiber_that_drains_is_stopped_a_thread_takes_over_under_plain
    assert_taken_over do |send|
      made = []
      Fiber.scheduler.define_singleton_method(:fiber) { |&block| super(&block).tap { |fiber| made << fiber } }
      handle = send.call
      assert_raises(RuntimeError) { made.first.raise("stopped") }
      handle.wait
    end
  end

  if defined?(Async)
    def test_when_the_fiber_that_drains_is_stopped_a_thread_takes_over_under_async
      assert_taken_over(:under_async) do |send|
        handle = nil
        sender = Async do # what it schedules is stopped with it
          handle = send.call
          sleep 10
        end
        sleep 0.001 until handle # Async 2 runs what is scheduled first
        sender.stop
        handle.wait
      end
    end
  end

  def assert_taken_over(under = :under_plain)
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    one = producer(servers: slow.bootstrap_servers, "linger.ms": 0) { |config| config.polling.mode = :reactor }
    public_send(under) { one.produce_sync(topic: name, payload: "x") }
    slow.set_round_trip_time(200)
    report = public_send(under) { yield(-> { one.produce_async(topic: name, payload: "x") }) }
    assert_equal 1, report.offset
    assert_equal 1, one.poller.stats[:starts]
    eventually { pollers_threads.empty? }
  end

  test_under_each_scheduler "one_scheduler_after_the_other_drains" do |under|
    name = topic
    one = reactor_producer
    3.times { assert_predicate under.call { one.produce_sync(topic: name, payload: "x") }, :delivered? }
    assert_equal 0, one.poller.stats[:starts]
  end

  test_under_each_scheduler "several_threads_with_a_scheduler_each_share_a_producer" do |under|
    name = topic
    one = reactor_producer
    threads = Array.new(3) do
      Thread.new { under.call { Array.new(50) { one.produce_sync(topic: name, payload: "x") } } }
    end
    assert_equal 150, threads.flat_map(&:value).count(&:delivered?)
  end

  def test_a_fiber_goes_on_while_the_thread_whose_fiber_drains_is_blocked
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    one = producer(servers: slow.bootstrap_servers, "linger.ms": 0) { |config| config.polling.mode = :reactor }
    one.produce_sync(topic: name, payload: "x")
    slow.set_round_trip_time(100)
    report = under_plain do
      one.produce_async(topic: name, payload: "x") # drained by a fiber of this thread
      Fiber.new(blocking: true) { under_plain { one.produce_sync(topic: name, payload: "x") } }.resume
    end
    assert_equal 2, report.offset
  end

  def test_what_was_sent_before_an_interrupt_that_came_for_room_in_the_queue_is_served
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    one = producer(servers: slow.bootstrap_servers, "linger.ms": 0, "queue.buffering.max.messages": 2) do |config|
      config.polling.mode = :reactor
    end
    one.produce_sync(topic: name, payload: "x")
    slow.set_round_trip_time(300)
    sending = quiet_thread { one.produce_many_async(Array.new(10) { { topic: name, payload: "x" } }) }
    eventually { sending.stop? && one.queue_size == 2 }
    sending.kill.join
    eventually { one.queue_size.zero? }
  end

  # ---- without a scheduler ----

  def test_where_no_scheduler_runs_a_thread_serves_while_messages_are_in_flight
    name = topic
    one = reactor_producer
    20.times { assert_predicate one.produce_sync(topic: name, payload: "x"), :delivered? }
    handle = one.produce_async(topic: name, payload: "x")
    eventually { !handle.pending? }
    eventually { pollers_threads.empty? }
    assert_equal 0, one.poller.stats[:missed_wakeups]
  end

  def test_a_blocking_fiber_beside_the_one_that_drains_waits_like_a_thread
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    one = producer(servers: slow.bootstrap_servers, "linger.ms": 0) { |config| config.polling.mode = :reactor }
    one.produce_sync(topic: name, payload: "x")
    slow.set_round_trip_time(100)
    report = under_plain do
      handle = one.produce_async(topic: name, payload: "x") # drained by a fiber of this thread, which cannot run:
      Fiber.new(blocking: true) { handle.wait }.resume
    end
    assert_equal 1, report.offset
  end

  def test_a_trap_waits_in_a_reactor
    name = topic
    one = reactor_producer
    reports = []
    before = Signal.trap("USR2") { reports << one.produce_sync(topic: name, payload: "x") }
    in_main_thread_under_plain do
      one.produce_sync(topic: name, payload: "x")
      Process.kill(:USR2, Process.pid)
      sleep 0.01 until reports.any?
    end
    assert_predicate reports.first, :delivered?
  ensure
    Signal.trap("USR2", before || "DEFAULT")
  end

  def in_main_thread_under_plain(&block)
    Fiber.set_scheduler(PlainScheduler.new)
    Fiber.schedule(&block)
    Fiber.scheduler.run
  ensure
    Fiber.set_scheduler(nil)
  end

  def test_a_forked_child_of_a_reactor_sends_on_its_own
    name = topic
    one = reactor_producer
    under_plain { one.produce_sync(topic: name, payload: "parent") }
    child = fork do
      delivered = under_plain { one.produce_sync(topic: name, payload: "child") }.delivered?
      one.close
      exit!(delivered ? 0 : 1)
    end
    assert_predicate Process.wait2(child).last, :success?
    assert_predicate under_plain { one.produce_sync(topic: name, payload: "parent") }, :delivered?
  end

  # ---- another event loop ----

  def test_an_event_loop_drains_a_poller_that_has_no_thread
    name = topic
    poller = Penstock::Poller.new(thread: false)
    one = reactor_producer { |config| config.polling.poller = poller }
    io = poller.io
    handles = Array.new(50) { one.produce_async(topic: name, payload: "x") }
    deadline = now + 10
    while handles.any?(&:pending?) && now < deadline
      assert io.wait_readable(10)
      poller.drain
    end
    assert handles.all?(&:delivered?)
    assert_empty pollers_threads
    refute io.wait_readable(0.05)
    refute poller.drain
  end

  def test_a_drain_that_is_cut_short_says_that_there_is_more
    name = topic(partitions: 1)
    poller = Penstock::Poller.new(thread: false)
    one = reactor_producer("batch.num.messages": 100_000, "linger.ms": 300, "queue.buffering.max.messages": 200_000) do |config|
      config.polling.poller = poller
      config.polling.fd.max_time = 1
    end
    io = poller.io
    handles = one.produce_many_async(Array.new(100_000) { { topic: name, payload: "" } }) # settled in more than 1 ms
    more = false
    deadline = now + 30
    while handles.last.pending? && now < deadline
      assert io.wait_readable(10)
      more |= poller.drain
    end
    poller.drain while more && io.wait_readable(0)
    assert handles.all?(&:delivered?)
    assert more
  end

  def test_a_poller_with_a_thread_has_nothing_to_drain
    poller = Penstock::Poller.new
    assert_predicate poller, :thread?
    refute_predicate Penstock::Poller.new(thread: false), :thread?
    %i[io drain].each do |name|
      assert_match(/thread: false/, assert_raises(Penstock::Error) { poller.public_send(name) }.message)
    end
  end

  def test_producers_share_a_poller_that_has_no_thread
    name = topic
    poller = Penstock::Poller.new(thread: false)
    several = Array.new(5) { reactor_producer { |config| config.polling.poller = poller } }
    delivered = under_plain do
      several.map { |one| one.produce_async(topic: name, payload: "x") }.map(&:wait).map(&:delivered?)
    end
    assert_equal [true] * 5, delivered
    assert_equal 5, poller.count
    several.each(&:close)
    assert_equal 0, poller.count
    eventually { pollers_threads.empty? }
  end
end

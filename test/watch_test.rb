# frozen_string_literal: true

require_relative "test_helper"

# A thread that waits for a message serves its client itself meanwhile (ext/penstock/core/client/watch.c). What may happen to
# it then, and what becomes of all that others wait for. How that goes natively, with races: core_test.rb.
class WatchTest < PenstockTest
  MUCH = 200

  def setup
    super
    @slow = own_cluster(brokers: 2)
    @near = led_by(1)
    @far = led_by(2)
    @poller = Penstock::Poller.new
    @one = watched_producer
    [@near, @far].each { |name| @one.produce_sync(topic: name, payload: "x") }
  end

  def watched_producer(**kafka)
    producer(servers: @slow.bootstrap_servers, "linger.ms": 0, **QUICK, **kafka) do |config|
      config.polling.poller = @poller
      yield config if block_given?
    end
  end

  def led_by(broker)
    topic(on: @slow, partitions: 1).tap { |name| @slow.move_leader(name, 0, broker) }
  end

  def wakeups = @poller.stats[:wakeups]

  # A thread that waits for a message to the broker that takes its time, and serves meanwhile.
  def serving_thread(milliseconds = 1_000)
    @slow.set_round_trip_time(seconds: milliseconds / 1000.0, broker: 2)
    @served = @one.produce_async(topic: @far, payload: "x")
    quiet_thread { @served.wait }.tap { |thread| eventually { thread.stop? } }
  end

  def test_the_poller_sleeps_while_threads_that_wait_serve_themselves
    before = wakeups
    message = { topic: @near, payload: "x" }
    MUCH.times { @one.produce_sync(message) }
    MUCH.times { @one.produce_many_sync([message, message]) }
    assert_operator wakeups - before, :<, MUCH
    assert_operator @poller.stats[:messages], :>=, 3 * MUCH
  end

  def test_the_poller_serves_what_nobody_waits_for
    before = wakeups
    10.times do
      handle = @one.produce_async(topic: @near, payload: "x")
      eventually { !handle.pending? }
    end
    assert_operator wakeups - before, :>=, 10
  end

  def test_what_others_do_is_settled_by_a_thread_that_waits_for_something_else
    thread = serving_thread
    before = wakeups
    handles = Array.new(5) do
      @one.produce_async(topic: @near, payload: "x").tap { |handle| eventually { !handle.pending? } }
    end
    assert_equal [1, 2, 3, 4, 5], handles.map { |handle| handle.report.offset }
    assert_predicate thread, :alive?
    assert_equal before, wakeups
    assert_equal 1, thread.value.offset
  end

  def test_two_threads_that_wait_for_one_client_both_get_their_verdicts
    thread = serving_thread(300)
    others = Array.new(3) { Thread.new { @one.produce_sync(topic: @near, payload: "x").offset } }
    assert_equal [1, 2, 3], others.map(&:value).sort
    assert_equal 1, thread.value.offset
  end

  def test_whole_batches_are_settled_beside_a_thread_that_serves
    thread = serving_thread
    assert_equal 5_000, @one.produce_many_sync(Array.new(5_000) { { topic: @near, payload: "x" } }).size
    assert_predicate thread, :alive?
    thread.join
  end

  # Each of these ends the wait of the thread that serves. Those who wait beside it go on.
  { kill: :kill.to_proc, raise: ->(thread) { thread.raise(Interrupt) } }.each do |name, interrupt|
    define_method("test_after_thread_#{name}_of_the_thread_that_serves_the_others_get_their_verdicts") do
      thread = serving_thread
      waiting = Array.new(2) { quiet_thread { @one.produce_sync(topic: @far, payload: "x").offset } }
      handle = @one.produce_async(topic: @far, payload: "x")
      eventually { waiting.all?(&:stop?) }
      interrupt.call(thread)
      eventually { !thread.alive? }
      assert_predicate @served, :pending?
      assert_equal [2, 3, 4], [*waiting.map(&:value), handle.wait.offset].sort
    end
  end

  def test_a_wait_that_runs_out_of_time_leaves_the_client_to_the_poller
    @slow.set_round_trip_time(seconds: 0.5, broker: 2)
    handle = @one.produce_async(topic: @far, payload: "x")
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 20) }
    assert_predicate handle, :pending?
    before = wakeups
    eventually { !handle.pending? }
    assert_operator wakeups, :>, before
  end

  def test_threads_that_are_interrupted_again_and_again_lose_nothing
    stop = false
    threads = Array.new(3) do
      Thread.new do
        sent = 0
        until stop
          begin
            Timeout.timeout(rand / 300) { @one.produce_sync(topic: @near, payload: "x") }
          rescue Timeout::Error
            nil # what is tested
          end
          sent += 1
        end
        sent
      end
    end
    sleep 1
    stop = true
    assert_operator threads.sum(&:value), :>, 100
    eventually { @one.queue_size.zero? }
  end

  def test_close_while_a_thread_serves_gives_that_its_verdict
    thread = serving_thread(30_000)
    assert_operator seconds_of { @one.close(timeout: 0) }, :<, 5
    assert_raises(Penstock::DeliveryError) { thread.value.error&.then { |error| raise error } }
    assert_equal 0, @poller.count
  end

  def test_flush_while_a_thread_serves_waits_for_all
    thread = serving_thread(300)
    handle = @one.produce_async(topic: @near, payload: "x")
    assert_equal true, @one.flush(timeout: 10)
    refute_predicate handle, :pending?
    assert_equal 1, thread.value.offset
  end

  def test_a_child_forked_while_a_thread_serves_works_and_the_thread_goes_on
    thread = serving_thread
    name = @near
    assert_equal 1, in_child { @one.produce_sync(topic: name, payload: "x").offset.tap { @one.close } }
    assert_equal 1, thread.value.offset
  end

  def test_a_signal_handler_runs_while_its_thread_serves_and_may_send
    ruby!(<<~RUBY, @slow.bootstrap_servers, @near, @far)
      one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0], "linger.ms": 0 } }
      [1, 2].each { |i| one.produce_sync(topic: ARGV[i], payload: "x") }
      offset = nil
      trap("USR1") { offset = one.produce_sync(topic: ARGV[1], payload: "x").offset }
      trap("USR2") { Process.wait(fork { one.produce_sync(topic: ARGV[1], payload: "x") && exit!(0) }) }
      Thread.new { %w[USR1 USR2].each { |signal| sleep 0.1; Process.kill(signal, Process.pid) } }
      one.produce_many_async([{ topic: ARGV[2], payload: "x" }] * 3)
      1.upto(50) { one.produce_sync(topic: ARGV[2], payload: "x"); sleep 0.005 }
      abort "no handler has run" unless offset
      missed = Penstock::Poller.instance.stats[:missed_wakeups]
      abort "missed \#{missed}" unless missed.zero?
    RUBY
  end

  def test_listeners_are_told_by_a_thread_that_serves
    told = Queue.new
    @one.monitor.subscribe("message.acknowledged") { |event| told << event[:offset] }
    thread = serving_thread
    @one.produce_async(topic: @near, payload: "x")
    assert_equal 1, Timeout.timeout(10) { told.pop }
    assert_predicate thread, :alive?
    assert_equal 1, thread.value.offset
    assert_equal 1, Timeout.timeout(10) { told.pop }
  end

  def test_statistics_are_told_and_logs_are_written_while_a_thread_serves
    lines = StringIO.new
    @one = watched_producer("statistics.interval.ms": 50, debug: "msg") { |config| config.logger = Logger.new(lines) }
    told = Queue.new
    @one.monitor.subscribe("statistics.emitted") { |event| told << event }
    [@near, @far].each { |name| @one.produce_sync(topic: name, payload: "x") }
    thread = serving_thread(2_000)
    before = wakeups
    told.clear
    3.times { Timeout.timeout(10) { told.pop } }
    lines.truncate(0)
    @one.produce_async(topic: @near, payload: "x")
    eventually { lines.string.include?(@near) }
    assert_predicate thread, :alive?
    assert_operator wakeups - before, :<, 3
    thread.join
  end

  def test_other_ractors_threads_serve_too
    handle = @one.shareable
    before = wakeups
    offsets = $VERBOSE.then do |verbose|
      $VERBOSE = nil # Ruby 3.3 warns of Ractors although Warning[:experimental] is false
      ractor = Ractor.new(handle, @near) { |one, name| Array.new(50) { one.produce_sync(topic: name, payload: "x").offset } }
      ractor.respond_to?(:value) ? ractor.value : ractor.take
    ensure
      $VERBOSE = verbose
    end
    assert_equal (1..50).to_a, offsets
    assert_operator wakeups - before, :<, 25
  end
end

# frozen_string_literal: true

require_relative "../test_helper"

# A thread that waits for a message serves its client itself meanwhile (ext/penstock/core/client/watch.c). The tests interrupt
# that thread in several ways, and check that all other waits still end. core_test.rb tests the races natively.
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

  # A thread that waits for a message to the slow broker, and serves the client meanwhile.
  def serving_thread(milliseconds = 1_000)
    @slow.set_round_trip_time(seconds: milliseconds / 1000.0, broker: 2)
    @served = @one.produce_async(topic: @far, payload: "x")
    quiet_thread { @served.wait }.tap { |thread| eventually { thread.stop? } }
  end

  def test_the_poller_sleeps_while_waiting_threads_serve_their_client
    before = wakeups
    message = { topic: @near, payload: "x" }
    MUCH.times { @one.produce_sync(message) }
    MUCH.times { @one.produce_many_sync([message, message]) }
    assert_operator wakeups - before, :<, MUCH
    assert_operator @poller.stats[:messages], :>=, 3 * MUCH
  end

  def test_the_poller_serves_messages_without_a_waiting_thread
    before = wakeups
    10.times do
      handle = @one.produce_async(topic: @near, payload: "x")
      eventually { !handle.pending? }
    end
    assert_operator wakeups - before, :>=, 10
  end

  slow def test_a_waiting_thread_settles_messages_of_other_threads
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

  def test_several_threads_that_wait_for_one_client_all_get_their_results
    thread = serving_thread(300)
    others = Array.new(3) { Thread.new { @one.produce_sync(topic: @near, payload: "x").offset } }
    assert_equal [1, 2, 3], others.map(&:value).sort
    assert_equal 1, thread.value.offset
  end

  slow def test_batches_are_settled_while_another_thread_serves
    thread = serving_thread
    assert_equal 5_000, @one.produce_many_sync(Array.new(5_000) { { topic: @near, payload: "x" } }).size
    assert_predicate thread, :alive?
    thread.join
  end

  # Each of these ends the wait of the serving thread. The threads that wait beside it continue.
  { kill: :kill.to_proc, raise: ->(thread) { thread.raise(Interrupt) } }.each do |name, interrupt|
    define_method("test_after_thread_#{name}_of_the_serving_thread_the_others_get_their_results") do
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

  def test_after_a_wait_times_out_the_poller_serves_the_client
    @slow.set_round_trip_time(seconds: 0.5, broker: 2)
    handle = @one.produce_async(topic: @far, payload: "x")
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 20) }
    assert_predicate handle, :pending?
    before = wakeups
    eventually { !handle.pending? }
    assert_operator wakeups, :>, before
  end

  slow def test_repeatedly_interrupted_threads_lose_no_message
    stop = false
    threads = Array.new(3) do
      Thread.new do
        sent = 0
        until stop
          begin
            Timeout.timeout(rand / 300) { @one.produce_sync(topic: @near, payload: "x") }
          rescue Timeout::Error
            nil # the interrupt under test
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

  def test_close_settles_the_message_of_a_serving_thread
    thread = serving_thread(30_000)
    assert_took(5, seconds_of { @one.close(timeout: 0) })
    assert_raises(Penstock::DeliveryError) { thread.value.error&.then { |error| raise error } }
    assert_equal 0, @poller.count
  end

  slow def test_flush_while_a_thread_serves_waits_for_all_messages
    thread = serving_thread(300)
    handle = @one.produce_async(topic: @near, payload: "x")
    assert_equal true, @one.flush(timeout: 10)
    refute_predicate handle, :pending?
    assert_equal 1, thread.value.offset
  end

  slow def test_a_child_forked_while_a_thread_serves_works_and_the_thread_continues
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

  slow def test_a_serving_thread_publishes_events
    published = Queue.new
    @one.monitor.subscribe("message.acknowledged") { |event| published << event[:offset] }
    thread = serving_thread
    @one.produce_async(topic: @near, payload: "x")
    assert_equal 1, Slowness.within(10) { published.pop }
    assert_predicate thread, :alive?
    assert_equal 1, thread.value.offset
    assert_equal 1, Slowness.within(10) { published.pop }
  end

  slow def test_statistics_are_published_and_logs_written_while_a_thread_serves
    lines = StringIO.new
    @one = watched_producer("statistics.interval.ms": 50, debug: "msg") { |config| config.logger = Logger.new(lines) }
    published = Queue.new
    @one.monitor.subscribe("statistics.emitted") { |event| published << event }
    [@near, @far].each { |name| @one.produce_sync(topic: name, payload: "x") }
    thread = serving_thread(2_000)
    before = wakeups
    published.clear
    3.times { Slowness.within(10) { published.pop } }
    lines.truncate(0)
    @one.produce_async(topic: @near, payload: "x")
    eventually { lines.string.include?(@near) }
    assert_predicate thread, :alive?
    assert_operator wakeups - before, :<, 3
    thread.join
  end

  slow def test_threads_of_other_ractors_serve_too
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

# frozen_string_literal: true

require_relative "../test_helper"

# Ctrl-C, deadlines, and interrupts that are deferred. conformance_test.rb shows that every call lets other threads run, and that
# Thread#raise, Thread#kill and Timeout end it at once and leave its object usable.
class InterruptTest < PenstockTest
  thorough(/\Atest_every_call_(beside|after)_/)

  slow(/control_c/)

  class Cancelled < StandardError; end

  SOON = GCLevel.slow? ? 5 : 1 # seconds from an interrupt or a deadline to the end of the call

  MESSAGE = { topic: "test", payload: "x" }.freeze

  PROGRAM = <<~RUBY
    Thread.report_on_exception = false
    MESSAGE = { topic: "test", payload: "x" }.freeze
    CALLS = {
      produce_sync: ->(producer) { producer.produce_sync(MESSAGE) },
      produce_many_sync: ->(producer) { producer.produce_many_sync([MESSAGE] * 3) },
      wait: ->(producer) { producer.produce_async(MESSAGE).wait(max_wait_timeout_ms: 10_000) },
      flush: ->(producer) { producer.produce_async(MESSAGE) && producer.flush },
      close: ->(producer) { producer.produce_async(MESSAGE) && producer.close },
      partition_count: ->(producer) { producer.partition_count("test") }
    }
    def now = Process.clock_gettime(Process::CLOCK_REALTIME) # which the shell has, too
    STAYING = ARGV[0] == "staying"
    CALLS.delete(:partition_count) unless ARGV[0] == "alone" # it waits natively for 5 s, so one test is enough
    CALLS.each do |name, call|
      producer = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 }
        config.close_timeout = 5_000
        config.max_wait_timeout = 10_000
      end
      Thread.new { sleep } if STAYING
      Thread.new { sleep 0.1 } unless ARGV[0] == "alone"
      killer = nil
      begin
        killer = IO.popen("sleep 0.3; date +%s.%N; kill -INT " + Process.pid.to_s)
        call.call(producer)
        abort "\#{name} was not interrupted"
      rescue Interrupt
        ended = now
        late = ended - Float(killer.read)
        abort "\#{name} ended \#{late} s after Ctrl-C" if late > Float(ARGV[1])
      rescue Penstock::Error => e
        abort "\#{name} ended with \#{e.class}"
      end
      killer.close
      producer.close(timeout: 0)
    end
  RUBY

  { "alone" => "in_the_only_thread", "staying" => "beside_a_sleeping_thread", "ending" => "after_another_thread_has_ended" }
    .each do |kind, situation|
      # defect 19
      define_method("test_every_call_#{situation}_is_interrupted_by_control_c") { ruby!(PROGRAM, kind, SOON.to_s) }
    end

  # ---- deadlines ----

  DEADLINES = {
    produce_sync: [0.3, ->(producer) { producer.produce_sync(MESSAGE) }],
    produce_many_sync: [0.3, ->(producer) { producer.produce_many_sync([MESSAGE] * 3) }],
    wait: [0.4, ->(producer) { producer.produce_async(MESSAGE).wait(max_wait_timeout_ms: 400) }],
    flush: [0.4, ->(producer) { producer.produce_async(MESSAGE) && producer.flush(timeout: 0.4) }],
    flush_by_default: [0.3, ->(producer) { producer.produce_async(MESSAGE) && producer.flush }]
  }.freeze

  DEADLINES.each do |name, (seconds, call)|
    # defect 27
    # behaviour: produce_sync
    # behaviour: max_wait_timeout
    define_method("test_#{name}_ends_at_its_deadline_with_a_timeout_error") do
      stuck = unreachable_producer { |config| config.max_wait_timeout = 300 }
      error = nil
      elapsed = seconds_of { error = assert_raises(Penstock::WaitTimeoutError) { call.call(stuck) } }
      assert_took((seconds - 0.01)..(seconds + SOON), elapsed)
      assert_kind_of Penstock::TimeoutError, error
      assert_equal stuck.id, error.producer_id
      stuck.close(timeout: 0)
    end
  end

  thorough slow def test_partition_count_raises_after_5_seconds_and_names_producer_topic_and_brokers
    stuck = unreachable_producer
    error = nil
    assert_took(4.9..(5 + SOON), seconds_of { error = assert_raises(Penstock::Error) { stuck.partition_count("missing") } })
    [stuck.id, "missing", "127.0.0.1:1"].each { |part| assert_includes error.message, part }
    assert_predicate error, :retriable?
  end

  slow def test_a_flush_while_other_threads_produce_does_not_report_a_timeout
    busy = producer("linger.ms": 0)
    name = topic
    stop = false
    threads = Array.new(3) { Thread.new { busy.produce_sync(topic: name, payload: "x") until stop } }
    finished = now + 1
    flushes = 0
    while now < finished
      busy.produce_async(topic: name, payload: "x") # so that there is something to wait for
      assert_equal true, busy.flush(timeout: 30)
      flushes += 1
    end
    assert_operator flushes, :>, 0
  ensure
    stop = true
    threads&.each(&:join)
  end

  # ---- afterwards ----

  thorough slow def test_an_interrupted_wait_leaves_the_message_in_flight_and_can_be_repeated
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    one = producer(servers: slow.bootstrap_servers)
    one.produce_sync(topic: name, payload: "x")
    slow.set_round_trip_time(seconds: 2)
    handle = one.produce_async(topic: name, payload: "x")
    2.times { assert_raises(Timeout::Error) { Timeout.timeout(0.05) { handle.wait } } }
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 10) }
    assert_predicate handle, :pending?
    assert_equal 1, handle.wait.offset
  end

  def test_interrupting_one_waiter_leaves_the_others_waiting
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    one = producer(servers: slow.bootstrap_servers)
    one.produce_sync(topic: name, payload: "x")
    slow.set_round_trip_time(seconds: 0.3)
    handle = one.produce_async(topic: name, payload: "x")
    threads = Array.new(6) { Thread.new { handle.wait.offset } }
    eventually { threads.all?(&:stop?) }
    threads.shift(3).each(&:kill).each(&:join)
    assert_equal [1, 1, 1], threads.map(&:value)
  end

  # ---- deferred with Thread.handle_interrupt ----

  alone def test_a_deferred_interrupt_neither_spins_nor_is_lost
    stuck = unreachable_producer
    handle = stuck.produce_async(MESSAGE)
    waited = cpu = nil
    thread = quiet_thread do
      Thread.handle_interrupt(Cancelled => :never) do
        cpu = cpu_seconds_of do
          waited = seconds_of do
            assert_raises(Penstock::WaitTimeoutError) do
              handle.wait(max_wait_timeout_ms: 600)
            end
          end
        end
      end
      flunk "the interrupt was lost"
    end
    eventually { thread.stop? }
    thread.raise(Cancelled)
    assert_raises(Cancelled) { thread.join }
    assert_operator waited, :>, 0.59
    assert_operator cpu, :<, 0.1 + (GCLevel.slow? ? 5 : 0)
    stuck.close(timeout: 0)
  end

  def test_an_interrupt_deferred_until_a_blocking_call_arrives_during_a_wait
    stuck = unreachable_producer
    handle = stuck.produce_async(MESSAGE)
    thread = quiet_thread { Thread.handle_interrupt(Cancelled => :on_blocking) { handle.wait } }
    eventually { thread.stop? }
    elapsed = seconds_of do
      thread.raise(Cancelled)
      assert_raises(Cancelled) { thread.join }
    end
    assert_took(SOON, elapsed)
    stuck.close(timeout: 0)
  end

  {
    wait: ->(_, handle) { handle.wait(max_wait_timeout_ms: 2_000) },
    wait_for_room: ->(stuck, _) { stuck.produce_async(MESSAGE) }
  }.each do |name, call|
    define_method("test_an_earlier_interrupt_deferred_until_a_blocking_call_ends_a_#{name}_at_once") do
      stuck = unreachable_producer("queue.buffering.max.messages": 1) { |config| config.wait_timeout_on_queue_full = 2_000 }
      handle = stuck.produce_async(MESSAGE)
      elapsed = seconds_of do
        assert_raises(Cancelled) do
          Thread.handle_interrupt(Cancelled => :on_blocking) do
            Thread.new(Thread.current) { |waiting| waiting.raise(Cancelled) }.join(0) # joining longer would block
            Thread.pass until Thread.pending_interrupt?
            call.call(stuck, handle)
          end
        end
      end
      assert_took(SOON, elapsed)
      stuck.close(timeout: 0)
    end
  end

  # ---- signals that do not end the wait ----

  def test_signal_handlers_run_during_a_wait_and_the_wait_lasts_until_its_deadline
    stuck = unreachable_producer
    handle = stuck.produce_async(MESSAGE)
    seen = 0
    before = Signal.trap("USR1") { seen += 1 }
    sender = Thread.new do
      5.times do |i|
        Process.kill(:USR1, Process.pid)
        eventually { seen > i }
      end
      :all_seen
    end
    elapsed = seconds_of { assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 700) } }
    assert_equal :all_seen, sender.value
    assert_took(0.69..(0.7 + SOON), elapsed)
  ensure
    sender&.join
    Signal.trap("USR1", before || "DEFAULT")
    stuck.close(timeout: 0)
  end

  private

  def cpu_seconds_of
    start = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
    yield
    Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - start
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/fiber_schedulers"
require_relative "../support/slow_calls"

# A caller that waits for delivery results does not wait for linger.ms. See core/produce/flusher.c.
class FlushOnWaitTest < PenstockTest
  include FreshCluster
  include FiberSchedulers
  include SlowCalls

  LINGER_MS = 30_000

  # A call that lingers takes 30 s; one that does not takes some ms.
  def assert_does_not_linger(&work)
    assert_took(LINGER_MS / 2_000, seconds(&work))
  end

  def seconds
    before = now
    yield
    now - before
  end

  def messages(topic, count) = Array.new(count) { |i| { topic:, payload: i.to_s } }
  def lingering(**settings, &block) = producer("linger.ms": LINGER_MS, **settings, &block)

  # ---- which calls do not linger ----

  def test_synchronous_calls_do_not_linger
    waiting = lingering
    name = topic
    assert_does_not_linger do
      3.times { waiting.produce_sync(topic: name, payload: "x") }
      waiting.produce_many_sync(messages(name, 1_000))
      waiting.buffer_many(messages(name, 10))
      waiting.flush_sync
    end
    assert_equal 1_013, waiting.metrics[:delivered]
  end

  slow def test_waiting_for_handles_does_not_linger
    waiting = lingering
    name = topic
    assert_does_not_linger do
      waiting.produce_async(topic: name, payload: "x").wait
      waiting.produce_many_async(messages(name, 100)).each(&:wait)
      waiting.produce_many_async(messages(name, 100)).reverse.each(&:wait)
      assert Penstock::DeliveryHandle.await_all(Array.new(100) { waiting.produce_async(topic: name, payload: "x") })
    end
  end

  FiberSchedulers::KINDS.each do |kind|
    define_method("test_#{kind}_fibers_that_wait_do_not_linger") do
      waiting = lingering
      name = topic
      assert_does_not_linger do
        with_scheduler(kind) do |fibers|
          Array.new(10) { fibers.start { waiting.produce_sync(topic: name, payload: "x") } }.each(&:join)
        end
      end
    end
  end

  def test_a_message_whose_partition_is_not_known_yet_does_not_linger
    assert_does_not_linger { lingering.produce_sync(topic: "not-known-#{rand(2**32)}", payload: "x") }
  end

  def test_synchronous_calls_in_a_transaction_do_not_linger
    waiting = lingering("transactional.id": "lingers-#{rand(2**32)}")
    assert_does_not_linger do
      waiting.transaction { waiting.produce_sync(topic: topic, payload: "x") }
    end
  end

  # ---- which messages linger ----

  def test_asynchronous_messages_linger
    lazy = lingering
    handle = lazy.produce_async(topic: topic, payload: "x")
    sleep 0.3
    assert_predicate handle, :pending?
    lazy.purge
  end

  def test_every_message_lingers_without_the_setting
    lazy = producer("linger.ms": 300) { |config| config.flush_on_wait = false }
    name = topic
    lazy.produce_sync(topic: name, payload: "x")
    assert_operator seconds { lazy.produce_sync(topic: name, payload: "x") }, :>, 0.29
    assert_empty flushers
  end

  # During the first linger.ms the flusher does not know yet how many messages come. Later it flushes for one request in six.
  alone slow def test_synchronous_calls_linger_if_they_would_cut_short_most_batches_of_asynchronous_calls
    busy = producer("linger.ms": 100)
    name = topic(partitions: 1)
    begins = now
    lingered = []
    until now - begins > 1.5
      took = seconds do
        busy.produce_many_async(messages(name, 100))
        busy.produce_sync(topic: name, payload: "x")
      end
      lingered << (took > 0.099) if now - begins > 0.5
    end
    assert_operator lingered.count(true), :>=, lingered.size / 2.0
  end

  def test_synchronous_calls_do_not_linger_again_once_asynchronous_messages_are_delivered
    busy = lingering
    name = topic(partitions: 1)
    busy.produce_many_async(messages(name, 100))
    busy.flush
    assert_does_not_linger { 100.times { busy.produce_sync(topic: name, payload: "x") } }
  end

  # ---- the threads ----

  def flushers
    Dir["/proc/self/task/*/comm"].select do |file|
      File.read(file).start_with?("penstock.flush")
    rescue SystemCallError # the thread has ended meanwhile
      false
    end
  end

  def test_there_is_a_flusher_from_the_first_wait_until_the_last_producer_closes
    waiting = lingering
    waiting.produce_async(topic: topic, payload: "x")
    assert_empty flushers
    20.times { waiting.produce_sync(topic: topic, payload: "x") }
    assert_equal 1, flushers.size
    waiting.close
    eventually { flushers.empty? }
  end

  # More producers than flushers: threads that wait flush for their producers themselves.
  def test_many_producers_have_two_flushers_and_none_of_their_calls_lingers
    name = topic
    many = Array.new(12) { lingering }
    most = 0
    assert_does_not_linger do
      threads = many.flat_map { |one| Array.new(2) { Thread.new { 20.times { one.produce_sync(topic: name, payload: "x") } } } }
      most = [most, flushers.size].max while threads.any? { |thread| !thread.join(0.01) }
    end
    assert_equal 480, many.sum { |one| one.metrics[:delivered] }
    assert_includes 1..2, most
    many.first.close
    assert_does_not_linger { many.last.produce_sync(topic: name, payload: "x") }
  end

  # A flush may end when only some of the brokers' threads have looked at their messages.
  def test_batches_of_many_producers_for_several_brokers_do_not_linger
    several = own_cluster(brokers: 3)
    name = topic(partitions: 6, on: several)
    many = Array.new(8) { lingering(servers: several.bootstrap_servers) }
    messages = Array.new(60) { |i| { topic: name, payload: "x", partition: i % 6 } }
    assert_does_not_linger do
      many.flat_map { |one| Array.new(2) { Thread.new { 60.times { one.produce_many_sync(messages) } } } }.each(&:join)
    end
  end

  def test_fibers_of_many_producers_have_two_flushers_and_do_not_linger
    name = topic
    many = Array.new(6) { lingering }
    assert_does_not_linger do
      with_scheduler(FiberSchedulers::KINDS.first) do |fibers|
        many.map { |one| fibers.start { 5.times { one.produce_sync(topic: name, payload: "x") } } }.each(&:join)
      end
    end
    assert_operator flushers.size, :<=, 2
  end

  # Their brokers do not answer, so both flushers are busy with the first ones, and the others flush themselves.
  def test_threads_that_flush_for_their_producers_are_interrupted_at_once_and_the_producers_close
    away = Array.new(5) { lingering(servers: "127.0.0.1:1") }
    threads = away.map { |one| Thread.new { one.produce_sync(topic: "x", payload: "x") } }
    eventually { away.all? { |one| one.queue_size == 1 } }
    assert_took(5, seconds { threads.each(&:kill).each(&:join) })
    assert_took(5, seconds { away.each { |one| one.close(timeout: 0, force: true) } })
    eventually { flushers.empty? }
  end

  slow def test_closing_does_not_wait_for_an_idle_flusher
    waiting = lingering
    waiting.produce_sync(topic:, payload: "x")
    sleep 0.1 # the flusher sleeps
    assert_operator seconds { waiting.close }, :<, 5
  end

  def test_a_producer_without_linger_has_no_flusher
    quick = producer("linger.ms": 0)
    quick.produce_sync(topic:, payload: "x")
    assert_empty flushers
  end

  thorough slow def test_an_idle_flusher_ends_and_the_next_wait_starts_another_one
    waiting = lingering
    waiting.produce_sync(topic:, payload: "x")
    eventually(30) { flushers.empty? }
    assert_does_not_linger { waiting.produce_sync(topic:, payload: "x") }
    assert_equal 1, flushers.size
  end

  def test_a_fork_child_has_a_flusher_of_its_own
    waiting = lingering
    name = topic
    waiting.produce_sync(topic: name, payload: "x")
    assert_operator in_child { seconds { waiting.produce_sync(topic: name, payload: "x") } }, :<, LINGER_MS / 2_000
    assert_does_not_linger { waiting.produce_sync(topic: name, payload: "x") }
  end

  slow def test_a_trap_does_not_linger
    waiting = lingering
    name = topic
    waiting.produce_async(topic: name, payload: "x") # connects, which is impossible in a trap
    took = nil
    before = trap("USR2") { took = seconds { waiting.produce_sync(topic: name, payload: "x") } }
    Process.kill("USR2", Process.pid)
    eventually { took }
    assert_took(LINGER_MS / 2_000, took)
  ensure
    trap("USR2", before)
  end

  # ---- a flush that takes long ----

  STUCK = <<~'RUBY'
    require "penstock"
    require "timeout"
    require "tmpdir"
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    cluster = Penstock::EmbeddedCluster.new
    producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000 } }
    waiting = Thread.new { producer.produce_sync(topic: "test", payload: "x") rescue $! }
    sleep 0.01 until File.exist?(ENV.fetch("SLOW_FLUSH")) # the flush has begun
  RUBY

  def stuck!(program, ms)
    Dir.mktmpdir { |directory| slow!(STUCK + program, flush_ms: ms, flush: File.join(directory, "flush")) }
  end

  def test_a_flush_for_one_caller_does_not_delay_the_interrupt_of_another
    took = stuck!(<<~'RUBY', 10_000)
      before = now
      begin
        Timeout.timeout(0.2) { producer.produce_sync(topic: "test", payload: "x") }
      rescue Timeout::Error
        waiting.raise("stop")
        waiting.value
        $stdout.syswrite(now - before)
      end
      exit!(true) # closing waits for the flush
    RUBY
    assert_took(5, Float(took))
  end

  slow def test_a_client_is_destroyed_after_its_last_flush
    assert_equal "1", stuck!("print producer.close.delivered", 2_000)
  end

  # ---- no flusher can start ----

  LEADING = <<~'RUBY'
    require "penstock"
    require "tmpdir"
    LINGER = 2.0
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    def seconds = now.then { |before| yield.then { now - before } }
    def flushers = Dir["/proc/self/task/*/comm"].count { |file| File.read(file).start_with?("penstock.flush") rescue false }
    cluster = Penstock::EmbeddedCluster.new
    PRODUCER = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "linger.ms": LINGER * 1_000 }
    end
    def send_one(**more) = PRODUCER.produce_async(topic: "test", payload: "x", partition: 0, **more)
    send_one # connects
    PRODUCER.flush
    File.write(ENV.fetch("SLOW_NO_THREADS"), "")
  RUBY

  # @return [Object] what the program writes
  def without_flusher!(program)
    Dir.mktmpdir do |directory|
      output = slow!("#{LEADING}#{program}", no_threads: File.join(directory, "no_threads"))
      Marshal.load(output) # rubocop:disable Security/MarshalLoad -- our own program
    end
  end

  # A busy machine may delay librdkafka's thread for longer than a thread leads, so not every call has to be quick.
  def test_a_thread_that_waits_leads_if_no_flusher_can_start
    took, flushers, delivered = without_flusher!(<<~'RUBY')
      took = Array.new(5) { seconds { PRODUCER.produce_sync(topic: "test", payload: "x", partition: 0) } }
      $stdout.syswrite(Marshal.dump([took, flushers, PRODUCER.metrics[:delivered]]))
      exit!(true)
    RUBY
    assert_operator took.min, :<, 1, took.inspect
    assert_equal [0, 6], [flushers, delivered]
  end

  # A wait that does not block leads nothing, so its message lingers.
  def test_nothing_is_lost_if_no_flusher_can_start_and_the_next_call_starts_one
    report, took, flushers = without_flusher!(<<~'RUBY')
      handle = send_one
      handle.wait(timeout: 0) rescue nil
      sleep 0.01 until handle.report
      File.unlink(ENV.fetch("SLOW_NO_THREADS"))
      took = Array.new(5) { seconds { PRODUCER.produce_sync(topic: "test", payload: "x", partition: 0) } }
      $stdout.syswrite(Marshal.dump([handle.report.offset, took, flushers]))
      exit!(true)
    RUBY
    assert_equal [1, 1], [report, flushers]
    assert_operator took.min, :<, 1, took.inspect
  end

  def test_a_thread_that_leads_waits_no_longer_than_its_deadline
    took, pending = without_flusher!(<<~'RUBY')
      cluster.broker_down(1)
      handle = send_one
      took = seconds do
        handle.wait(timeout: 0.05)
      rescue Penstock::WaitTimeoutError
        nil
      end
      cluster.broker_up(1)
      $stdout.syswrite(Marshal.dump([took, handle.pending?]))
      exit!(true)
    RUBY
    assert_took(1, took)
    assert pending
  end
end

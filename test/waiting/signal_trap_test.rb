# frozen_string_literal: true

require_relative "../test_helper"

# What a signal trap may do with a producer, apart from closing it (close_test.rb).
class SignalTrapTest < PenstockTest
  # `trapped` runs a block in a trap, and prints its outcome.
  PREPARED = <<~RUBY
    SERVERS, TOPIC = ARGV
    MESSAGE = { topic: TOPIC, payload: "x", partition: 0 }.freeze
    def producer(**kafka) = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": SERVERS, **kafka } }
    def trapped(&block)
      result = nil
      Signal.trap("USR1") do
        result = begin
          block.call ? "ok" : "nothing"
        rescue Exception => e
          e.class.name
        end
      end
      Process.kill(:USR1, Process.pid)
      sleep 0.01 until result
      result
    end
  RUBY

  FORBIDDEN = %w[flush_sync flush_async disconnect with].freeze

  # defect 20
  # behaviour: what a signal trap may call
  def test_calls_that_wait_for_other_threads_raise_in_a_trap_and_the_producer_stays_usable
    assert_equal "#{"Penstock::SignalTrapError\n" * FORBIDDEN.size}1\n1\ntrue\n", run_trapped(<<~RUBY)
      one = producer
      one.produce_sync(MESSAGE)
      one.buffer(MESSAGE)
      %w[#{FORBIDDEN.join(" ")}].each { |name| puts trapped { one.public_send(name) } }
      puts one.messages.size, one.flush_sync.count(&:delivered?), one.disconnect
    RUBY
  end

  # behaviour: what a signal trap may call
  def test_a_transaction_and_the_first_use_raise_in_a_trap_and_work_afterwards
    assert_equal "#{"Penstock::SignalTrapError\n" * 5}2\ntrue\n", run_trapped(<<~RUBY)
      one = producer
      two = producer("transactional.id": TOPIC)
      two.transaction { nil }
      puts trapped { one.produce_sync(MESSAGE) }, trapped { one.produce_async(MESSAGE) }, trapped { one.client }
      puts trapped { two.transaction { 2 } }, trapped { two.produce_sync(MESSAGE) }
      puts two.transaction { 2 }, one.produce_sync(MESSAGE).delivered?
    RUBY
  end

  # behaviour: SignalTrapError
  def test_the_error_names_the_call_and_what_to_do_instead
    output = run_trapped(<<~RUBY)
      one = producer
      trapped { one.produce_sync(MESSAGE) rescue puts $!.message }
    RUBY
    assert_match(/Connecting is not possible in a signal trap.*in a new thread/, output)
  end

  # behaviour: what a signal trap may call
  def test_a_connected_producer_sends_waits_flushes_and_purges_in_a_trap
    assert_equal "ok\n" * 8, run_trapped(<<~RUBY)
      one = producer
      one.produce_sync(MESSAGE)
      puts trapped { one.produce_sync(MESSAGE).delivered? }, trapped { one.produce_async(MESSAGE).wait.delivered? }
      puts trapped { one.produce_many_sync([MESSAGE] * 3).all?(&:delivered?) }, trapped { one.flush }, trapped { one.purge }
      puts trapped { one.partition_count(TOPIC) == 4 }, trapped { one.queue_size.zero? && one.inspect && one.status.to_s }
      puts trapped { one.buffer(MESSAGE) }
    RUBY
  end

  def test_a_fork_child_may_use_the_buffer_first_in_a_trap
    assert_equal "ok [1, \"child\"]\n", run_trapped(<<~RUBY)
      one = producer
      one.buffer(MESSAGE)
      Process.wait(fork do
        print trapped { one.buffer({ topic: TOPIC, payload: "child" }) }, " "
        p [one.messages.size, one.messages[0][:payload]]
        $stdout.flush
        exit!(0)
      end)
      exit!(0)
    RUBY
  end

  def test_a_trap_that_interrupts_a_transaction_may_send_in_it_but_not_end_it
    assert_equal "ok\nPenstock::SignalTrapError\nPenstock::SignalTrapError\ntrue\nvalue\nfalse\n", run_trapped(<<~RUBY)
      one = producer("transactional.id": TOPIC)
      puts(one.transaction do
        puts trapped { one.produce_sync(MESSAGE).delivered? }
        puts trapped { one.disconnect }, trapped { one.with }, one.transaction?
        :value
      end)
      puts one.transaction?
    RUBY
  end

  # The interrupted thread itself has the lock of the flush.
  def test_a_trap_that_interrupts_a_flush_does_not_end_it
    assert_equal "ok\ntrue\n3\n", run_trapped(<<~RUBY)
      one = producer
      one.produce_sync(MESSAGE)
      one.middleware.append do |message|
        puts trapped { one.buffer(MESSAGE) && one.flush_async } if message[:label] == :first
        message
      end
      one.buffer({ **MESSAGE, label: :first })
      puts one.flush_sync.all?(&:delivered?), one.produce_sync(MESSAGE).offset
    RUBY
  end

  # A trap that needs the lock of a logger would deadlock or raise if the interrupted thread holds that lock or waits for it. So
  # nothing is logged in the trap.
  # defect 20
  def test_close_in_a_trap_works_while_the_loggers_lock_is_busy
    output, errors, status = ruby(PREPARED + <<~RUBY, cluster.bootstrap_servers, topic)
      require "logger"
      file = File.open(IO::NULL, "w")
      logger = Logger.new(file, level: :debug)
      one = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": SERVERS, "linger.ms": 0, debug: "all", log_level: 7, "statistics.interval.ms": 10 }
        config.logger = logger
      end
      one.monitor.subscribe(Penstock::Listeners::Logger.new(logger))
      reader, writer = IO.pipe
      trap("TERM") do
        report = one.close
        writer.puts(report.complete?, report.pending)
        writer.close
      end
      Thread.new { loop { logger.debug { "busy" } && Thread.pass } } # otherwise Ruby 3.3 would give the lock to no other thread
      Thread.new do
        begin
          loop { one.produce_async(MESSAGE) && sleep(0.0005) }
        rescue Penstock::ProducerClosedError
          nil
        end
      end
      Thread.new { sleep 0.3; Process.kill(:TERM, Process.pid) }
      logger.debug { "busy too" } until one.closed? # the thread that the trap interrupts
      puts reader.read, one.closed?, one.close.complete?
    RUBY
    assert_equal ["true\n0\ntrue\ntrue\n", ""], [output, errors]
    assert_predicate status, :success?
  end

  slow def test_a_listener_that_needs_a_lock_of_the_interrupted_thread_runs_after_the_trap
    assert_equal "true\n1\ntrue\n[\"producer.closing\", \"producer.closed\"]\n", run_trapped(<<~RUBY)
      one = producer("linger.ms": 100)
      lock = Mutex.new
      published = Queue.new
      %w[producer.closing producer.closed].each do |name|
        one.monitor.subscribe(name) { lock.synchronize { published << name } }
      end
      one.produce_async(MESSAGE)
      report = took = nil
      trap("TERM") do
        start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        report = one.close
        took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
      end
      lock.synchronize { Process.kill(:TERM, Process.pid) && sleep(0.01) until report }
      puts took < 15, report.delivered, report.complete?, Array.new(2) { published.pop }.inspect
    RUBY
  end

  # The same inside logged calls of the interrupted thread.
  slow def test_close_in_a_trap_works_in_the_middle_of_a_logged_call
    output, errors, status = ruby(PREPARED + <<~RUBY, cluster.bootstrap_servers, topic)
      require "logger"
      logger = Logger.new(File.open(IO::NULL, "w"), level: :debug)
      one = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": SERVERS, "linger.ms": 0, debug: "all", log_level: 7 }
        config.logger = logger
      end
      one.monitor.subscribe(Penstock::Listeners::Logger.new(logger))
      report = nil
      trap("TERM") { report = one.close }
      Thread.new { loop { logger.debug { "busy" } && Thread.pass } } # otherwise Ruby 3.3 would give the lock to no other thread
      Thread.new { sleep 0.3; Process.kill(:TERM, Process.pid) }
      begin
        loop { one.produce_async(MESSAGE) }
      rescue Penstock::ProducerClosedError, Penstock::QueueFullError
        sleep 0.01 until report
      end
      p report.complete?
    RUBY
    assert_equal ["true\n", ""], [output, errors]
    assert_predicate status, :success?
  end

  private

  def run_trapped(program) = ruby!(PREPARED + program, cluster.bootstrap_servers, topic)
end

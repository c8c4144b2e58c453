# frozen_string_literal: true

require_relative "../test_helper"

class LoggerTest < PenstockTest
  # A logger that remembers lines and calls the block with each.
  class Lines
    def initialize(&block)
      @lines = Queue.new
      @block = block
    end

    def add(severity, text, program)
      @lines << [severity, text, program, Thread.current]
      @block&.call(text)
    end

    # @return [Array<Array>] severity, text, program and thread of each line so far
    def to_a = Array.new(@lines.size) { @lines.pop.tap { |line| @lines << line } }
    def severities = to_a.map(&:first).uniq
    def texts = to_a.map { |line| line[1] }
    def threads = to_a.map(&:last).uniq
  end

  # behaviour: logger
  def test_the_logger_gets_librdkafkas_lines_with_the_producers_id
    lines = Lines.new
    one = talkative_producer(lines, id: "speaking")
    one.produce_sync(topic:, payload: "x")
    eventually { lines.texts.any? }
    lines.to_a.each do |_, text, program, _|
      assert_match(/\A\[speaking\] \w+: ./, text)
      assert_equal "penstock", program
    end
  end

  def test_a_ruby_logger_writes_the_lines_with_their_severity
    text = StringIO.new
    one = logging_unreachable_producer(Logger.new(text))
    one.produce_async(topic: "test", payload: "x")
    eventually { text.string.match?(/ERROR -- penstock: \[#{one.id}\] FAIL: .*127\.0\.0\.1:1/) }
    one.close(timeout: 0)
  end

  def test_severities_follow_the_levels_of_the_lines
    lines = Lines.new
    talkative_producer(lines).produce_sync(topic:, payload: "x")
    eventually { lines.severities == [Logger::DEBUG] }

    lines = Lines.new
    failing = logging_unreachable_producer(lines)
    failing.produce_async(topic: "test", payload: "x")
    eventually { lines.to_a.any? { |severity, text| severity == Logger::ERROR && text.include?("FAIL") } }
    eventually { lines.to_a.any? { |severity, text| severity == Logger::WARN && text.include?("ALL_BROKERS_DOWN") } }
    failing.close(timeout: 0)
  end

  def test_one_dispatcher_thread_serves_the_loggers_of_many_producers
    before = Thread.list
    loggers = Array.new(5) { Lines.new }
    producers = loggers.map { |lines| talkative_producer(lines) }
    assert_equal before, Thread.list, "configuring starts nothing"
    producers.each { |one| one.produce_sync(topic: "logged", payload: "x") }
    loggers.each { |lines| eventually { lines.texts.any? } }
    assert_equal (Thread.list - before), loggers.flat_map(&:threads).uniq
    assert_equal ["penstock.dispatcher"], (Thread.list - before).map(&:name)
    producers.zip(loggers) { |one, lines| assert lines.texts.all? { |text| text.start_with?("[#{one.id}]") } }
  end

  def test_the_dispatcher_ends_with_the_last_producer_that_has_a_logger_and_starts_again
    before = Thread.list
    2.times do
      first, second = Array.new(2) { talkative_producer(Lines.new).tap { |one| one.produce_sync(topic: "logged", payload: "x") } }
      assert_equal 1, (Thread.list - before).size
      first.close
      refute_empty Thread.list - before
      second.close
      eventually { (Thread.list - before).empty? }
    end
  end

  def test_all_lines_of_a_closed_producer_reach_its_logger
    lines = Lines.new
    one = logging_unreachable_producer(lines)
    one.produce_async(topic: "test", payload: "x")
    one.close(timeout: 0.2)
    eventually { (Thread.list - @threads_before).empty? }
    assert lines.texts.any? { |text| text.include?("FAIL") }
  end

  def test_without_a_logger_no_ruby_thread_runs_and_lines_go_to_stderr
    output, errors, = ruby(<<~RUBY)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1" } }
      handle = producer.produce_async(topic: "test", payload: "x")
      producer.close(timeout: 0.3)
      p Thread.list.size
    RUBY
    assert_equal "1\n", output
    assert_match(/127\.0\.0\.1:1/, errors)
  end

  # behaviour: logger
  def test_producers_with_and_without_a_logger_do_not_mix_their_lines
    lines = Lines.new
    talkative_producer(lines, id: "with").produce_sync(topic: "logged", payload: "x")
    producer { |config| config.id = "without" }.produce_sync(topic: "logged", payload: "x")
    eventually { lines.texts.any? }
    assert lines.texts.none? { |text| text.include?("without") }
  end

  slow def test_without_a_logger_lines_on_stderr_name_the_producer_and_the_consumer
    _, errors, = ruby(<<~RUBY)
      kafka = { "bootstrap.servers": "127.0.0.1:1" }
      producer = Penstock::Producer.new { |config| [config.id = "orders", config.kafka = kafka] }
      producer.produce_async(topic: "test", payload: "x")
      consumer = Penstock::Consumer.new { |config| [config.id = "billing", config.kafka = kafka] }
      consumer.assign("test" => [0]).poll(timeout: 0.5)
      [producer, consumer].each { |one| one.close(timeout: 0.1) }
    RUBY
    %w[orders billing].each { |id| assert_match(/^penstock: \[#{id}\] FAIL: .*127\.0\.0\.1:1/, errors) }
    refute_match(/^%\d\|/, errors, "librdkafka's own lines")
  end

  # ---- problems that last ----

  # librdkafka repeats a broker's error after a second, each time as a log line and as an error. Newer versions report every
  # second that all brokers are down.
  # defect 31
  def test_a_lasting_problem_is_logged_once
    lines = Lines.new
    errors = Queue.new
    one = logging_unreachable_producer(lines, "reconnect.backoff.ms": 50)
    one.monitor.subscribe("error.occurred") { |event| errors << event }
    one.produce_async(topic: "test", payload: "x")
    eventually { errors.size >= 3 }
    one.close(timeout: 0)
    codes = Array.new(errors.size) { errors.pop[:error].code }
    assert_equal 1, codes.count(:all_brokers_down), "listeners get it once"
    eventually { lines.texts.grep(/ALL_BROKERS_DOWN: \d/).any? }
    problems = lines.texts.grep_v(/left out|CLOSE/).map { |text| text[/(refused|brokers are down)/] }
    assert_equal ["brokers are down", "refused"], problems.sort
    eventually { lines.texts.grep(/FAIL: \d more lines of this kind were left out/).any? }
  end

  slow def test_a_consumers_lasting_problem_is_logged_once
    lines = Lines.new
    consumer = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": "127.0.0.1:1", "reconnect.backoff.ms": 50 }
      config.logger = lines
    end
    consumer.assign("test" => [0])
    eventually { consumer.poll(timeout: 0.1) || lines.texts.grep(/ALL_BROKERS_DOWN/).any? }
    consumer.poll(timeout: 1.5)
    consumer.close(timeout: 0.1)
    eventually { lines.texts.grep(/left out/).any? }
    assert_equal 1, lines.texts.grep(/refused/).size, lines.texts.join("\n")
  end

  slow def test_a_later_outage_is_logged_again
    own = own_cluster
    own.create_topic("logged", partitions: 1)
    lines = Lines.new
    one = producer(servers: own.bootstrap_servers, "reconnect.backoff.max.ms": 100) { |config| config.logger = lines }
    1.upto(2) do |outages|
      one.produce_sync(topic: "logged", payload: "x")
      own.broker_down(1)
      eventually { lines.texts.grep(/FAIL: .*refused/).size == outages }
      own.broker_up(1)
    end
  end

  # ---- too many lines ----

  def test_after_20_lines_of_one_kind_the_rest_are_only_counted
    lines = Lines.new
    servers = (1..50).map { |port| "127.0.0.1:#{port}" }.join(",")
    one = producer(servers:, "enable.sparse.connections": false) { |config| config.logger = lines } # tries all brokers at once
    one.produce_async(topic: "test", payload: "x")
    failures = -> { lines.to_a.count { |severity, text| severity == Logger::ERROR && text.include?("FAIL") } }
    eventually(10) { failures.call == 20 }
    sleep 0.5
    assert_equal 20, failures.call
    one.close(timeout: 0)
    eventually { lines.texts.any? { |text| text.match?(/\A\[#{one.id}\] FAIL: [1-9]\d* more lines of this kind were left out/) } }
  end

  def test_debug_lines_are_never_left_out
    lines = Lines.new
    talkative_producer(lines).produce_many_sync(Array.new(200) { |i| { topic: "logged", payload: "x", partition: i % 4 } })
    one = talkative_producer(lines, debug: "all")
    one.produce_sync(topic: "logged", payload: "x")
    eventually { lines.to_a.count { |severity, *| severity == Logger::DEBUG } > 50 }
    one.close
    assert_empty lines.texts.grep(/left out/)
  end

  # ---- loggers that misbehave ----

  { "a_standard_error" => "raise 'broken'", "another_exception" => "raise NotImplementedError", "a_throw" => "throw :away",
    "the_end_of_its_thread" => "Thread.current.kill" }.each do |name, misbehaviour|
    define_method("test_a_logger_that_answers_with_#{name}_does_not_disturb_others") do
      output, errors, status = ruby(<<~RUBY, cluster.bootstrap_servers)
        Bad = Class.new { def add(*) = #{misbehaviour} }
        Good = Class.new { def add(*) = (@count = count + 1) ; def count = @count || 0 }
        def producer(logger)
          Penstock::Producer.new do |config|
            config.kafka = { "bootstrap.servers": ARGV[0], debug: "msg" }
            config.logger = logger
          end
        end
        good = Good.new
        one, other = producer(Bad.new), producer(good)
        5.times { [one, other].each { |each| each.produce_sync(topic: "misbehaving", payload: "x") } }
        before = good.count
        deadline = Time.now + 25
        until good.count > before + 5 || Time.now > deadline
          [one, other].each { |each| each.produce_sync(topic: "misbehaving", payload: "x") }
        end
        [one, other].each { |each| abort "messages lost" unless each.close.complete? }
        puts good.count > before + 5 ? "still logging" : "no longer logging"
      RUBY
      assert_equal [true, "still logging\n"], [status.success?, output], errors.lines.first(5).join
    end
  end

  def test_a_logger_that_sleeps_delays_no_delivery_of_any_producer
    release = Queue.new
    slow = talkative_producer(Lines.new { release.pop })
    other = producer("linger.ms": 0)
    name = topic
    took = seconds_of { 50.times { [slow, other].each { |one| one.produce_sync(topic: name, payload: "x") } } }
    assert_took(GCLevel.slow? ? 30 : 3, took)
    assert_took(3, seconds_of { slow.close })
  ensure
    release.close
  end

  # defect 9
  # behaviour: A callback may close its producer
  def test_a_logger_may_close_its_producer
    one = nil
    closed = Queue.new
    lines = Lines.new { closed << one.close(timeout: 5) if closed.empty? }
    one = talkative_producer(lines)
    begin
      one.produce_sync(topic:, payload: "x")
    rescue Penstock::ProducerClosedError
      nil # the logger gets its first line while the producer connects and makes its topic
    end
    assert_predicate closed.pop, :complete?
    assert_predicate one, :closed?
  end

  def test_lines_that_overflow_a_slow_loggers_queue_are_dropped_and_counted
    release = Queue.new
    lines = Lines.new { release.pop }
    slow = talkative_producer(lines, debug: "all")
    name = topic
    produced = 0
    deadline = Slowness.deadline(60)
    until produced == 6_000 || deadline.passed? # each message makes several lines, and the queue holds 10,000
      slow.produce_sync(topic: name, payload: "x")
      produced += 1
    end
    release.close # pop returns nil immediately from now on
    eventually(30) { lines.texts.any? { |text| text.match?(/\A\d{3,} log lines were dropped/) } }
    dropped = lines.to_a.find { |_, text| text.include?("dropped") }
    assert_equal Logger::WARN, dropped.first
    eventually(30) { lines.texts.size > 9_900 } # late lines of earlier producers may occupy part of the queue
  end

  private

  # A producer that logs something about each message.
  def talkative_producer(logger, id: nil, debug: "msg")
    producer("linger.ms": 0, debug:) do |config|
      config.logger = logger
      config.id = id if id
    end
  end

  def logging_unreachable_producer(logger, **kafka)
    producer(servers: "127.0.0.1:1", **kafka) { |config| config.logger = logger }
  end
end

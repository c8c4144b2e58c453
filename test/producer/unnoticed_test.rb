# frozen_string_literal: true

require_relative "../test_helper"

# Failed messages that the program does not notice. They are logged, and CloseReport counts them.
class UnnoticedTest < PenstockTest
  slow(/_that_the_program_notices_through_(?!wait_)/)

  SOON = { "message.timeout.ms": 50, "linger.ms": 0 }.freeze
  MESSAGE = { topic: "events", payload: "hidden payload", key: "hidden key" }.freeze
  LINE = /(\d+) messages? (?:was|were) not delivered/

  # A logger that keeps the lines.
  class Lines
    attr_reader :all

    def initialize = @all = []
    def add(severity, text, _program = nil) = @all << [severity, text]

    # @return [Array<String>] the lines so far about undelivered messages
    def undelivered = @all.dup.select { |_, text| text.match?(LINE) }
  end

  def setup
    super
    @lines = Lines.new
  end

  # behaviour: close, close!
  slow def test_failed_messages_without_a_listener_are_logged_once_with_count_topic_and_error
    one = failing_producer
    one.produce_many_async([MESSAGE] * 40)
    one.produce_async(MESSAGE)
    (severity, text), *more = eventually { @lines.undelivered.then { |lines| lines if lines.any? } }
    assert_empty more
    assert_equal Logger::ERROR, severity
    assert_match(/\A\[#{one.id}\].*\b41 messages were not delivered.*error\.occurred.*topic events.*timed out/i, text)
    refute_match(/hidden/, text)
  end

  # The next line comes ten seconds later, or when the producer is closed.
  thorough slow def test_later_failures_are_counted_until_the_producer_closes
    one = failing_producer
    one.produce_async(MESSAGE)
    eventually { @lines.undelivered.any? }
    5.times { one.produce_async(MESSAGE) }
    eventually { one.metrics[:failed] == 6 }
    assert_equal 1, @lines.undelivered.size
    report = one.close
    eventually { @lines.undelivered.size == 2 }
    assert_equal %w[1 5], @lines.undelivered.map { |_, text| text[LINE, 1] }
    assert_equal [6, false], [report.unnoticed, report.complete?]
  end

  slow def test_without_a_logger_the_line_goes_to_stderr_and_no_ruby_thread_runs
    output, errors, = ruby(<<~RUBY, "127.0.0.1:1")
      one = Penstock::Producer.new do |config|
        config.id = "quiet"
        config.kafka = { "bootstrap.servers": ARGV[0], "message.timeout.ms": 50, log_level: 0 }
      end
      before = Thread.list.size
      one.produce_async(topic: "events", payload: "hidden")
      sleep 0.01 until one.metrics[:failed] == 1
      sleep 0.01 until (one.close(timeout: 1) || true)
      puts Thread.list.size - before
    RUBY
    assert_match(/\Apenstock: \[quiet\].*1 message was not delivered.*topic events/, errors)
    refute_match(/hidden/, errors)
    assert_equal "0\n", output
  end

  # ---- failures that the program notices are neither logged nor counted ----

  {
    "a_listener" => ->(one, _) { one.produce_async(MESSAGE) },
    "produce_sync" => ->(one, test) { test.assert_raises(Penstock::MessageTimedOutError) { one.produce_sync(MESSAGE) } },
    "produce_many_sync" => lambda do |one, test|
      test.assert_raises(Penstock::ProduceManyError) { one.produce_many_sync([MESSAGE] * 3) }
    end,
    "wait" => ->(one, test) { test.assert_raises(Penstock::MessageTimedOutError) { one.produce_async(MESSAGE).wait } },
    "await_all" => ->(one, _) { Penstock::DeliveryHandle.await_all(one.produce_many_async([MESSAGE] * 3), timeout: nil) },
    "report" => ->(one, test) { one.produce_async(MESSAGE).then { |handle| test.eventually { handle.report } } },
    "status" => ->(one, test) { one.produce_async(MESSAGE).then { |handle| test.eventually { handle.status } } },
    "delivered" => lambda do |one, test|
      handle = one.produce_async(MESSAGE)
      test.eventually { !handle.pending? }
      test.refute_predicate handle, :delivered?
    end
  }.each do |way, fail|
    define_method("test_a_failure_that_the_program_notices_through_#{way}_is_not_logged") do
      one = failing_producer
      one.monitor.subscribe("error.occurred") { nil } if way == "a_listener"
      fail.call(one, self)
      eventually { one.metrics[:failed].positive? && one.queue_size.zero? }
      assert_equal 0, one.close.unnoticed
      assert_empty @lines.undelivered
    end
  end

  slow def test_a_wait_that_ended_before_the_message_failed_leaves_the_failure_unnoticed
    one = failing_producer("message.timeout.ms": 300)
    assert_raises(Penstock::WaitTimeoutError) { one.produce_async(MESSAGE).wait(max_wait_timeout_ms: 1) }
    eventually { one.metrics[:failed] == 1 }
    assert_equal 1, one.close.unnoticed
  end

  slow def test_a_failure_whose_handle_is_only_printed_stays_unnoticed
    one = failing_producer
    handle = one.produce_async(MESSAGE)
    eventually { !handle.pending? }
    assert_includes handle.inspect, "not_persisted"
    assert_includes "#{[handle].to_json} #{handle.as_json}", "not_persisted"
    assert_equal 1, one.close.unnoticed
  end

  slow def test_reading_a_handle_late_removes_its_message_from_the_report
    one = failing_producer
    handles = one.produce_many_async([MESSAGE] * 3)
    eventually { @lines.undelivered.any? }
    assert_raises(Penstock::MessageTimedOutError) { handles[0].wait }
    2.times { refute_predicate handles[1], :delivered? }
    assert_equal 1, one.close.unnoticed
  end

  # The return values of purge and close already report these messages.
  def test_messages_that_purge_and_close_discard_are_not_counted_twice
    one = failing_producer("message.timeout.ms": 60_000)
    one.produce_async(MESSAGE)
    one.purge
    eventually { one.metrics[:purged] == 1 }
    one.produce_async(MESSAGE)
    assert_equal Penstock::CloseReport.new(0, 0, 1, 0), one.close(timeout: 0)
    assert_empty @lines.undelivered
  end

  # The poller settles thousands of messages that fail at once. When the first one has its result, the producer begins to close,
  # often before the last one has its result. Both orders occur over the rounds, and the counts must add up.
  thorough def test_a_close_amid_failing_messages_counts_each_of_them_once
    4.times do
      one = failing_producer("message.timeout.ms": 500, "queue.buffering.max.messages": 100_000)
      handles = Array.new(50_000) { one.produce_async(MESSAGE) }
      nil while handles.first.pending?
      report = one.close
      assert_equal handles.size, report.unnoticed + report.failed, report.inspect
      assert_equal [0, 0, 0], report.to_h.values_at(:delivered, :purged, :pending)
    end
  end

  def test_messages_dropped_for_want_of_space_are_counted
    one = failing_producer("message.timeout.ms": 60_000, "queue.buffering.max.messages": 1) do |config|
      config.on_queue_full = :drop
    end
    4.times { one.produce_async(MESSAGE) }
    assert_equal [3, 1], one.close(timeout: 0).to_h.values_at(:unnoticed, :purged)
    assert_match(/3 messages were not delivered.*Queue full/, eventually { @lines.undelivered.last }.last)
  end

  def test_messages_that_fail_because_no_broker_is_reachable_are_counted
    one = failing_producer("message.timeout.ms": 60_000) { |config| config.unreachable_timeout = 300 }
    assert_raises(Penstock::BrokersUnreachableError) { one.produce_sync(MESSAGE) }
    failed = one.produce_many_async([MESSAGE] * 4)
    assert failed.none?(&:pending?), "they should fail at once"
    assert_raises(Penstock::BrokersUnreachableError) { failed.first.wait }
    assert_raises(Penstock::BrokersUnreachableError) { one.produce_sync(MESSAGE) }
    assert_equal 3, one.close(timeout: 0).unnoticed
    assert_match(/3 messages were not delivered.*broker/, eventually { @lines.undelivered.last }.last)
  end

  def test_delivered_messages_are_neither_logged_nor_counted
    one = producer { |config| config.logger = @lines }
    handles = one.produce_many_async([{ topic:, payload: "x" }] * 100)
    assert_equal [0], one.close.to_h.except(:delivered).values.uniq
    assert handles.all?(&:delivered?)
    assert_empty @lines.undelivered
  end

  # ---- the buffer ----

  def test_a_buffer_that_is_not_empty_at_the_end_of_the_process_is_logged
    _, errors, status = ruby(<<~RUBY)
      one = Penstock::Producer.new do |config|
        config.id = "full"
        config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 }
      end
      3.times { one.buffer(topic: "events", payload: "hidden") }
      single = Penstock::Producer.new do |config|
        config.id = "single"
        config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 }
      end
      single.buffer(topic: "events", payload: "hidden")
      closed = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 } }
      closed.buffer(topic: "events", payload: "x")
      closed.close(timeout: 0)
      Process.wait(fork { nil }) # the child has no buffer
    RUBY
    assert_predicate status, :success?
    assert_match(/^penstock: \[full\].*\b3 messages in the buffer were not sent/, errors)
    assert_match(/^penstock: \[single\] CLOSE: 1 message in the buffer was not sent/, errors)
    assert_equal 2, errors.lines.size, errors
    refute_match(/hidden/, errors)
  end

  private

  def failing_producer(**kafka)
    unreachable_producer(**SOON, **kafka) do |config|
      config.logger = @lines
      yield config if block_given?
    end
  end
end

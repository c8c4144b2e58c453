# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/slow_calls"

# The timeout of a close bounds all of it, also if librdkafka's threads do not end. No broker can be reached, and destroying a
# client takes a minute, as while the lookup of a broker's name hangs.
class CloseTimeTest < PenstockTest
  include SlowCalls

  CLIENTS = <<~'RUBY'
    require "logger"
    SECONDS = Float(ARGV[0])
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 }
    PRODUCER = Penstock::Producer.new do |config|
      config.kafka = { **kafka, "linger.ms": 0 }
      config.close_timeout = (SECONDS * 1_000).round
      config.logger = Logger.new($stderr)
    end
    PRODUCER.monitor.subscribe("error.occurred") { nil }
    HANDLE = PRODUCER.produce_async(topic: "t", payload: "x")
    CONSUMER = Penstock::Consumer.new do |config|
      config.kafka = { **kafka, "group.id": "g" }
      config.close_timeout = (SECONDS * 1_000).round
    end
    CONSUMER.assign("t" => { 0 => 0 })
    CONSUMER.poll(timeout: 0)
    CONSUMER.commit({ "t" => { 0 => 5 } }, async: true)
    ADMIN = Penstock::Admin.new(**kafka) { |config| config.close_timeout = (SECONDS * 1_000).round }
    begin
      ADMIN.topics(timeout: 0.1)
    rescue Penstock::Error
      nil
    end
  RUBY

  # @return [Array(Float, String)] how long the process goes on after its last line, and its stderr
  def end_of(program, seconds)
    before = nil
    took = seconds_of { before = Float(slow!("#{CLIENTS}#{program}\n$stdout.syswrite(now)", seconds.to_s, destroy_ms: 60_000)) }
    [now - before, took]
  end

  slow def test_every_client_closes_within_its_timeout_and_reports_what_was_lost
    output = slow!(<<~RUBY, "6", destroy_ms: 60_000)
      #{CLIENTS}
      closes = [PRODUCER, CONSUMER, ADMIN].map do |client|
        Thread.new do
          before = now
          report = client.close(timeout: SECONDS)
          [now - before, report.respond_to?(:to_h) ? report.to_h : report]
        end
      end
      closes = closes.map(&:value)
      closes << HANDLE.report.error.code.to_s
      $stdout.syswrite(Marshal.dump(closes))
      $stdout.flush
      exit!(true)
    RUBY
    (producing, produced), (consuming, consumed), (asking, asked), code = Marshal.load(output) # rubocop:disable Security/MarshalLoad
    [producing, consuming, asking].each { |took| assert_took(6.6, took) }
    assert_equal [1, "purge_queue"], [produced[:purged], code]
    assert_equal [false, false], [consumed[:in_time], asked]
  end

  slow def test_a_client_that_is_not_done_in_its_time_delays_the_end_of_the_process_by_a_second
    took, = end_of("[PRODUCER, CONSUMER, ADMIN].each { |client| client.close(timeout: 0) }", 0.4)
    assert_took(3, took)
  end

  slow def test_at_its_end_the_process_waits_for_open_clients_for_their_close_timeout
    took, = end_of("", 3)
    assert_took(5, took)
  end

  def test_a_message_that_was_lost_at_the_end_of_the_process_is_logged_before_the_client_is_destroyed
    program = "#{CLIENTS}$stderr.reopen($stdout)"
    assert_match(/1 message was not delivered in time/, slow!(program, "0.6", destroy_ms: 60_000))
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/metrics_test_case"

# Penstock::Listeners::Logger, see docs/listeners-logger.md.
class ListenersLoggerTest < MetricsTestCase
  SECRET = "hunter2"

  def setup
    super
    @lines = []
  end

  # Keeps [severity, line].
  def logger(level = Logger::DEBUG)
    Logger.new(StringIO.new, level:).tap do |logger|
      lines = @lines
      logger.formatter = ->(severity, _, _, text) { lines << [severity, text] && "" }
    end
  end

  def listener(level = Logger::DEBUG, **options) = Penstock::Listeners::Logger.new(logger(level), **options)

  def lines(event) = @lines.select { |_, line| line.include?(" event=#{event} ") || line.end_with?(" event=#{event}") }

  # A line of the event, with T in place of its time.
  def line(event)
    assert_equal 1, lines(event).size, @lines.inspect
    lines(event).first.then { |severity, text| [severity, text.sub(/ ms=\d+\.\d+\z/, " ms=T")] }
  end

  def test_an_event_is_logged_at_the_level_given_for_it
    levels = { "message.produced_sync" => :warn, :"producer.connected" => nil, "error.occurred" => :info }
    one = producer
    one.monitor.subscribe(listener(Logger::INFO, levels:))
    one.produce_sync(topic: "bills", payload: "x")
    one.monitor.instrument("error.occurred", { type: "test", error: RuntimeError.new("x") })
    one.produce_async(topic: "bills", payload: "x").wait
    assert_equal %w[WARN INFO INFO], @lines.map(&:first)
    assert_empty lines("producer.connected")
  end

  def test_an_event_without_a_level_logs_no_details_either
    one = producer
    one.monitor.subscribe(listener(Logger::DEBUG, levels: { "message.produced_sync" => nil, "error.occurred" => nil }))
    one.produce_sync(topic: "bills", payload: "x")
    one.monitor.instrument("error.occurred", { type: "test", error: RuntimeError.new("x") })
    assert_equal [["INFO", "producer.connected"]], @lines.map { |level, line| [level, line[/event=(\S+)/, 1]] }
  end

  def test_levels_are_checked
    assert_raises(Penstock::EventUnknownError) { listener(levels: { "message.produce_sync" => :info }) }
    [["message.produced_sync", :fatal], ["message.produced_sync", "info"], ["message.acknowledged", :info]].each do |event, level|
      assert_raises(ArgumentError) { listener(levels: { event => level }) }
    end
  end

  # behaviour: a bus for all producers, ready-made listeners
  def test_each_step_of_a_producers_life_is_logged_at_info
    one = producer { |config| config.id = "orders" }
    one.monitor.subscribe(listener(Logger::INFO))
    one.produce_sync(topic: "bills", payload: "x")
    one.produce_async(topic: :mails, payload: "x").wait
    one.produce_many_sync([{ topic: "bills", payload: "x" }, { topic: "mails", payload: "x" }, { topic: :bills, payload: "x" }])
    one.produce_many_async([{ topic: "bills", payload: "x" }]).each(&:wait)
    one.buffer(topic: "bills", payload: "x")
    one.buffer_many([{ topic: "mails", payload: "x" }])
    one.flush_sync
    one.disconnect
    one.close
    start = "penstock producer=orders event="
    assert_equal ["INFO", "#{start}producer.connected"], line("producer.connected")
    assert_equal ["INFO", "#{start}message.produced_sync topic=bills ms=T"], line("message.produced_sync")
    assert_equal ["INFO", "#{start}message.produced_async topic=mails ms=T"], line("message.produced_async")
    called, flushed = lines("messages.produced_sync").map { |_, text| text[/ (messages=.*) ms=\d/, 1] }
    assert_equal ["messages=3 topics=bills:2,mails:1", "messages=2 topics=bills:1,mails:1"], [called, flushed]
    assert_equal ["INFO", "#{start}messages.produced_async messages=1 topics=bills:1 ms=T"], line("messages.produced_async")
    assert_equal ["INFO", "#{start}message.buffered topic=bills ms=T"], line("message.buffered")
    assert_equal ["INFO", "#{start}messages.buffered messages=1 topics=mails:1 ms=T"], line("messages.buffered")
    assert_equal ["INFO", "#{start}buffer.flushed_sync messages=2 topics=bills:1,mails:1 ms=T"], line("buffer.flushed_sync")
    %w[producer.disconnected producer.closed].each { |event| assert_equal ["INFO", "#{start}#{event} ms=T"], line(event) }
    assert_equal ["INFO"], @lines.map(&:first).uniq
  end

  def test_transactions_are_logged_at_info
    one = producer("transactional.id": "txn-#{rand(2**64)}")
    one.monitor.subscribe(listener(Logger::INFO))
    one.transaction { one.produce_sync(topic:, payload: "x") }
    one.transaction { raise Penstock::AbortTransaction }
    %w[started committed aborted finished].each do |step|
      assert_match(/ms=/, lines("transaction.#{step}").last.last)
      assert_equal %w[started finished].include?(step) ? 2 : 1, lines("transaction.#{step}").size
    end
  end

  def test_reloads_and_slow_listeners_are_logged_as_warnings
    one = recovering
    one.monitor.subscribe(listener)
    outlive_two_clients(one, topic)
    severity, text = line("producer.reload")
    assert_equal "WARN", severity
    assert_match(/attempt=1 error=Penstock::\w+ code=out_of_order_sequence_number text=".+"/, text)
    assert_equal "WARN", line("producer.reloaded").first
    publish(listener, "listener.slow", listener: "a.rb:1", event: "message.acknowledged", time: 1234.5)
    assert_equal ["WARN", "penstock producer=test event=listener.slow listener=a.rb:1 of=message.acknowledged ms=T"],
                 line("listener.slow")
  end

  def test_an_error_is_logged_in_one_line_with_type_class_code_and_text
    one = producer { |config| config.id = "orders" }
    one.monitor.subscribe(listener)
    assert_raises(Penstock::Error) { one.produce_sync(topic: "no topic", payload: SECRET) }
    severity, text = line("error.occurred")
    assert_equal "ERROR", severity
    assert_match(/producer=orders event=error.occurred type=message.produce_sync topic="no topic" error=Penstock::Mess/,
                 text)
    assert_match(/is not a valid topic name/, text)
    assert_raises(Penstock::Error) { one.produce_many_sync([{ topic: "a", payload: SECRET }, { topic: "b", payload: 1 }]) }
    assert_match(/type=messages.produce_many_sync messages=2 topics=a:1,b:1 error=/, lines("error.occurred").last.last)
  end

  slow def test_an_undelivered_message_is_logged_as_an_error_with_its_topic
    one = unreachable_producer("message.timeout.ms": 50)
    one.monitor.subscribe(listener)
    name = "lost"
    one.produce_async(topic: name, payload: SECRET)
    eventually { @lines.any? { |_, text| text.include?("type=librdkafka.dispatch_error topic=lost") } }
    assert_match(/code=msg_timed_out/, @lines.map(&:last).grep(/dispatch_error/).first)
    refute_includes @lines.reject { |severity, _| severity == "DEBUG" }.join, SECRET
  end

  # behaviour: a bus for all producers, ready-made listeners
  def test_contents_are_logged_at_debug_and_truncated
    one = producer
    one.monitor.subscribe(listener)
    one.produce_sync(topic: "t", payload: "#{SECRET}\nnext=line#{"y" * 1_000}\xFF", key: "k", headers: { "token" => "h3ad3r" })
    one.produce_many_sync(Array.new(50) { |i| { topic: "t", payload: "payload #{i}" } })
    debug = @lines.select { |severity, _| severity == "DEBUG" }.map(&:last)
    assert_equal 11, debug.size
    assert_match(/topic=t key=k payload="hunter2\\nnext=liney{180,}\.\.\. 81\d bytes more"\z/, debug.first)
    assert(debug.all? { |text| text.size < 500 && !text.include?("\n") })
    refute_includes @lines.join, "h3ad3r"
    refute_includes @lines.reject { |severity, _| severity == "DEBUG" }.join, SECRET
  end

  # "?" for each byte would hide which key it was.
  def test_bytes_that_are_no_text_are_logged_in_hexadecimal_digits
    one = producer
    one.monitor.subscribe(listener)
    ["\x00\xFF\x10".b, [1, 200].pack("Nn"), "grün".b, "", "#{"x" * 199}ü and more"].each do |key|
      one.produce_sync(topic: "t", payload: "\xFF" * 300, key:)
    end
    shown = @lines.filter_map { |severity, line| line[/ key=(.*?) payload=/, 1] if severity == "DEBUG" }
    assert_equal ["0x00ff10", "0x0000000100c8", '"grün"', '""'], shown.first(4)
    assert_match(/\A"x{199}.?\.\.\. 10 bytes more"\z/, shown.last)
    assert_includes @lines.last.last, " payload=\"0x#{"ff" * 200}... 100 bytes more\""
  end

  # behaviour: a bus for all producers, ready-made listeners
  def test_without_log_messages_no_content_is_logged
    one = producer
    one.monitor.subscribe(listener(log_messages: false))
    one.produce_sync(topic: "t", payload: SECRET, key: SECRET)
    one.produce_many_sync([{ topic: "t", payload: SECRET }])
    one.buffer(topic: "t", payload: SECRET)
    one.purge
    [{ SECRET => 1 }, SECRET, [SECRET]].each do |odd|
      assert_raises(Penstock::Error) { one.produce_sync(topic: "t", payload: odd.is_a?(String) ? 1 : odd) }
      assert_raises(Penstock::Error) { one.produce_sync(odd) }
      assert_raises(Penstock::Error) { one.produce_many_sync(odd) }
    end
    assert_raises(Penstock::Error) { one.produce_sync(topic: "t", payload: "x", headers: { "password" => SECRET.to_sym }) }
    publish(listener(log_messages: false), "error.occurred", type: "listener.error", error: RuntimeError.new(SECRET))
    refute_empty lines("error.occurred")
    refute_includes @lines.reject { |_, text| text.include?("Unknown message key") }.join, SECRET
    assert_empty(@lines.select { |severity, _| severity == "DEBUG" })
  end

  def test_an_application_s_events_name_the_message_and_seconds_are_short
    place = { group: "shop", topic: "orders", partition: 1, offset: 7, attempt: 2 }
    publish(listener, "error.occurred", type: "consumer.consume.error", error: Penstock::Error.new("x"), caller: self, **place)
    publish(listener, "consumer.consuming.retry", **place, seconds: 0.9151405130251877)
    words = "group=shop topic=orders partition=1 offset=7 attempt=2"
    assert_includes line("error.occurred").last, " type=consumer.consume.error #{words} error=Penstock::Error "
    assert line("consumer.consuming.retry").last.end_with?(" #{words} seconds=0.915")
  end

  def test_a_foreign_error_is_logged_by_class_and_place_and_its_text_only_at_debug
    one = producer
    one.monitor.subscribe("message.produced_sync") { raise "bad #{SECRET}" }
    one.monitor.subscribe(listener)
    one.produce_sync(topic:, payload: "x")
    severity, text = line("error.occurred")
    debug, quoted = @lines.find { |_, line| line.include?("details=error.occurred") }
    assert_equal "ERROR", severity
    assert_match(/type=listener.error event_of=message.produced_sync error=RuntimeError at=\S*listeners_logger_test.rb:\d+/, text)
    refute_includes text, SECRET
    assert_equal "DEBUG", debug
    assert_match(/error=RuntimeError text="bad hunter2"/, quoted)
  end

  # Characters that reverse the direction of text could make a line look different. `inspect` does not escape them.
  def test_no_value_controls_the_terminal_or_begins_another_line
    publish(listener, "error.occurred", type: "a\e[2J\nb\u202Ec\xFF\u2066", error: Penstock::Error.new("x\e\u202E\ny"))
    text = @lines.map(&:last).join
    assert_match(/type="a\\e\[2J\\nb\\u202Ec\?\\u2066"/, text)
    refute_match(/[[:cntrl:]\u202E\u2066]/, text)
  end

  # A message and its attributes may be any object.
  def test_odd_messages_do_not_make_the_listener_raise
    odd = [nil, 1, :symbol, "", "\xFF\n", [], [nil, [1]], {}, Object.new, BasicObject.new, { topic: BasicObject.new, payload: 1 },
           { topic: "a b", payload: BasicObject.new, key: Object.new }, Hash.new { raise "asked" }]
    broken = Class.new(StandardError) { def message = raise("asked") }
    mine = listener
    odd.each do |value|
      mine.on_message_produced_sync(Penstock::Event.new("message.produced_sync", { message: value, time: value }))
      mine.on_messages_produced_sync(Penstock::Event.new("messages.produced_sync", { messages: value, producer_id: value }))
      mine.on_messages_produced_sync(Penstock::Event.new("messages.produced_sync", { messages: [value] }))
      mine.on_error_occurred(Penstock::Event.new("error.occurred", { error: value, type: value, message: value, event: value }))
      mine.on_error_occurred(Penstock::Event.new("error.occurred", { error: broken.new, messages: value, dispatched: value }))
    end
    assert(@lines.all? { |_, text| text.start_with?("penstock ") && !text.include?("\n") && text.valid_encoding? })
  end

  def test_a_producers_id_cannot_forge_a_line
    one = producer { |config| config.id = "a\nERROR event=fake" }
    one.monitor.subscribe(listener)
    one.produce_sync(topic:, payload: "x")
    assert_includes line("message.produced_sync").last, 'producer="a\nERROR event=fake" event='
  end

  def test_the_listener_logs_all_producers_and_subscribes_to_no_event_of_single_messages
    Penstock.monitor.subscribe(listener)
    producers = Array.new(2) { producer }
    producers.each { |one| one.produce_sync(topic:, payload: "x") }
    assert_equal producers.map(&:id), (lines("message.produced_sync").map { |_, text| text[/producer=(\S+)/, 1] }).uniq
    refute Penstock.monitor.listening?("message.acknowledged")
    refute Penstock.monitor.listening?("message.purged")
    refute Penstock.monitor.listening?("statistics.emitted")
  end

  def test_an_object_that_is_no_logger_is_rejected
    error = assert_raises(ArgumentError) { Penstock::Listeners::Logger.new($stdout) }
    assert_match(/IO lacks debug, info, warn, error/, error.message)
  end

  def test_any_object_with_the_four_methods_is_a_logger
    heard = []
    plain = Class.new { %i[debug info warn error].each { |level| define_method(level) { |text| heard << [level, text] } } }.new
    one = producer
    one.monitor.subscribe(Penstock::Listeners::Logger.new(plain))
    one.produce_sync(topic:, payload: "x")
    assert_equal(%i[info info debug], heard.map(&:first))
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/advertising_broker"

# Text from brokers and from users' exceptions is shown as valid UTF-8 without control characters.
class ForeignTextTest < PenstockTest
  Text = Internal::Text

  # Clears the screen, sets the window title, forges a line, changes the text direction, and is not valid UTF-8.
  HOSTILE = "no \xFF\xE2\x82 \e[2J\e]0;owned\a\r\nERROR forged\u2028line \u202E\u009B1m \u007F end"
  # Every buffer of Penstock cuts at least one of these texts within a character.
  LONG = ["é" * 600, "x#{"é" * 600}", "€" * 400, "x#{"€" * 400}", "xy#{"€" * 400}"].freeze
  SASL = { "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p" }.freeze

  def setup
    super
    @brokers = []
  end

  def teardown
    @producers.each { |one| one.close(timeout: 0) }
    @brokers.each(&:close)
    super
  end

  def broker(**options, &block) = AdvertisingBroker.new(**options, &block).tap { |made| @brokers << made }

  # A broker that rejects every login with that text.
  def rejecting(text = HOSTILE) = broker(sasl_error: text)

  def rejected_producer(servers = rejecting.address, **kafka)
    producer(servers:, **SASL, **kafka) do |config|
      config.rejection_timeout = 100
      config.polling.fd.periodic_poll_interval = 100
      yield config if block_given?
    end
  end

  STEERING = /[\x00-\x1F\x7F\u0080-\u009F\u2028-\u202E\u2066-\u2069\u200E\u200F\u061C]/

  def assert_harmless(text, about = nil)
    assert_equal Encoding::UTF_8, text.encoding, about
    assert_predicate text, :valid_encoding?, about
    refute_match STEERING, text, about
    text
  end

  # Checks each line of a log that Ruby's formatter has written.
  def assert_harmless_lines(log)
    refute_empty log
    log.force_encoding(Encoding::UTF_8).each_line(chomp: true) { |line| assert_harmless(line) }
    refute_match(/^ERROR forged/, log)
  end

  # ---- cleaning of text ----

  def test_only_control_characters_are_escaped
    shown = { "\e[2J" => '\x1B[2J', "a\nb\r\tc" => 'a\nb\r\tc', "\0" => '\x00', "\x7F" => '\x7F', "\u0085" => '\u0085',
              "\u202Eabc" => '\u202Eabc', "\u2066" => '\u2066', "\u061C" => '\u061C', "\u2028" => '\u2028', "\xFF".b => "\uFFFD",
              "a\xE2\x82" => "a\uFFFD", "\xED\xA0\x80" => "\uFFFD" * 3, "Grüße, €, 😀, 日本語" => "Grüße, €, 😀, 日本語", "" => "" }
    shown.each { |text, expected| assert_equal expected, Text.printable(text), text.dump }
  end

  def test_a_clean_text_is_returned_itself
    %w[plain Grüße].each { |text| assert_same text, Text.printable(text) }
    assert_equal Encoding::UTF_8, Text.printable("plain".encode(Encoding::US_ASCII)).encoding
  end

  def test_text_in_any_encoding_is_converted
    assert_equal "Grüße", Text.printable("Grüße".encode(Encoding::UTF_16LE))
    assert_equal "Grüße", Text.printable("Grüße".encode(Encoding::ISO_8859_1))
    assert_equal "a\uFFFD", Text.printable("a\xD8".dup.force_encoding(Encoding::SJIS).b)
    assert_equal "sym", Text.printable(:sym)
    Encoding.list.each do |encoding|
      assert_harmless Text.printable(HOSTILE.dup.force_encoding(encoding)), encoding.name
    end
  end

  # Ruby's own scrub replaces the same bytes.
  def test_random_bytes_are_cleaned_like_scrub_and_cleaning_again_changes_nothing
    random = Random.new(16)
    pieces = ["a", "é", "€", "😀", "\xFF", "\xE2\x82", "\xF0\x9F\x98", "\xED\xA0", "\xC0", "\xF4\x90", "\x80", "\xE0\x80"].map(&:b)
    (GCLevel.slow? ? 300 : 20_000).times do
      bytes = Array.new(random.rand(1..12)) { random.rand < 0.3 ? random.bytes(1) : pieces.sample(random:) }.join
      shown = Text.printable(bytes)
      scrubbed = bytes.dup.force_encoding(Encoding::UTF_8).scrub
      assert_equal scrubbed.gsub(STEERING) { |char| escaped(char) }, shown, bytes.dump
      assert_equal shown, Text.printable(shown)
    end
  end

  def escaped(char)
    { "\n" => '\n', "\r" => '\r', "\t" => '\t' }.fetch(char) { format(char.ord < 0x80 ? '\x%02X' : '\u%04X', char.ord) }
  end

  # ---- texts of brokers ----

  slow def test_every_call_of_a_rejected_producer_raises_its_documented_error
    [HOSTILE, *LONG].each do |text|
      one = rejected_producer(rejecting(text).address, log_level: 0)
      handle = one.produce_async(topic: "rejected", payload: "x")
      errors = [-> { one.produce_sync(topic: "rejected", payload: "x") }, -> { handle.wait }].map do |call|
        assert_raises(Penstock::AuthenticationError, &call)
      end
      [*errors, handle.error, handle.report.error].each do |error|
        [error.message, error.inspect].each { |shown| assert_harmless shown }
        assert_match(/SASL authentication error/, error.message)
      end
      [handle, handle.report, one].each { |object| assert_harmless object.inspect }
    end
  end

  slow def test_a_rejected_consumer_raises_its_documented_error
    one = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": rejecting.address, log_level: 0, **SASL }
      config.rejection_timeout = 100
    end
    one.assign("rejected" => [0])
    error = assert_raises(Penstock::AuthenticationError) { one.poll(timeout: 60) }
    assert_harmless error.message
    assert_match(/SASL authentication error.*\\x1B\[2J/, error.message)
    assert_harmless assert_raises(Penstock::AuthenticationError) { one.watermarks("rejected", 0, timeout: 60) }.message
  ensure
    one&.close(timeout: 20)
  end

  def test_all_100_failed_messages_are_published_as_errors
    failed = Queue.new
    one = rejected_producer(log_level: 0)
    one.monitor.subscribe("error.occurred") do |event|
      failed << event[:error] if event[:type] == "librdkafka.dispatch_error"
    end
    one.produce_many_async(Array.new(100) { { topic: "rejected", payload: "x" } })
    eventually { failed.size == 100 }
    Array.new(100) { failed.pop }.each { |error| assert_harmless error.message }
  end

  def test_a_broker_cannot_forge_a_line_of_a_producers_log
    log = StringIO.new
    one = rejected_producer { |config| config.logger = Logger.new(log) }
    one.monitor.subscribe(Penstock::Listeners::Logger.new(Logger.new(log)))
    handle = one.produce_async(topic: "rejected", payload: "x")
    assert_raises(Penstock::AuthenticationError) { handle.wait }
    eventually { log.string.include?("error.occurred") && log.string.match?(/FAIL.*forged/) }
    one.close
    assert_harmless_lines(log.string.dup)
  end

  slow def test_a_broker_cannot_forge_a_line_of_a_consumers_log
    log = StringIO.new
    one = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": rejecting.address, **SASL }
      config.logger = Logger.new(log)
    end
    one.assign("rejected" => [0])
    eventually { one.poll(timeout: 0.01) || log.string.match?(/FAIL.*forged/) }
    one.close(timeout: 20)
    assert_harmless_lines(log.string.dup)
  end

  # Without a logger, Penstock prints librdkafka's lines to stderr. It cleans them in the same way.
  def test_a_broker_cannot_forge_a_line_on_stderr
    _, errors, = ruby(<<~RUBY, rejecting.address)
      one = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": ARGV[0], #{SASL.map { |name, value| "#{name.to_s.inspect}: #{value.inspect}" }.join(", ")} }
        config.rejection_timeout = 100
      end
      one.produce_sync(topic: "rejected", payload: "x") rescue one.close
    RUBY
    assert_match(/^penstock: \[penstock-\h+\] FAIL: .*SASL authentication error: no .*forged/, errors)
    assert_harmless_lines(errors)
  end

  # ---- names ----

  def test_names_of_brokers_and_clusters_are_valid_utf_8_without_control_characters
    hostile = broker(cluster_id: HOSTILE) { |own| [own, [2, HOSTILE, 9092]] }
    cluster_id, _, brokers = native_client(producer(servers: hostile.address, log_level: 0, **QUICK)).brokers(10_000)
    [cluster_id, brokers.find { |id,| id == 2 }[1]].each { |name| assert_match(/forged/, assert_harmless(name)) }
  end

  # Statistics contain host names, and librdkafka does not escape them.
  def test_statistics_stay_valid_json_if_a_brokers_name_contains_control_characters
    hostile = broker { |own| [own, [2, "a\e\n\xFFb", 9092]] }
    one = producer(servers: hostile.address, log_level: 0, "statistics.interval.ms": 50, **QUICK)
    seen = Queue.new
    one.monitor.subscribe("statistics.emitted") { |event| seen << event }
    one.produce_async(topic: "a", payload: "x")
    found = eventually { seen.pop.then { |event| event if event.json.include?("\uFFFD") } }
    assert_predicate found.json, :valid_encoding?
    assert_includes found[:statistics].fetch("brokers").keys.join, "a\e\n\uFFFDb:9092"
  end

  # Invalid bytes in names are replaced, as Kafka's Java client does. Values are binary data.
  def test_header_names_are_valid_utf_8_and_values_do_not_change
    message = Penstock::Message.new(topic: "t", partition: 0, offset: 0, payload: "\xFF\n".b, key: "\e\xFE".b,
                                    headers: { "caf\xE9\n" => "\xFF\e".b })
    assert_equal [{ "caf\uFFFD\n" => "\xFF\e".b }, "\xFF\n".b, "\e\xFE".b], [message.headers, message.payload, message.key]
    assert_equal Encoding::UTF_8, message.headers.keys.first.encoding
  end

  # ---- users' own text ----

  USERS_TEXTS = [HOSTILE, "#{HOSTILE}\0".b, "Grüße\0\n".encode(Encoding::UTF_16LE),
                 "\xE4".dup.force_encoding(Encoding::ISO_8859_1), "+AGE-\e".dup.force_encoding(Encoding::UTF_7)].freeze

  def test_errors_can_quote_the_users_text_in_any_encoding
    one = unreachable_producer
    USERS_TEXTS.each do |text|
      calls = [-> { one.produce_async(topic: text, payload: "x") }, -> { one.produce_async(topic: "a", payload: "x", text => 1) },
               -> { one.produce_async(topic: "a", payload: "x", headers: { text => 1 }) }]
      calls.each { |call| assert_harmless assert_raises(Penstock::MessageInvalidError, &call).message }
      assert_harmless assert_raises(Penstock::EventUnknownError) { one.monitor.subscribe(text) { nil } }.message
    end
  end

  def test_arguments_in_any_encoding_raise_documented_errors
    one = unreachable_producer
    consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 } }
    USERS_TEXTS.each do |text|
      assert_harmless assert_raises(Penstock::VariantInvalidError) { one.with(topic_config: { text => 1 }) }.message
      assert_raises(ArgumentError) { embedded_cluster.inject_errors(:produce, text) }
      assert_raises(ArgumentError) { consumer.assign(text => 5) }
    end
  ensure
    consumer&.close
  end

  def test_an_id_must_be_utf_8_and_its_control_characters_are_escaped
    USERS_TEXTS.each do |text|
      made = -> { unreachable_producer { |config| config.id = text } }
      error = assert_raises(Penstock::ConfigurationInvalidError, text.inspect, &made)
      assert_match(/config\.id must be/, assert_harmless(error.message))
    end
    one = unreachable_producer { |config| config.id = "größe\e\nERROR forged" }
    assert_equal '#<Penstock::Producer größe\x1B\nERROR forged configured>', one.inspect
    assert_harmless assert_raises(Penstock::MessageInvalidError) { one.produce_async(1) }.message
    never_connected = unreachable_producer { |config| config.id = one.id }.tap(&:close)
    error = assert_raises(Penstock::ProducerClosedError) { never_connected.produce_async(topic: "a", payload: "x") }
    assert_equal 'The producer is closed [producer größe\x1B\nERROR forged].', error.message
  end

  def test_a_serializers_exception_with_any_text_becomes_an_error
    USERS_TEXTS.each do |text|
      one = unreachable_producer { |config| config.serializer = ->(_) { raise text } }
      error = assert_raises(Penstock::SerializationError) { one.produce_async(topic: "a", payload: "x") }
      assert_harmless error.message
      assert_equal text, error.cause.message
    end
  end

  # All loggers share one thread, which must continue.
  def test_an_exception_of_a_logger_with_any_text_is_reported_and_the_logger_is_called_again
    log = Struct.new(:texts, :asked) do
      def add(*) = (self.asked += 1) && raise(texts[asked % texts.size])
    end.new(USERS_TEXTS, 0)
    _, errors = capture_io do
      USERS_TEXTS.size.times do # a line or more of each
        one = rejected_producer { |config| config.logger = log }
        assert_raises(Penstock::AuthenticationError) { one.produce_sync(topic: "a", payload: "x") }
        one.close
      end
      eventually { log.asked >= USERS_TEXTS.size }
    end
    assert_operator errors.lines.size, :>=, USERS_TEXTS.size
    assert_harmless_lines(errors)
    assert_match(/\Apenstock: the logger raised RuntimeError: /, errors)
  end

  def test_an_exception_of_a_listener_with_any_text_is_reported
    USERS_TEXTS.each do |text|
      one = unreachable_producer
      one.monitor.subscribe("message.produced_async") { raise text }
      _, errors = capture_io { one.produce_async(topic: "a", payload: "x") }
      assert_harmless_lines(errors)
      assert_match(/a listener of message.produced_async raised RuntimeError/, errors)
      one.close(timeout: 0)
    end
  end
end

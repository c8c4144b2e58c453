# frozen_string_literal: true

require_relative "../test_helper"
require "logger"

# Token providers that fail, in any way: librdkafka gets an answer, and no output shows a token. The tests need no broker, because
# librdkafka requests a token before it connects. test/integration/security_test.rb shows how a real Kafka treats tokens.
class TokensTest < PenstockTest
  OAUTH = { "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER" }.freeze
  # The error has to arrive within this time. A message whose client gets no answer from its provider times out.
  IN_TIME = { "message.timeout.ms": 30_000, "transaction.timeout.ms": 40_000 }.freeze
  TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJwZW5zdG9jayJ9.c2lnbmF0dXJl"
  OPAQUE = "hunter2/of+penstock=="

  class Provider
    attr_reader :calls

    def initialize(&answer)
      @answer = answer
      @calls = Queue.new
    end

    def on_oauthbearer_token_refresh(event)
      @calls << event
      @answer.call(event[:bearer])
    end
  end

  class Unprintable < StandardError
    def message = raise("no message")
    alias to_s message
    alias inspect message
    alias full_message message
  end

  class Unrelated < Exception; end # rubocop:disable Lint/InheritException

  def in_an_hour = (Time.now.to_i + 3600) * 1000

  # @return [Array(Producer, StringIO, Queue)] the producer, its log, and the texts of all its events
  def watched(provider)
    log = StringIO.new
    one = producer(servers: "127.0.0.1:1", log_level: 7, debug: "all", **OAUTH, **IN_TIME) do |config|
      config.oauth.token_provider_listener = provider
      config.logger = Logger.new(log)
      config.rejection_timeout = 100
    end
    one.monitor.subscribe(Penstock::Listeners::Logger.new(Logger.new(log)))
    events = Queue.new
    one.monitor.subscribe("error.occurred") { |event| events << event }
    [one, log, events]
  end

  # @return [Penstock::Error] the error of a message after the client has got the failure
  def failure(one, what = "")
    assert_raises(Penstock::AuthenticationError, what) { one.produce_sync(topic: "a", payload: "x") }
  end

  ANSWERS = {
    "an_exception_with_a_zero_byte" => ->(_) { raise "a\0b" },
    "an_exception_in_utf_16" => ->(_) { raise "abc".encode("UTF-16LE") },
    "an_exception_that_is_not_utf_8" => ->(_) { raise "a\xff".b },
    "an_exception_without_a_message" => ->(_) { raise "" },
    "an_exception_that_cannot_be_printed" => ->(_) { raise Unprintable },
    "an_exception_that_is_no_standard_error" => ->(_) { raise Unrelated, TOKEN },
    "an_exception_of_another_closed_producer" => ->(_) { raise Penstock::ProducerClosedError, "the producer is closed" },
    "the_end_of_its_thread" => ->(_) { Thread.exit },
    "a_throw" => ->(_) { throw :nowhere },
    "no_answer" => ->(_) {},
    "a_failure_without_a_reason" => ->(bearer) { bearer.oauthbearer_set_token_failure("") },
    "a_failure_that_is_nil" => ->(bearer) { bearer.oauthbearer_set_token_failure(nil) },
    "a_failure_with_a_zero_byte" => ->(bearer) { bearer.oauthbearer_set_token_failure("a\0b") },
    "a_failure_in_utf_16" => ->(bearer) { bearer.oauthbearer_set_token_failure("abc".encode("UTF-16LE")) },
    "a_failure_in_utf_7" => ->(bearer) { bearer.oauthbearer_set_token_failure("abc".dup.force_encoding("UTF-7")) },
    "a_failure_of_bytes" => ->(bearer) { bearer.oauthbearer_set_token_failure("\xff\xfe".b) },
    "a_failure_that_cannot_be_printed" => ->(bearer) { bearer.oauthbearer_set_token_failure(Unprintable.new) },
    "a_token_with_a_zero_byte" => lambda { |bearer|
      bearer.oauthbearer_set_token(token: "#{TOKEN}\0", lifetime_ms: 2**50, principal_name: "me")
    },
    "a_token_in_utf_16" => lambda { |bearer|
      bearer.oauthbearer_set_token(token: TOKEN.encode("UTF-16LE"), lifetime_ms: 2**50, principal_name: "me")
    },
    "a_lifetime_that_is_too_large" => lambda { |bearer|
      bearer.oauthbearer_set_token(token: TOKEN, lifetime_ms: 2**70, principal_name: "me")
    }
  }.freeze

  # All cases at once, because each takes some seconds, mostly waiting.
  # @return [Array] the block's result for each
  def at_once(cases, &block)
    cases.map { |each| Thread.new { block.call(*each) } }.map(&:value)
  end

  slow def test_a_provider_that_fails_in_any_way_gives_its_client_a_failure
    texts = at_once(ANSWERS) do |what, answer|
      one, log, = watched(Provider.new(&answer))
      error = failure(one, what)
      one.close(timeout: 0)
      [what, error.full_message, log.string]
    end
    texts.each do |what, message, log|
      assert_predicate message, :valid_encoding?, what
      [message, log].each { |text| refute_includes text, TOKEN, what }
    end
  end

  # In seconds, and as a duration.
  def test_a_token_whose_time_has_passed_says_when_and_which_unit_is_expected
    [-> { in_an_hour / 1000 }, -> { 3_600_000 }, -> { in_an_hour - (2 * 3_600_000) }].each do |time|
      expiry = time.call
      one, log, events = watched(Provider.new do |bearer|
        bearer.oauthbearer_set_token(token: TOKEN, lifetime_ms: expiry, principal_name: "me")
      end)
      one.client.connect
      text = /the token was not accepted: it expired at #{Time.at(expiry / 1000).utc.strftime("%F %T")} UTC.*in milliseconds/
      eventually { log.string.lines.grep(text).any? }
      assert_match(/#{text} since the epoch at #{Regexp.escape(__FILE__)}:\d+/, log.string)
      assert_kind_of ArgumentError, events.pop[:error]
      assert_match(/expired.*Check the token, principal and lifetime/, failure(one).message)
      refute_includes log.string, TOKEN
      one.close(timeout: 0)
    end
  end

  def test_a_token_that_lives_for_ever_is_logged_as_a_warning
    { in_an_hour => false, in_an_hour * 1000 => true }.each do |lifetime_ms, warned|
      provider = Provider.new { |bearer| bearer.oauthbearer_set_token(token: TOKEN, lifetime_ms:, principal_name: "me") }
      one, log, = watched(provider)
      one.client.connect
      eventually { log.string.include?("expires after the year 3000") } if warned
      one.close(timeout: 0)
      assert_equal warned, log.string.include?("WARN") && log.string.include?("the token expires after the year 3000")
    end
  end

  def test_a_lifetime_that_is_no_number_of_milliseconds_is_rejected_with_the_reason
    { nil => /not NilClass/, Time.now + 3600 => /not Time/, "9" => /not String/, Float::NAN => /not Float/, 2**70 => /64 bits/ }
      .each do |lifetime_ms, reason|
        raised = Queue.new
        connected(Provider.new do |bearer|
          bearer.oauthbearer_set_token(token: TOKEN, lifetime_ms:, principal_name: "me")
        rescue ArgumentError => e
          raised << e
          raise
        end)
        assert_match(/the token was not accepted: lifetime_ms .*#{reason}/, raised.pop.message)
      end
  end

  slow def test_a_raising_logger_or_listener_does_not_keep_the_failure_from_the_client
    one = producer(servers: "127.0.0.1:1", **OAUTH) do |config|
      config.oauth.token_provider_listener = Provider.new { raise "none" }
      config.logger = Class.new { def add(*) = raise("the disk is full") }.new
      config.rejection_timeout = 100
    end
    capture_subprocess_io do
      failure(one)
      one.close(timeout: 0)
    end
  end

  # ---- threads ----

  # Connects, which makes librdkafka ask for a token at once.
  def connected(provider)
    one = producer(servers: "127.0.0.1:1", log_level: 0, **OAUTH) do |config|
      config.oauth.token_provider_listener = provider
      config.logger = nil
    end
    one.tap { one.client.connect }
  end

  def accepting
    Provider.new { |bearer| bearer.oauthbearer_set_token(token: OPAQUE, lifetime_ms: in_an_hour, principal_name: "me") }
  end

  def threads = Thread.list.select { |thread| thread.name == "penstock.tokens" }

  def test_all_clients_share_a_thread_which_ends_with_the_last
    provider = accepting
    made = Array.new(20) { connected(provider) }
    eventually { provider.calls.size == 20 }
    eventually(5, -> { "#{threads.size} threads" }) { threads.size == 1 }
    made.pop(19).each { |one| one.close(timeout: 0) }
    assert_equal 1, threads.size
    made.first.close(timeout: 0)
    eventually { threads.empty? }
  end

  def test_a_provider_that_hangs_delays_no_other_clients_token
    stop = Queue.new
    hanging = Provider.new { stop.pop }
    Array.new(3) { connected(hanging) }
    eventually { hanging.calls.size == 3 }
    provider = accepting
    start = now
    connected(provider)
    eventually { provider.calls.size == 1 }
    assert_operator now - start, :<, Slowness.factor * 1.0
    stop.close
    eventually { threads.size == 1 }
  end

  # librdkafka asks again 10 s after a failure.
  slow def test_a_client_whose_provider_has_failed_or_ended_the_thread_gets_its_next_token
    providers = [-> { raise "not yet" }, -> { Thread.exit }].map do |fails|
      provider = Provider.new do |bearer|
        fails.call if provider.calls.size == 1
        bearer.oauthbearer_set_token(token: OPAQUE, lifetime_ms: in_an_hour, principal_name: "me")
      end
      connected(provider)
      provider
    end
    providers.each { |provider| eventually(20) { provider.calls.size == 2 } }
    eventually { threads.size == 1 }
  end

  def test_a_fork_child_asks_for_tokens_of_its_own_clients
    provider = accepting
    one = connected(provider)
    eventually { provider.calls.size == 1 }
    in_the_child = in_child do
      connected(provider)
      eventually { provider.calls.size == 2 }
      own = threads.size
      one.client.connect
      eventually { provider.calls.size == 3 }
      @producers.each { |each| each.close(timeout: 0) }
      eventually { threads.empty? }
      own
    end
    assert_equal 1, in_the_child
    assert_equal 1, threads.size
  end

  # ---- places where tokens must not appear ----

  # What quotes the token, and how the provider gets it.
  QUOTES = {
    "in_its_own_words" => ->(_, token) { raise "cannot decode #{token}: no such key" },
    "with_a_cause" => ->(_, token) { Integer(token) },
    "in_the_reason_of_a_failure" => lambda { |bearer, token|
      begin
        bearer.oauthbearer_set_token(token:, lifetime_ms: 1, principal_name: "me")
      rescue ArgumentError => e
        bearer.oauthbearer_set_token_failure("#{token} was not accepted: #{e.message}")
      end
    },
    "that_has_expired" => lambda { |bearer, token|
      bearer.oauthbearer_set_token(token:, lifetime_ms: 1, principal_name: "me")
    },
    "that_librdkafka_quotes" => lambda { |bearer, token|
      bearer.oauthbearer_set_token(token: "#{token}\u00e9", lifetime_ms: 2**50, principal_name: "me")
    },
    "as_the_name_of_an_extension" => lambda { |bearer, token|
      bearer.oauthbearer_set_token(token: "x", lifetime_ms: 2**50, principal_name: "me", extensions: { "#{token}!": "x" })
    },
    "as_the_value_of_an_extension" => lambda { |bearer, token|
      bearer.oauthbearer_set_token(token: "x", lifetime_ms: 2**50, principal_name: "me", extensions: { "a" => "#{token}\u0001" })
    }
  }.freeze

  slow def test_a_quoted_token_is_in_no_log_line_message_inspect_or_report
    found = nil
    _, errors = capture_subprocess_io do
      found = at_once(QUOTES.to_a.product([TOKEN, OPAQUE])) { |(how, answer), token| [how, token, texts_of(how, answer, token)] }
    end
    found.each do |how, token, texts|
      [*texts, errors].each { |text| refute_includes text, token, how }
      assert_match(/oauthbearer|token/i, texts.first)
    end
  end

  # @return [Array<String>] all texts that a producer with a failing provider writes or returns
  def texts_of(how, answer, token)
    raised = nil
    provider = Provider.new do |bearer|
      answer.call(bearer, token)
    rescue ArgumentError => e
      raised = e unless how == "with_a_cause" # whose cause is the user's
      raise
    end
    one, log, events = watched(provider)
    error = failure(one, how)
    report = one.close(timeout: 0)
    [log.string, error.full_message, error.inspect, one.inspect, one.config.inspect, report.inspect,
     raised&.full_message.to_s, provider.calls.pop[:bearer].inspect, *Array.new(events.size) { events.pop.inspect },
     *Internal.inspected(one)]
  end

  slow def test_an_accepted_token_is_in_no_log_line
    one, log, = watched(Provider.new do |bearer|
      bearer.oauthbearer_set_token(token: TOKEN, lifetime_ms: in_an_hour, principal_name: "me", extensions: { "a" => "b" })
    end)
    handle = one.produce_async(topic: "a", payload: "x")
    eventually { log.string.include?("Connection refused") }
    one.close(timeout: 0)
    assert_raises(Penstock::Error) { handle.wait }
    refute_includes log.string, TOKEN
  end

  slow def test_the_providers_own_error_is_in_the_event_and_its_class_and_place_are_logged
    one, log, events = watched(Provider.new { raise KeyError, "no key for #{OPAQUE}" })
    failure(one)
    event = nil
    eventually { (event = events.pop)[:type] == "callbacks.oauthbearer_token_refresh.error" }
    assert_equal [KeyError, "no key for #{OPAQUE}", one.id], [event[:error].class, event[:error].message, event[:producer_id]]
    eventually { log.string.match?(/ERROR.*#{one.id}.*KeyError at #{Regexp.escape(__FILE__)}:\d+/) }
    one.close(timeout: 0)
  end

  slow def test_an_accepted_token_stays_accepted_when_the_provider_raises_afterwards
    one, log, events = watched(Provider.new do |bearer|
      bearer.oauthbearer_set_token(token: OPAQUE, lifetime_ms: in_an_hour, principal_name: "me")
      raise "afterwards"
    end)
    one.produce_async(topic: "a", payload: "x")
    eventually { events.size.positive? && log.string.include?("Connection refused") }
    refute_match(/Failed to acquire/, log.string)
    one.close(timeout: 0)
  end

  thorough slow def test_a_consumers_provider_behaves_the_same
    ["a\0b", "abc".encode("UTF-16BE"), "bad #{TOKEN}"].each do |text|
      log = StringIO.new
      one = Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": "127.0.0.1:1", **OAUTH }
        config.oauth.token_provider_listener = Provider.new { raise text }
        config.logger = Logger.new(log)
        config.rejection_timeout = 100
      end
      error = assert_raises(Penstock::AuthenticationError) { one.assign("a" => [0]).poll(timeout: 10) }
      one.close(timeout: 0)
      assert_match(/RuntimeError/, error.message)
      [error.full_message, log.string].each { |shown| refute_includes shown, TOKEN }
    end
  end
end

# frozen_string_literal: true

require_relative "test_helper"
require "yaml"
require "pp"

# What is refused, or warned of, before anything is made or connected.
class KafkaChecksTest < PenstockTest
  PROVIDER = Object.new.tap { |provider| def provider.on_oauthbearer_token_refresh(_) = nil }
  SASL = { "security.protocol": "sasl_plaintext" }.freeze
  LOGIN = { **SASL, "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "secret" }.freeze
  TLS = { "security.protocol": "ssl" }.freeze
  OAUTH = { **SASL, "sasl.mechanism": "OAUTHBEARER" }.freeze

  def checks(settings, role: :producer, **how)
    Penstock::KafkaChecks.new(settings, settings, role:, **how).call
  end

  REFUSED = {
    "linger_above_the_messages_time" =>
      [{ "linger.ms": 10, "message.timeout.ms": 5 }, /linger\.ms \(10\).*message\.timeout\.ms \(5\).*before they are sent/],
    "the_same_by_other_names" =>
      [{ "queue.buffering.max.ms": "10", "delivery.timeout.ms": 5.0 }, /queue\.buffering\.max\.ms.*delivery\.timeout\.ms/],
    "a_request_longer_than_a_message" => [{ "request.timeout.ms": 3_000, "message.timeout.ms": 2_000 }, /request\.timeout\.ms/],
    "a_retry_pause_above_the_longest" => [{ "retry.backoff.ms": 200, "retry.backoff.max.ms": 100 }, /retry\.backoff\.ms/],
    "a_reconnect_pause_above_the_longest" =>
      [{ "reconnect.backoff.ms": 200, "reconnect.backoff.max.ms": 100 }, /reconnect\.backoff\.ms/],
    "a_heartbeat_slower_than_the_session" =>
      [{ "heartbeat.interval.ms": 6_000, "session.timeout.ms": 5_000 }, /heartbeat\.interval\.ms.*thrown out/],
    "a_session_longer_than_the_pause_between_polls" =>
      [{ "session.timeout.ms": 6_000, "max.poll.interval.ms": 5_000 }, /session\.timeout\.ms.*max\.poll\.interval\.ms/],
    "an_authority_without_tls" =>
      [{ "ssl.ca.location": __FILE__ }, /ssl\.ca\.location has no effect without TLS.*security\.protocol/],
    "a_key_without_its_certificate" => [{ **TLS, "ssl.key.location": __FILE__ }, /the certificate is missing/],
    "a_certificate_without_its_key" => [{ **TLS, "ssl.certificate.location": __FILE__ }, /the key is missing/],
    "a_file_that_is_not_there" => [{ **TLS, "ssl.ca.location": "/nonexistent" }, %r{no readable file "/nonexistent"}],
    "a_pem_that_is_none" => [{ **TLS, "ssl.ca.pem": "/etc/ca.pem" }, /ssl\.ca\.pem is no PEM/],
    "a_password_without_sasl" => [{ "sasl.password": "secret" }, /sasl\.password has no effect without SASL.*security\.protocol/],
    "a_password_with_tls_only" => [{ **TLS, "sasl.username": "me" }, /sasl\.username has no effect without SASL/],
    "a_user_without_a_mechanism" => [{ **SASL, "sasl.username": "me" }, /sasl\.mechanism is missing.*GSSAPI/],
    "plain_without_a_user" => [LOGIN.except(:"sasl.username"), /PLAIN needs sasl\.username/],
    "scram_without_a_password" =>
      [{ **SASL, "sasl.username": "me", "sasl.mechanisms": "SCRAM-SHA-256" }, /SCRAM-SHA-256 needs sasl\.password/],
    "oauthbearer_without_tokens" => [OAUTH, /OAUTHBEARER needs somebody who brings tokens.*token_provider_listener/]
  }.freeze

  REFUSED.each do |what, (settings, sentence)|
    define_method("test_#{what}_is_refused") do
      error = assert_raises(Penstock::ConfigurationInvalidError) { checks(settings) }
      assert_match sentence, error.message
      refute_match(/secret/, error.message)
    end
  end

  VALID = [
    { "linger.ms": 10, "message.timeout.ms": 0 }, { "linger.ms": 10, "message.timeout.ms": 10 }, { "message.timeout.ms": 2_000 },
    { "linger.ms": "never", "message.timeout.ms": 1 }, { "ssl.endpoint.identification.algorithm": "none" },
    { **TLS, "ssl.ca.location": "probe" }, LOGIN, { **LOGIN, "security.protocol": "SASL_PLAINTEXT" },
    { **OAUTH, "enable.sasl.oauthbearer.unsecure.jwt": true }, { **OAUTH, "sasl.oauthbearer.method": "OIDC" }
  ].freeze

  VALID.each_with_index do |settings, i|
    define_method("test_valid_settings_#{i}_are_let_through_without_a_word") { assert_empty checks(settings) }
  end

  def test_tokens_come_from_one_place_and_where_they_are_wanted
    assert_empty checks(OAUTH, token_provider: PROVIDER)
    unsecure = { **OAUTH, "enable.sasl.oauthbearer.unsecure.jwt": true }
    { unsecure => /choose one/, LOGIN => /only asked with/, {} => /only asked with/ }.each do |settings, sentence|
      error = assert_raises(Penstock::ConfigurationInvalidError) { checks(settings, token_provider: PROVIDER) }
      assert_match sentence, error.message
    end
    error = assert_raises(Penstock::ConfigurationInvalidError) { producer { |config| config.oauth.token_provider_listener = 5 } }
    assert_match(/on_oauthbearer_token_refresh/, error.message)
  end

  def test_what_librdkafka_was_built_without_is_refused_by_name
    { TLS => "ssl", LOGIN => "sasl", { "compression.codec": "zstd" } => "zstd", { "compression.type": "lz4" } => "lz4" }
      .each do |settings, feature|
        features = Penstock::Client.features - [feature]
        error = assert_raises(Penstock::ConfigurationInvalidError) { checks(settings, features:) }
        assert_match(/built with #{feature};.*#{Regexp.escape(Penstock.librdkafka_version)}/, error.message)
      end
    assert_includes Penstock::Client.features, "ssl"
  end

  def test_what_is_deprecated_or_of_the_other_kind_of_client_is_told_by_the_logger
    log = StringIO.new
    made = producer("socket.blocking.max.ms": 1_000, "fetch.min.bytes": 1) { |config| config.logger = Logger.new(log) }
    assert_match(/WARN.*\[#{made.id}\] config.kafka: socket\.blocking\.max\.ms is deprecated: No longer used/, log.string)
    assert_match(/WARN.*fetch\.min\.bytes has no effect on a producer/, log.string)
    assert_equal 2, log.string.lines.size
    assert_match(/linger\.ms has no effect on a consumer/, checks({ "linger.ms": 5 }, role: :consumer).first)
    assert_match(/statistics.* no effect on a consumer/, checks({ "statistics.interval.ms": 5 }, role: :consumer).first)
    assert_empty checks({ "statistics.interval.ms": 0 }, role: :consumer)
    assert_empty checks({ "enable.auto.commit": false, "offset.store.method": "broker" }, role: :consumer).grep(/enable/)
  end

  def test_without_a_logger_warnings_go_to_stderr
    _, errors = capture_subprocess_io { producer("socket.blocking.max.ms": 1_000) }
    assert_match(/penstock: \[\S+\] config\.kafka: socket\.blocking\.max\.ms is deprecated/, errors)
  end

  def test_certificates_that_are_not_verified_are_warned_of
    assert_match(/anybody may pretend/, checks({ **TLS, "enable.ssl.certificate.verification": false }).first)
  end

  def test_a_pem_may_come_in_one_line
    pem = "-----BEGIN CERTIFICATE-----\\nabc\\n-----END CERTIFICATE-----\\n"
    assert_equal pem.gsub("\\n", "\n"), producer(**TLS, "ssl.ca.pem": pem).config.kafka[:"ssl.ca.pem"]
  end

  # ---- secrets ----

  SECRETS = { **LOGIN, "sasl.password": "hunter2", "ssl.key.password": "hunter2" }.freeze

  def test_settings_show_no_secrets_however_they_are_written
    settings = producer(**SECRETS, "security.protocol": "sasl_ssl").config.kafka
    assert_equal "hunter2", settings[:"sasl.password"]
    others = [settings.dup, settings.merge(a: 1), { inside: settings },
              Penstock::Producer::Variant.override(settings, { acks: 1 })]
    [settings, *others].each do |shown|
      [shown.inspect, shown.to_s, shown.to_json, shown.pretty_inspect, shown.to_yaml, "as #{shown}"].each do |text|
        refute_includes text, "hunter2"
        assert_includes text, "[hidden]"
      end
    end
  end

  def test_secrets_are_in_no_inspect_log_line_event_or_error_of_a_producer_that_fails
    log = StringIO.new
    one = producer(servers: "127.0.0.1:1", **SECRETS, "security.protocol": "sasl_ssl", debug: "all", log_level: 7,
                   "message.timeout.ms": 1_000, "transaction.timeout.ms": 5_000) { |config| config.logger = Logger.new(log) }
    events = Queue.new
    Penstock::Monitor::EVENTS.each do |name|
      one.monitor.subscribe(name) do |event|
        events << event.payload.inspect << event.inspect
      end
    end
    one.set_credentials("me", "hunter23")
    error = assert_raises(Penstock::ProduceError) { one.produce_sync(topic: "a", payload: "x") }
    one.client.test_fatal_error(:out_of_order_sequence_number, "for a test")
    assert_raises(Penstock::Error) { one.produce_sync(topic: "a", payload: "x") }
    one.close(timeout: 0)
    eventually { log.string.include?("sasl.username") }
    told = Array.new(events.size) { events.pop }
    parts = one.instance_variables.map { |name| one.instance_variable_get(name).inspect }
    [log.string, error.full_message, one.inspect, one.config.inspect, *parts, *told].each do |text|
      refute_includes text, "hunter2"
    end
  end
end

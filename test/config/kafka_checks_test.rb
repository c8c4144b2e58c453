# frozen_string_literal: true

require_relative "../test_helper"

# Settings that are rejected, or warned of, before a client is made or connected.
class KafkaChecksTest < PenstockTest
  PROVIDER = Object.new.tap { |provider| def provider.on_oauthbearer_token_refresh(_) = nil }
  SASL = { "security.protocol": "sasl_plaintext" }.freeze
  LOGIN = { **SASL, "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "secret" }.freeze
  TLS = { "security.protocol": "ssl" }.freeze
  OAUTH = { **SASL, "sasl.mechanism": "OAUTHBEARER" }.freeze
  OIDC = { "sasl.oauthbearer.method": "OIDC", "sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "secret",
           "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1/token" }.freeze

  def checks(settings, role: :producer, **how)
    Internal::KafkaChecks.new(settings, settings, role:, **how).call
  end

  REJECTED = {
    "linger_above_the_messages_time" =>
      [{ "linger.ms": 10, "message.timeout.ms": 5 }, /linger\.ms \(10\).*message\.timeout\.ms \(5\).*before they are sent/],
    "the_same_by_other_names" =>
      [{ "queue.buffering.max.ms": "10", "delivery.timeout.ms": 5.0 }, /queue\.buffering\.max\.ms.*delivery\.timeout\.ms/],
    "a_request_longer_than_a_message" => [{ "request.timeout.ms": 3_000, "message.timeout.ms": 2_000 }, /request\.timeout\.ms/],
    "a_retry_pause_above_the_longest" => [{ "retry.backoff.ms": 200, "retry.backoff.max.ms": 100 }, /retry\.backoff\.ms/],
    "a_reconnect_pause_above_the_longest" =>
      [{ "reconnect.backoff.ms": 200, "reconnect.backoff.max.ms": 100 }, /reconnect\.backoff\.ms/],
    "a_heartbeat_slower_than_the_session" =>
      [{ "heartbeat.interval.ms": 6_000, "session.timeout.ms": 5_000 }, /heartbeat\.interval\.ms.*between two heartbeats/],
    "a_session_longer_than_the_pause_between_polls" =>
      [{ "session.timeout.ms": 6_000, "max.poll.interval.ms": 5_000 }, /session\.timeout\.ms.*max\.poll\.interval\.ms/],
    "an_authority_without_tls" =>
      [{ "ssl.ca.location": __FILE__ }, /ssl\.ca\.location has no effect without TLS.*security\.protocol/],
    "a_key_without_its_certificate" => [{ **TLS, "ssl.key.location": __FILE__ }, /the certificate is missing/],
    "a_certificate_without_its_key" => [{ **TLS, "ssl.certificate.location": __FILE__ }, /the key is missing/],
    "a_file_that_is_not_there" => [{ **TLS, "ssl.ca.location": "/nonexistent/secret" }, /ssl\.ca\.location.*no such file/],
    "a_pem_that_is_none" => [{ **TLS, "ssl.ca.pem": "/etc/ca.pem" }, /ssl\.ca\.pem .*PEM/],
    "a_password_without_sasl" => [{ "sasl.password": "secret" }, /sasl\.password has no effect without SASL.*security\.protocol/],
    "a_password_with_tls_only" => [{ **TLS, "sasl.username": "me" }, /sasl\.username has no effect without SASL/],
    "a_user_without_a_mechanism" => [{ **SASL, "sasl.username": "me" }, /sasl\.mechanism is missing.*GSSAPI/],
    "plain_without_a_user" => [LOGIN.except(:"sasl.username"), /PLAIN.*sasl\.username/],
    "scram_without_a_password" =>
      [{ **SASL, "sasl.username": "me", "sasl.mechanisms": "SCRAM-SHA-256" }, /SCRAM-SHA-256.*sasl\.password/],
    "a_client_id_that_would_break_the_statistics" => [{ "client.id": 'my "app"' }, /client\.id must not contain quotes/],
    "a_client_id_with_a_backslash" => [{ "client.id": "a\\b" }, /client\.id must not contain/],
    "a_client_id_with_a_line_break" => [{ "client.id": "a\nb" }, /client\.id must not contain/],
    "assignors_of_both_kinds" =>
      [{ "partition.assignment.strategy": "range, cooperative-sticky" }, /must not combine "cooperative-sticky" with other/],
    "an_assignor_with_a_space_behind_it" =>
      [{ "partition.assignment.strategy": "roundrobin ,range" }, /must be one of range, roundrobin.*did you mean "roundrobin"/],
    "a_keystore_without_its_password" => [{ **TLS, "ssl.keystore.location": __FILE__ }, /requires ssl\.keystore\.password/],
    "oauthbearer_without_tokens" => [OAUTH, /OAUTHBEARER.*token_provider_listener/]
  }.freeze

  REJECTED.each do |what, (settings, sentence)|
    define_method("test_#{what}_is_rejected") do
      error = assert_raises(Penstock::ConfigurationInvalidError) { checks(settings) }
      assert_match sentence, error.message
      refute_match(/secret/, error.message)
    end
  end

  # librdkafka finds it when the client is made, which is at the first use.
  def test_a_linger_that_is_not_below_the_messages_time_is_rejected
    { { "linger.ms": 200_000 } => /linger\.ms \(200000.*must be less than message\.timeout\.ms \(150000/,
      { "linger.ms": 10, "message.timeout.ms": 10 } => /must be less than message\.timeout\.ms \(10\)/,
      { "transactional.id": "t", "transaction.timeout.ms": 5_000, "linger.ms": 5_000 } =>
        /must be less than transaction\.timeout\.ms \(5000/ }.each do |settings, text|
      error = assert_raises(Penstock::ConfigurationInvalidError, settings.inspect) { producer(**settings) }
      assert_match text, error.message
    end
    producer("linger.ms": 10, "message.timeout.ms": 0)
    producer("transactional.id": "t", "transaction.timeout.ms": 5_000, "linger.ms": 4_000)
  end

  def test_oidc_without_what_it_needs_is_rejected
    skip "this librdkafka was built without OIDC" if Internal::Settings.read("sasl.oauthbearer.method", "oidc").nil?

    (OIDC.keys - %i[sasl.oauthbearer.method]).each do |name|
      error = assert_raises(Penstock::ConfigurationInvalidError) { checks({ **OAUTH, **OIDC }.except(name)) }
      assert_match(/sasl\.oauthbearer\.method "oidc" requires #{Regexp.escape(name.to_s)}/, error.message)
    end
  end

  VALID = [
    { "linger.ms": 10, "message.timeout.ms": 0 }, { "linger.ms": 10, "message.timeout.ms": 10 }, { "message.timeout.ms": 2_000 },
    { "linger.ms": "never", "message.timeout.ms": 1 }, { "ssl.endpoint.identification.algorithm": "none" },
    { **TLS, "ssl.ca.location": "probe" }, LOGIN, { **LOGIN, "security.protocol": "SASL_PLAINTEXT" },
    { **OAUTH, **OIDC, "bootstrap.servers": "localhost:9092,127.0.0.2,[::1]:9092" },
    { **LOGIN, "bootstrap.servers": "kafka.example:9092", "security.protocol": "sasl_ssl" },
    { **LOGIN, "bootstrap.servers": "kafka.example:9092", "sasl.mechanism": "SCRAM-SHA-256" }
  ].freeze

  VALID.each_with_index do |settings, i|
    define_method("test_valid_settings_#{i}_are_accepted_without_a_warning") { assert_empty checks(settings) }
  end

  # behaviour: oauth.token_provider_listener
  def test_a_token_source_is_rejected_if_there_are_two_or_if_sasl_does_not_use_it
    assert_empty checks(OAUTH, token_provider: PROVIDER)
    unsecure = { **OAUTH, "enable.sasl.oauthbearer.unsecure.jwt": true }
    { unsecure => /only one/, LOGIN => /has an effect only with/, {} => /has an effect only with/ }.each do |settings, sentence|
      error = assert_raises(Penstock::ConfigurationInvalidError) { checks(settings, token_provider: PROVIDER) }
      assert_match sentence, error.message
    end
    error = assert_raises(Penstock::ConfigurationInvalidError) { producer { |config| config.oauth.token_provider_listener = 5 } }
    assert_match(/on_oauthbearer_token_refresh/, error.message)
  end

  def test_settings_that_need_a_feature_which_librdkafka_lacks_are_rejected
    { TLS => "ssl", LOGIN => "sasl", { "compression.codec": "zstd" } => "zstd", { "compression.type": "lz4" } => "lz4" }
      .each do |settings, feature|
        features = Internal::ProducerClient.features - [feature]
        error = assert_raises(Penstock::ConfigurationInvalidError) { checks(settings, features:) }
        assert_match(/built with #{feature};.*#{Regexp.escape(Penstock.librdkafka_version)}/, error.message)
      end
    assert_includes Internal::ProducerClient.features, "ssl"
  end

  def test_deprecated_settings_and_settings_of_consumers_are_logged_as_warnings
    log = StringIO.new
    made = producer("socket.blocking.max.ms": 1_000, "fetch.min.bytes": 1) { |config| config.logger = Logger.new(log) }
    assert_match(/WARN.*\[#{made.id}\] config.kafka: socket\.blocking\.max\.ms is deprecated: No longer used/, log.string)
    assert_match(/WARN.*fetch\.min\.bytes has no effect on a producer/, log.string)
    assert_equal 2, log.string.lines.size
    assert_match(/linger\.ms has no effect on a consumer/, checks({ "linger.ms": 5 }, role: :consumer).first)
    assert_empty checks({ "statistics.interval.ms": 5 }, role: :consumer)
    assert_empty checks({ "enable.auto.commit": false, "offset.store.method": "broker" }, role: :consumer).grep(/enable/)
  end

  def test_without_a_logger_warnings_go_to_stderr
    _, errors = capture_subprocess_io { producer("socket.blocking.max.ms": 1_000) }
    assert_match(/penstock: \[\S+\] config\.kafka: socket\.blocking\.max\.ms is deprecated/, errors)
  end

  def test_a_pem_may_be_written_in_one_line
    pem = "-----BEGIN CERTIFICATE-----\\nabc\\n-----END CERTIFICATE-----\\n"
    assert_equal Penstock::Secret.new(pem.gsub("\\n", "\n")), producer(**TLS, "ssl.ca.pem": pem).config.kafka[:"ssl.ca.pem"]
  end

  # ---- booleans and other words: as librdkafka reads them ----

  TRUE = [true, "true", "TRUE", "tRuE", "t", "T", 1, "1"].freeze
  FALSE = [false, "false", "FALSE", "fAlSe", "f", "F", 0, "0"].freeze
  NEITHER = ["yes", "no", "on", "off", "", "2", 2, -1, "-1", "01", "1.0", 1.0, "true ", " true", "tru", "truex", "t\n"].freeze

  def booleans = Internal::ProducerClient.setting_lines.grep(/Type: boolean/).map { |line| line[/\A\S+/] }.uniq

  def test_every_boolean_is_read_as_librdkafka_reads_it
    assert_operator booleans.size, :>, 15
    booleans.each do |name|
      assert_equal ["true"], TRUE.map { |value| Internal::Settings.read(name, value) }.uniq, name
      assert_equal ["false"], FALSE.map { |value| Internal::Settings.read(name, value) }.uniq, name
      assert_empty NEITHER.filter_map { |value| Internal::Settings.read(name, value) }, name
    end
  end

  FALSE.each_with_index do |value, i|
    define_method("test_verification_turned_off_in_spelling_#{i}_is_warned_of") do
      assert_match(/can pretend/, checks({ **TLS, "enable.ssl.certificate.verification": value }).first)
    end
  end

  TRUE.each_with_index do |value, i|
    define_method("test_unsecured_tokens_in_spelling_#{i}_beside_a_token_provider_are_rejected") do
      unsecure = { **OAUTH, "enable.sasl.oauthbearer.unsecure.jwt": value }
      error = assert_raises(Penstock::ConfigurationInvalidError) { checks(unsecure, token_provider: PROVIDER) }
      assert_match(/set only one/, error.message)
      assert_match(/unsecure\.jwt.*without a signature/, checks(unsecure).first)
      assert_empty checks({ **TLS, "enable.ssl.certificate.verification": value })
    end

    define_method("test_committing_without_a_group_in_spelling_#{i}_is_rejected") do
      error = assert_raises(Penstock::ConfigurationInvalidError) do
        Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": "a", "enable.auto.commit" => value } }
      end
      assert_match(/enable\.auto\.commit.*"group\.id"/, error.message)
    end
  end

  def test_librdkafka_raises_for_values_that_it_cannot_parse
    { "enable.ssl.certificate.verification": "yes", "security.protocol": "tls",
      "ssl.endpoint.identification.algorithm": "http" }.each do |name, value|
      error = assert_raises(Penstock::ConfigurationInvalidError) { producer(name => value) }
      assert_match(/config\.kafka: #{name}: /, error.message)
    end
  end

  def test_words_are_read_as_librdkafka_reads_them
    assert_match(/can pretend/, checks({ "security.protocol": " SSL", "enable.ssl.certificate.verification": 0 }).first)
    assert_equal true, producer(acks: "ALL").idempotent?
    assert_equal false, producer("queuing.strategy": "LIFO").idempotent?
    assert_raises(Penstock::ConfigurationInvalidError) { producer(acks: "ALL", "enable.idempotence": "T", retries: 0) }
  end

  def test_disabled_host_name_checks_are_warned_of_only_with_tls
    off = { "ssl.endpoint.identification.algorithm": "NONE" }
    assert_match(/identification\.algorithm is none/, checks({ **TLS, **off }).first)
    assert_empty checks({ **TLS, "ssl.endpoint.identification.algorithm": "https" })
    assert_empty checks(off)
  end

  def test_passwords_and_tokens_in_plain_text_are_warned_of_unless_all_brokers_are_local
    { LOGIN => /the password can be read/, { **OAUTH, "enable.sasl.oauthbearer.unsecure.jwt": 1 } => /tokens can be read/ }
      .each do |settings, sentence|
        ["kafka.example:9092", "localhost:9092,10.0.0.1:9092", "127.example", "sasl_plaintext://kafka.example:9092",
         "localhost.example:9092"].each do |servers|
          assert_match sentence, checks({ **settings, "bootstrap.servers": servers }).join, servers
          assert_match sentence, checks({ **settings, "metadata.broker.list": servers }).join, servers
        end
      end
    ["localhost", "LOCALHOST:9092", "127.0.0.1:9092, 127.1.2.3", "[::1]:9092", "a.localhost:1"].each do |servers|
      assert_empty checks({ **LOGIN, "bootstrap.servers": servers })
    end
  end

  # ---- two names of one setting ----

  def test_two_names_of_one_setting_are_rejected_and_the_error_names_both
    aliases = Internal::Settings::ALIASES
    assert_operator aliases.size, :>=, 10
    assert_equal :"sasl.mechanisms", aliases[:"sasl.mechanism"]
    aliases.each do |one, other|
      [[one, other], [other, one]].each do |names|
        error = assert_raises(Penstock::ConfigurationInvalidError) { checks(names.to_h { |name| [name, 1] }) }
        assert_match(/#{Regexp.escape(names[0])} and #{Regexp.escape(names[1])} are two names of one setting/, error.message)
      end
    end
    error = assert_raises(Penstock::ConfigurationInvalidError) do
      producer("sasl.mechanism" => "PLAIN", "sasl.mechanisms": "PLAIN")
    end
    assert_match(/sasl\.mechanism and sasl\.mechanisms/, error.message)
    error = assert_raises(Penstock::ConfigurationInvalidError) do
      Penstock::Consumer.new { |c| c.kafka = { "bootstrap.servers" => "a:1", "metadata.broker.list": "b:1" } }
    end
    assert_match(/bootstrap\.servers and metadata\.broker\.list/, error.message)
    error = assert_raises(Penstock::VariantInvalidError) { producer.with(topic_config: { acks: 1, "request.required.acks": 1 }) }
    assert_match(/acks and request\.required\.acks/, error.message)
  end

  # ---- secrets ----

  SECRETS = { **LOGIN, "sasl.password": "hunter2", "ssl.key.password": "hunter2" }.freeze

  thorough slow def test_secrets_are_in_no_inspect_log_line_event_or_error_of_a_producer_that_fails
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
    texts = Array.new(events.size) { events.pop }
    parts = Internal.inspected(one)
    [log.string, error.full_message, one.inspect, one.config.inspect, *parts, *texts].each do |text|
      refute_includes text, "hunter2"
    end
  end
end

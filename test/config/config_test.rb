# frozen_string_literal: true

require_relative "../test_helper"
require "openssl"
require "tempfile"
require "pp"

class ConfigTest < PenstockTest
  SECRET = "hunter2"
  SECRET_SETTINGS = %w[
    sasl.password ssl.key.pem ssl.key.password ssl.keystore.password ssl.certificate.pem sasl.oauthbearer.config
    sasl.oauthbearer.client.secret sasl.jaas.config
  ].freeze

  def invalid(**kafka, &block)
    assert_raises(Penstock::ConfigurationInvalidError) { producer(**kafka, &block) }.message
  end

  def with_kafka(kafka)
    Penstock::Producer.new { |config| config.kafka = kafka }.tap { |made| @producers << made }
  end

  def error_for(kafka) = assert_raises(Penstock::ConfigurationInvalidError) { with_kafka(kafka) }.message

  def test_the_block_may_ask_which_settings_were_given
    answers = []
    made = Penstock::Producer.new("bootstrap.servers": "127.0.0.1:1") do |config|
      config.kafka = { **config.kafka, "acks" => "all" }
      answers << %i[bootstrap.servers acks client.id].map { |name| config.given?(name) }
    end
    assert_equal [[true, true, false]], answers
    assert_equal [true, true, false], (%i[bootstrap.servers acks client.id].map { |name| made.config.given?(name) })
    groups = { {} => false, { "group.id": "" } => false, { "group.id": "g" } => true, { "group.id" => "g" } => true }
    groups.each do |group, given|
      consumer = Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": "127.0.0.1:1", **group }
        answers << config.group?
      end
      assert_equal [given, given], [answers.last, consumer.config.group?]
    end
  end

  # behaviour: id
  # behaviour: max_wait_timeout
  def test_defaults
    config = producer.config
    assert_match(/\Apenstock-\h{12}\z/, config.id)
    assert_equal [1_000_012, 180_000, 30_000, nil],
                 [config.max_payload_size, config.max_wait_timeout, config.close_timeout, config.logger]
    polling = config.polling
    assert_equal [:fd, nil, 100, 1000],
                 [polling.mode, polling.poller, polling.fd.max_time, polling.fd.periodic_poll_interval]
  end

  # behaviour: id
  def test_each_producer_gets_a_different_id
    refute_equal producer.id, producer.id
  end

  # behaviour: kafka
  # behaviour: our defaults for kafka
  def test_penstocks_defaults_for_librdkafka_apply_unless_a_setting_is_given
    kafka = producer("linger.ms" => 7, "client.id" => "mine", log_level: 2).config.kafka
    assert_equal ["mine", 2, 7, 150_000, true],
                 kafka.values_at(:"client.id", :log_level, :"linger.ms", :"message.timeout.ms", :"enable.idempotence")
    defaults = { "client.id": "penstock", "enable.idempotence": true, log_level: 4, "message.timeout.ms": 150_000,
                 "socket.nagle.disable": true, "transaction.timeout.ms": 165_000 }
    assert_equal defaults, producer.config.kafka.except(:"bootstrap.servers")
  end

  # A new default of librdkafka's must not change the protocol of a group.
  def test_a_consumer_always_sets_the_groups_protocol_where_librdkafka_knows_it
    known = Gem::Version.new(Penstock.librdkafka_version) >= Gem::Version.new("2.4")
    [{ "group.id": "g" }, { "group.id" => "g" }, {}].each do |settings|
      kafka = consumer_settings(**settings)
      known ? assert_equal("classic", kafka[:"group.protocol"]) : refute_includes(kafka, :"group.protocol")
    end
    return unless known

    [{ "group.protocol": "consumer" }, { "group.protocol" => "consumer" }].each do |settings|
      assert_equal "consumer", consumer_settings("group.id": "g", **settings)[:"group.protocol"]
    end
  end

  def consumer_settings(**kafka) = Penstock::Consumer.new("bootstrap.servers": "127.0.0.1:1", **kafka).config.kafka

  # librdkafka compares them for transactional producers only.
  def test_a_short_transaction_timeout_replaces_our_message_timeout_of_transactional_producers_only
    short = { "transaction.timeout.ms": 60_000 }
    refute_includes producer(**short, "transactional.id": "tx").config.kafka, :"message.timeout.ms"
    assert_equal 150_000, producer(**short).config.kafka[:"message.timeout.ms"]
  end

  slow def test_an_alias_of_a_setting_overrides_penstocks_default
    topic = topic(partitions: 1)
    error = assert_raises(Penstock::MessageTimedOutError) do
      unreachable_producer("delivery.timeout.ms": 100).produce_sync(topic:, payload: "")
    end
    assert_equal :msg_timed_out, error.code
  end

  {
    id: [nil, "", :id, 5, "a\0b"], logger: [5, "stderr", Object.new], max_payload_size: [nil, -1, 1.0, "1", 2**64],
    max_wait_timeout: [-1, 1.5, "1", 2**64], close_timeout: [nil, -1, 1.5, "1", 2**64]
  }.each do |name, values|
    values.each_with_index do |value, i|
      shown = { id: { 4 => "String" }, logger: { 1 => "String", 2 => "Object" } }.dig(name, i) # other values are shown themselves
      shown = shown ? "a value of the class #{shown}" : value.inspect
      define_method("test_an_invalid_#{name}_#{i}_raises") do
        assert_match(/\AInvalid configuration: config\.#{name} must be .+, not #{Regexp.escape(shown)}/,
                     invalid { |config| config.public_send("#{name}=", value) })
      end
    end
  end

  def test_a_number_above_the_limit_is_rejected_with_the_limit
    { max_wait_timeout: 2**64, event_queue_limit: 2**32 }.zip([2**53, (2**32) - 1]).each do |(name, value), limit|
      assert_match(/config\.#{name} must be an Integer of at most #{limit}\b.*, not #{value}/,
                   invalid { |config| config.public_send("#{name}=", value) })
    end
  end

  # Values that are too short for ms cause a warning, except 0.
  def test_a_timeout_that_looks_like_seconds_logs_a_warning
    [Penstock::Config.new, Penstock::ConsumerConfig.new].each do |config|
      config.kafka = { "bootstrap.servers": "127.0.0.1:1" }
      config.logger = Logger.new(log = StringIO.new)
      [0, 100, 30_000].each { |ms| config.dup.tap { |one| one.close_timeout = one.rejection_timeout = ms }.__send__(:finish) }
      assert_empty log.string
      config.dup.tap { |one| one.close_timeout = one.rejection_timeout = 20 }.__send__(:finish)
      %w[close rejection].each do |name|
        assert_includes log.string, "config.#{name}_timeout is 20 ms. If you mean 20 seconds, write 20_000"
      end
    end
  end

  # behaviour: polling.mode
  def test_invalid_polling_settings_raise
    assert_match(/config\.polling\.mode must be one of :fd, :thread, not :fast/, invalid { _1.polling.mode = :fast })
    assert_match(/config\.polling\.poller must be a Penstock::Poller or nil/, invalid { _1.polling.poller = "default" })
    [0, -1, 1.5, "1", nil].each do |value|
      assert_match(/config\.polling\.fd\.max_time must be an Integer of at least 1/, invalid { _1.polling.fd.max_time = value })
    end
    [99, 0, nil, 100.0].each do |value|
      assert_match(/config\.polling\.fd\.periodic_poll_interval must be an Integer of at least 100/,
                   invalid { _1.polling.fd.periodic_poll_interval = value })
    end
  end

  # behaviour: polling.poller
  def test_a_producer_in_mode_thread_accepts_no_other_poller
    message = invalid do |config|
      config.polling.mode = :thread
      config.polling.poller = Penstock::Poller.new
    end
    assert_match(/config\.polling\.poller must be nil in mode :thread/, message)
  end

  def test_mode_reactor_raises_with_the_mode_to_use_instead
    assert_match(/one of :fd, :thread, not :reactor; :fd is suitable for fibers/, invalid { _1.polling.mode = :reactor })
  end

  # behaviour: polling.fd.max_time
  def test_the_smallest_polling_values_are_valid_and_work
    producer = producer do |config|
      config.polling.fd.max_time = 1
      config.polling.fd.periodic_poll_interval = 100
      config.polling.poller = Penstock::Poller.new
      config.max_wait_timeout = nil
    end
    assert_predicate producer.produce_sync(topic: topic(partitions: 1), payload: ""), :persisted?
  end

  # behaviour: wait_backoff_on_queue_full
  # behaviour: instrument_on_wait_queue_full
  def test_settings_without_effect_are_accepted_and_checked
    producer = producer do |config|
      config.wait_backoff_on_queue_full = 100
      config.instrument_on_wait_queue_full = true
    end
    assert_equal [100, true], [producer.config.wait_backoff_on_queue_full, producer.config.instrument_on_wait_queue_full]
    [-1, 1.5, nil].each do |value|
      assert_match(/config\.wait_backoff_on_queue_full must be/, invalid { _1.wait_backoff_on_queue_full = value })
    end
    assert_match(/config\.instrument_on_wait_queue_full must be/, invalid { _1.instrument_on_wait_queue_full = nil })
  end

  # behaviour: wait_backoff_on_transaction_command
  def test_the_recovery_limits_have_the_documented_defaults
    config = producer.config
    assert_equal [true, 5_000, 5, true, 1_000, 10, 500, 5, 1_000, [:fenced]],
                 [config.reload_on_idempotent_fatal_error, config.wait_backoff_on_idempotent_fatal_error,
                  config.max_attempts_on_idempotent_fatal_error, config.reload_on_transaction_fatal_error,
                  config.wait_backoff_on_transaction_fatal_error, config.max_attempts_on_transaction_fatal_error,
                  config.wait_backoff_on_transaction_command, config.max_attempts_on_transaction_command,
                  config.wait_timeout_on_transaction_abort, config.non_reloadable_errors]
  end

  # behaviour: wait_on_queue_full
  # behaviour: wait_timeout_on_queue_full
  # behaviour: A call waits for queue space, up to 10 s
  def test_waiting_for_queue_space_is_the_default_and_wait_on_queue_full_is_an_alias
    config = producer.config
    assert_equal [:wait, true, 10_000], [config.on_queue_full, config.wait_on_queue_full, config.wait_timeout_on_queue_full]
    config = producer { _1.wait_on_queue_full = false }.config
    assert_equal [:raise, false], [config.on_queue_full, config.wait_on_queue_full]
    assert_match(/config\.on_queue_full must be one of :wait, :raise, :drop/, invalid { _1.on_queue_full = :sleep })
  end

  # behaviour: kafka
  def test_kafka_must_be_a_hash
    [nil, 5, [], "bootstrap.servers=#{SECRET}", [[:"sasl.password", SECRET]]].each do |kafka|
      message = error_for(kafka)
      assert_match(/config\.kafka must be a Hash, not #{kafka.class}/, message)
      refute_includes message, SECRET
    end
  end

  # behaviour: ConfigurationInvalidError
  def test_bootstrap_servers_is_required
    [{}, { "bootstrap.servers": "" }, { "client.id": "a" }].each { assert_includes error_for(_1), "bootstrap.servers" }
    assert_raises(Penstock::ConfigurationInvalidError) { Penstock::Producer.new { nil } }
    assert_kind_of Penstock::Producer, with_kafka({ "metadata.broker.list" => "localhost:1" })
  end

  # behaviour: new, setup
  def test_an_unknown_setting_raises_with_the_nearest_name
    assert_match(/no setting "lingr\.ms" \(did you mean "linger\.ms"\?\)/, invalid("lingr.ms": 1))
    assert_match(/no setting "boostrap\.servers" \(did you mean "bootstrap\.servers"\?\)/, invalid("boostrap.servers" => "a"))
    assert_match(/no setting "zzzzzzzzzzzz"\.\z/, invalid(zzzzzzzzzzzz: 1))
    assert_match(/no setting ""/, invalid("" => 1))
    assert_includes invalid("nonsense.setting": 1), Penstock.librdkafka_version
  end

  def test_names_must_be_symbols_or_strings
    [5, nil, ["linger.ms"], Object].each do |name|
      assert_includes invalid(name => 1), "names of settings must be"
    end
  end

  def test_a_setting_given_as_symbol_and_as_string_raises
    assert_includes invalid("linger.ms": 1, "linger.ms" => 1), "linger.ms is set twice"
  end

  # behaviour: kafka
  def test_every_type_of_value_reaches_librdkafka
    topic = topic(partitions: 1)
    producer = producer("linger.ms": 0.5, "batch.num.messages" => 100, "enable.idempotence": true,
                        "log.connection.close" => false, "compression.codec": "gzip", "retries" => "5",
                        "queue.buffering.max.messages": 1)
    assert_predicate producer.produce_sync(topic:, payload: ""), :persisted?
    long = producer("linger.ms": 60_000, "queue.buffering.max.messages": "1") { |config| config.wait_on_queue_full = false }
    long.produce_async(topic:, payload: "")
    assert_raises(Penstock::QueueFullError) { long.produce_async(topic:, payload: "") }
    long.flush
  end

  def test_values_of_other_types_raise_with_the_setting_and_the_class
    [nil, :symbol, [1], {}, 1r, 1i, Object.new].each do |value|
      assert_match(/linger\.ms takes an Integer, Float, String, true or false, not #{value.class}/, invalid("linger.ms": value))
    end
  end

  {
    "linger.ms" => ["soon", "", true, -1, 900_001, Float::NAN, Float::INFINITY], "message.max.bytes" => [999, 10**9 + 1],
    "compression.codec" => ["zip", 1, ""], "enable.idempotence" => ["maybe", 5], "acks" => [-2, 1001, "most"], "dr_cb" => [1],
    "message.timeout.ms" => [-1, 2**31, 2**32 + 5, 2**40, 2**64, 1.5, "100 seconds"]
  }.each do |name, values|
    values.each_with_index do |value, i|
      define_method("test_an_invalid_kafka_#{name.tr(".", "_")}_#{i}_raises") do
        message = invalid(name => value)
        assert_match(/config\.kafka: #{Regexp.escape(name)}\b/, message, value.inspect)
      end
    end
  end

  def test_a_setting_that_would_drop_delivery_results_raises_or_is_ignored
    topic = topic(partitions: 1)
    begin
      producer = producer("delivery.report.only.error": true)
    rescue Penstock::ConfigurationInvalidError => e
      return assert_includes e.message, "delivery.report.only.error"
    end
    handle = producer.produce_async(topic:, payload: "")
    assert_predicate handle.wait(max_wait_timeout_ms: 2_000), :persisted?
  end

  # behaviour: our defaults for kafka
  def test_a_transactional_id_does_not_conflict_with_penstocks_defaults
    producer = producer("transactional.id": "tx")
    assert_predicate producer.produce_async(topic: topic(partitions: 1), payload: ""), :delivered?
  end

  def test_zero_bytes_raise
    assert_match(/names.*zero byte.*"linger\.ms/, invalid("linger.ms\0" => 1))
    assert_match(/name.*zero byte.*"linger\.ms/, invalid("linger.ms\0": 1))
    assert_match(/client\.id must be UTF-8 without a zero byte/, invalid("client.id": "a\0b"))
  end

  NOT_TEXT = ["a\xffb", "\xe9".b, "caf\xe9".dup.force_encoding("ISO-8859-1"), "ab".encode("UTF-16LE"), "ab".encode("UTF-16"),
              "ab".encode("UTF-32BE"), "\u00c3\u00a9".encode("ISO-8859-1"), "a\0b"].freeze

  def test_values_and_names_that_are_not_utf_8_raise_a_configuration_error
    names = %i[client.id linger.ms acks retries sasl.password transaction.timeout.ms security.protocol ssl.ca.pem
               ssl.key.location queuing.strategy max.in.flight bootstrap.servers group.id enable.auto.commit]
    NOT_TEXT.each do |value|
      names.each do |name|
        assert_match(/#{Regexp.escape(name)} must be UTF-8 without a zero byte/, error_for({ name => value }), value.inspect)
        error = assert_raises(Penstock::ConfigurationInvalidError) { Penstock::Consumer.new { |c| c.kafka = { name => value } } }
        assert_match(/#{Regexp.escape(name)} must be UTF-8/, error.message)
      end
      assert_match(/names of settings must be .* in UTF-8 without a zero byte/, error_for({ value => 1 }))
      assert_match(/config\.id must be/, invalid { |config| config.id = value })
      assert_raises(Penstock::VariantInvalidError) { producer.with(topic_config: { acks: value }) }
      assert_raises(Penstock::VariantInvalidError) { producer.with(topic_config: { value => 1 }) }
      assert_raises(Penstock::ConfigurationInvalidError) { Internal::Settings.read("acks", value) }
    end
  end

  def test_utf_8_values_are_accepted_in_every_compatible_encoding
    ["caf\u00e9", "caf\u00e9".b, "cafe".encode("US-ASCII"), "cafe".encode("ISO-8859-1"), "\u{1f600}"].each do |value|
      assert_equal value, producer("client.id": value).config.kafka[:"client.id"]
    end
  end

  def test_credentials_that_are_not_text_raise
    one = producer("security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "x")
    NOT_TEXT.each do |value|
      [[value, "x"], ["me", value], ["me", Penstock::Secret.new(value)]].each do |credentials|
        assert_raises(Penstock::ConfigurationInvalidError) { one.set_credentials(*credentials) }
      end
    end
  end

  SECRET_SETTINGS.each do |name|
    define_method("test_#{name.tr(".", "_")}_appears_in_no_error_and_no_inspect") do
      texts = ["#{SECRET}\0", [SECRET], SECRET.to_sym].map { |value| invalid(name => value) }
      texts << invalid("#{name}x" => SECRET) << invalid(name => SECRET, name.to_sym => SECRET)
      begin
        producer = producer(name => SECRET, log_level: 0)
        texts.push(producer.inspect, producer.config.inspect, PP.pp(producer, +""))
      rescue Penstock::ConfigurationInvalidError => e
        texts << e.message
      end
      texts.each { |text| refute_includes text, SECRET }
    end
  end

  def test_connection_errors_do_not_contain_the_key_password
    key = OpenSSL::PKey::RSA.new(2048).to_pem(OpenSSL::Cipher.new("aes-128-cbc"), "right")
    producer = producer("security.protocol": "ssl", "ssl.certificate.pem": certificate, "ssl.key.pem": key,
                        "ssl.key.password": SECRET, log_level: 0)
    error = assert_raises(Penstock::ConfigurationInvalidError) { producer.produce_async(topic: "a", payload: "") }
    assert_includes error.message, "ssl.key.pem"
    refute_includes error.message, SECRET
    refute_includes error.message, key.lines[4]
  end

  # librdkafka reads the file only when the client opens. Some versions free a configuration that they reject (see client.c).
  def test_a_client_that_cannot_open_raises_each_time_and_opens_once_the_file_is_fixed
    Tempfile.create("ca") do |file|
      producer = producer(servers: "127.0.0.1:1", "security.protocol": "ssl", "ssl.ca.location": file.path, log_level: 0)
      File.write(file, "no certificate")
      3.times do
        error = assert_raises(Penstock::ConfigurationInvalidError) { producer.produce_async(topic: "a", payload: "") }
        assert_includes error.message, "ssl.ca.location"
      end
      File.write(file, certificate)
      assert_instance_of Penstock::DeliveryHandle, producer.produce_async(topic: "a", payload: "")
      producer.purge
    end
  end

  def certificate
    key = OpenSSL::PKey::RSA.new(2048)
    made = OpenSSL::X509::Certificate.new
    made.public_key = key.public_key
    made.not_before = Time.now
    made.not_after = Time.now + 60
    made.sign(key, "sha256").to_pem
  end

  def test_the_configuration_is_frozen_after_setup
    config = producer.config
    assert([config, config.kafka, config.polling, config.polling.fd].all?(&:frozen?))
    assert_raises(FrozenError) { config.id = "other" }
    assert_raises(FrozenError) { config.kafka["linger.ms"] = 5 }
    assert_raises(FrozenError) { config.polling.fd.max_time = 5 }
  end

  # Behaves like ActiveSupport's HashWithIndifferentAccess.
  class StringsOnly < Hash
    def transform_keys(*) = StringsOnly[to_h.transform_keys(&:to_s)]
    def merge(other) = StringsOnly[super.transform_keys(&:to_s)]
  end

  def test_a_hash_that_has_only_string_keys_is_accepted
    given = StringsOnly["bootstrap.servers" => "127.0.0.1:1", "log_level" => 3, "sasl.mechanism" => "PLAIN",
                        "security.protocol" => "sasl_ssl", "sasl.username" => "me", "sasl.password" => SECRET]
    kafka = with_kafka(given).config.kafka
    assert_instance_of Hash, kafka
    assert_equal [3, true], kafka.values_at(:log_level, :"enable.idempotence")
    refute_includes kafka.inspect, SECRET
    assert_match(/requires sasl\.password/, error_for(StringsOnly[given.except("sasl.password")]))
  end

  # behaviour: kafka
  def test_the_users_hash_is_neither_changed_nor_frozen
    kafka = { "bootstrap.servers": cluster.bootstrap_servers }
    config = with_kafka(kafka).config
    kafka["linger.ms"] = 5
    refute_predicate kafka, :frozen?
    refute_includes config.kafka, "linger.ms"
  end

  def test_the_block_may_return_anything
    assert_kind_of Penstock::Producer, producer { nil }
  end

  # ---- connecting ----

  def held = { files: Dir.children("/proc/self/fd").size, threads: Dir.children("/proc/self/task").size }

  # The block leaves no file or native thread open. The cluster may still accept a connection of an earlier test, and clients
  # of earlier tests may still be closing. So this compares with "at most as many as before", and waits.
  def assert_leaves_nothing_open
    before = held
    yield
    eventually(20, "#{before} became #{held}") { held.all? { |what, count| count <= before[what] } }
    assert_equal 0, Internal::ProducerClient.open_count
  end

  # behaviour: new, setup
  def test_new_opens_no_connection_and_starts_no_thread
    cluster
    producer # the first producer creates the poller of the process, which stays
    assert_leaves_nothing_open { 10.times { producer { |config| config.logger = Logger.new(nil) } } }
  end

  def assert_raises_at_connect(producer, pattern)
    try = -> { assert_raises(Penstock::ConfigurationInvalidError) { producer.produce_async(topic: "a", payload: "") } }
    3.times do
      error = try.call
      assert_match pattern, error.message
      assert_equal producer.id, error.producer_id
    end
    assert_leaves_nothing_open { 5.times { try.call } }
    refute_predicate producer, :closed?
    producer.close
  end

  def test_settings_that_librdkafka_rejects_at_connect_raise_at_each_use_and_leak_nothing
    file = { "security.protocol": "ssl", "ssl.ca.location": __FILE__, log_level: 0 }
    assert_raises_at_connect(producer(**file), /ssl\.ca\.location/)
    broken = "-----BEGIN CERTIFICATE-----"
    assert_raises_at_connect(producer("security.protocol": "ssl", "ssl.ca.pem": broken, log_level: 0), /ssl\.ca\.pem/)
  end

  def test_a_producer_that_could_not_connect_connects_once_the_file_is_fixed
    file = Tempfile.new("penstock-test").tap { |made| made.write("no certificate") }.tap(&:flush)
    one = producer("security.protocol": "ssl", "ssl.ca.location": file.path, log_level: 0)
    3.times { assert_raises(Penstock::ConfigurationInvalidError) { one.produce_async(topic: "a", payload: "") } }
    File.write(file.path, self_signed.to_pem)
    handle = one.produce_async(topic: "a", payload: "")
    assert_predicate handle, :pending?
    one.purge
    assert_raises(Penstock::DeliveryError) { handle.wait }
  ensure
    file&.close!
  end

  def self_signed
    key = OpenSSL::PKey::RSA.new(2_048)
    OpenSSL::X509::Certificate.new.tap do |made|
      made.version = 2
      made.serial = 1
      made.subject = made.issuer = OpenSSL::X509::Name.parse("/CN=penstock")
      made.public_key = key.public_key
      made.not_before = Time.now - 60
      made.not_after = Time.now + 3_600
      made.sign(key, OpenSSL::Digest.new("SHA256"))
    end
  end

  def test_a_failed_connection_leaves_no_dispatcher_thread
    producer = producer("security.protocol": "ssl", "ssl.ca.location": __FILE__, log_level: 0) do |config|
      config.logger = Logger.new(nil)
    end
    before = Thread.list
    assert_raises(Penstock::ConfigurationInvalidError) { producer.produce_async(topic: "a", payload: "") }
    producer.close
    eventually { (Thread.list - before).empty? }
  end
end

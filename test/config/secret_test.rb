# frozen_string_literal: true

require_relative "../test_helper"
require "json"
require "logger"
require "objspace"
require "pp"
require "yaml"

# Passwords, keys and tokens in settings, and the outputs that must not show them.
class SecretTest < PenstockTest
  VALUE = "hunter2-of-me"
  PEM = "-----BEGIN PRIVATE KEY-----\n#{VALUE}\n-----END PRIVATE KEY-----\n".freeze
  LOGIN = { "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": VALUE,
            "ssl.key.password": VALUE }.freeze
  WORDS = /pass|secret|token|pem|jaas/i
  # Contains none of the words in setting names, and only characters of tokens.
  ALSO_SECRET = %w[sasl.oauthbearer.config].freeze

  def secret = Penstock::Secret.new(VALUE)
  def kafka = @kafka ||= producer(**LOGIN).config.kafka

  # ---- texts that must not show it ----

  COPIES = {
    "itself" => :itself.to_proc, "except" => ->(h) { h.except(:"sasl.username") }, "select" => ->(h) { h.select { true } },
    "slice" => ->(h) { h.slice(:"sasl.password") }, "to_a" => :to_a.to_proc, "to_h" => ->(h) { h.to_h { |k, v| [k, v] } },
    "a splat" => ->(h) { { **h } }, "values" => :values.to_proc, "dup" => :dup.to_proc, "merge" => ->(h) { h.merge(a: 1) },
    "transform_keys" => ->(h) { h.transform_keys(&:to_s) }, "a filter" => ->(h) { h.filter_map { |_, v| v } },
    "an Array in a Hash" => ->(h) { { inside: [h] } },
    "override" => ->(h) { Penstock::Producer.const_get(:VariantChecks).override(h, acks: 1) },
    "compare_by_identity" => ->(h) { {}.compare_by_identity.merge!(h) }, "invert" => :invert.to_proc
  }.freeze

  COPIES.each do |name, copy|
    define_method("test_no_text_of_settings_copied_by_#{name.tr(" ", "_")}_shows_a_secret") do
      shown = copy.call(kafka)
      texts = [shown.inspect, shown.to_s, JSON.generate(shown), shown.to_json, shown.pretty_inspect, YAML.dump(shown),
               "#{shown}", format("%s %p", shown, shown)] # rubocop:disable Style/RedundantInterpolation
      texts.each do |text|
        refute_includes text, VALUE
        assert_includes text, "[hidden]"
      end
    end
  end

  def test_no_method_of_ruby_or_its_libraries_shows_a_secret
    one = secret
    error = assert_raises(NoMethodError) { one.reveal }
    texts = [one.inspect, one.to_s, one.as_json, one.to_json, one.to_yaml, one.pretty_inspect, [one].join, String(one),
             one.instance_variables.inspect, ObjectSpace.dump(one), error.message, error.full_message, [one].to_s,
             ObjectSpace.reachable_objects_from(one).inspect, one.method(:==).inspect]
    texts.each { |text| refute_includes text, VALUE }
    assert_empty one.instance_variables
    refute_respond_to one, :to_str
    assert_raises(TypeError) { "password: " + one } # rubocop:disable Style/StringConcatenation
    assert_raises(TypeError) { File.join("a", one) }
  end

  def test_marshal_raises_for_a_secret_and_for_settings_that_hold_one
    [secret, kafka, { a: [kafka] }].each do |object|
      error = assert_raises(TypeError) { Marshal.dump(object) }
      assert_match(/Penstock::Secret cannot be dumped/, error.message)
    end
  end

  ACTIVE_SUPPORT = <<~RUBY.freeze
    require "active_support/all"
    producer = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": "127.0.0.1:1", "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN",
                       "sasl.username": "me", "sasl.password": "#{VALUE}" }
    end
    kafka = producer.config.kafka
    puts kafka.as_json.inspect, kafka.to_query, kafka.to_json, kafka.deep_dup.inspect, kafka.to_param, kafka.with_indifferent_access.inspect,
         kafka.deep_stringify_keys.inspect, kafka[:"sasl.password"].blank?.inspect, ActiveSupport::JSON.encode(kafka),
         kafka[:"sasl.password"].instance_values.inspect
  RUBY

  def test_no_method_of_active_support_shows_a_secret
    skip "there is no activesupport" if Gem::Specification.find_all_by_name("activesupport").empty?

    output = ruby!(ACTIVE_SUPPORT)
    refute_includes output, VALUE
    assert_operator output.scan(/\[hidden\]|%5Bhidden%5D/).size, :>=, 8
  end

  # ---- uses ----

  def test_secrets_are_compared_by_their_values
    same = secret
    other = Penstock::Secret.new("another")
    assert_equal [true, true, true, false, false, false],
                 [same == secret, same == VALUE, same.eql?(secret), same == other, same == "#{VALUE}x", same.eql?(VALUE)]
    assert_equal({ same => 1 }, { secret => 1 })
    refute_equal same, nil
    assert_same same, same.dup
    assert_same same, same.clone(freeze: false)
    assert_equal kafka, producer(**LOGIN).config.kafka
    refute_predicate same, :empty?
  end

  def test_secrets_are_shareable_with_ractors
    assert Ractor.shareable?(secret)
    assert Ractor.shareable?(Ractor.make_shareable(kafka.except(:none)))
  end

  def test_secrets_are_made_only_of_strings_and_by_new
    assert_raises(TypeError) { Penstock::Secret.new(5) }
    assert_raises(TypeError) { Penstock::Secret.allocate }
  end

  # test/integration/security_test.rb shows that the producer logs in with them.
  def test_another_producer_or_consumer_accepts_a_producers_settings
    first = kafka
    assert_instance_of Penstock::Secret, first[:"sasl.password"]
    second = Penstock::Producer.new { |config| config.kafka = first }
    assert_equal first, second.config.kafka
    consumer = Penstock::Consumer.new { |config| config.kafka = first.slice(*LOGIN.keys, :"bootstrap.servers") }
    assert_equal first[:"sasl.password"], consumer.config.kafka[:"sasl.password"]
  ensure
    second&.close
    consumer&.close
  end

  def test_settings_with_aliases_of_default_settings_can_be_reused
    first = producer("delivery.timeout.ms": 5_000, "request.timeout.ms": 100, "queue.buffering.max.ms": 3).config.kafka
    assert_equal [5_000, nil], first.values_at(:"delivery.timeout.ms", :"message.timeout.ms")
    second = Penstock::Producer.new { |config| config.kafka = first }
    assert_equal first, second.config.kafka
  ensure
    second&.close
  end

  def test_set_credentials_accepts_a_secret
    one = producer(**LOGIN)
    assert_nil one.set_credentials("me", secret)
    assert_raises(Penstock::ConfigurationInvalidError) { one.set_credentials("me", Penstock::Secret.new("")) }
    refute_includes Internal.inspected(one).join, VALUE
  end

  # ---- which settings ----

  def test_every_setting_with_a_secret_sounding_name_is_secret
    names = Internal::ProducerClient.setting_names.uniq
    expected = names.grep(WORDS) | (names & ALSO_SECRET)
    assert_equal expected.sort, names.select { |name| Internal::Settings.secret?(name) }.sort
    assert_operator expected.size, :>, 8
    assert Internal::Settings.secret?(:"sasl.oauthbearer.token.endpoint.url"), "it may have a password or a key in it"
  end

  # Each in turn, with values that librdkafka accepts or rejects.
  def test_values_of_secret_settings_are_in_no_error_and_no_text_of_the_settings
    Internal::ProducerClient.setting_names.uniq.select { |name| Internal::Settings.secret?(name) }.each do |name|
      texts = ["#{VALUE}\0", [VALUE], VALUE.to_sym, VALUE, VALUE.encode("UTF-16LE"), "#{VALUE}\xff", PEM].map do |value|
        Internal::Settings.read(name, value) if value.is_a?(String) && Internal::Settings.text?(value)
        made = producer(name => value, "security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-256", log_level: 0)
        made.config.kafka.inspect + made.inspect
      rescue Penstock::ConfigurationInvalidError => e
        e.full_message
      end
      texts.each { |text| refute_includes text, VALUE, name }
    end
  end

  thorough slow def test_a_key_given_as_any_other_setting_is_in_no_error
    Internal::ProducerClient.setting_names.uniq.each do |name|
      error = assert_raises(Penstock::ConfigurationInvalidError, name) do
        tls = { "security.protocol": "ssl" } if name.match?(/\A(ssl|https)\./)
        made = producer(servers: "127.0.0.1:1", name => PEM, **tls.to_h, log_level: 0) do |config|
          config.logger = Logger.new(nil)
        end
        made.produce_async(topic: "a", payload: "") if tls
        raise Penstock::ConfigurationInvalidError, made.config.kafka.inspect # librdkafka accepts it
      end
      refute_includes error.full_message, VALUE, name
      refute_includes error.full_message, "-----BEGIN PRIVATE", name
    end
  end

  def test_a_key_given_as_a_name_or_as_penstocks_own_setting_is_in_no_error
    attempts = [-> { producer(PEM => 1) }, -> { producer("#{PEM}\0" => 1) }, -> { producer { |c| c.close_timeout = PEM } },
                -> { producer { |c| c.logger = PEM } }, -> { producer { |c| c.on_queue_full = PEM } },
                -> { producer { |c| c.id = "#{PEM}\0" } }, -> { producer { |c| c.monitor = { key: PEM } } }]
    attempts.each do |attempt|
      error = assert_raises(Penstock::ConfigurationInvalidError, &attempt)
      refute_includes error.full_message, VALUE
    end
  end

  def test_the_error_for_a_key_given_as_a_file_names_the_right_setting
    tls = { "security.protocol": "ssl", "ssl.certificate.location": __FILE__ }
    error = assert_raises(Penstock::ConfigurationInvalidError) { producer(**tls, "ssl.key.location": PEM) }
    assert_match(/ssl\.key\.location.* the name of a file.*ssl\.key\.pem/, error.message)
    more = { "ssl.key.location": __FILE__, "ssl.keystore.password": "x" }
    body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7#{VALUE}" # a key that lost its first and last lines
    %i[ssl.key.location ssl.keystore.location ssl.ca.location ssl.crl.location].each do |name|
      [body, "/#{body}", "#{__dir__}/#{body}"].each do |file|
        error = assert_raises(Penstock::ConfigurationInvalidError) { producer(**tls, **more, name => file) }
        assert_match(/#{Regexp.escape(name)}: there is no such file/, error.message)
        refute_includes error.message, VALUE
      end
    end
    assert_includes error.message, __dir__, "the existing part of the path"
  end

  # ---- what librdkafka and brokers quote ----

  OAUTH = { "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": true }.freeze

  OIDC = {
    "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": VALUE,
    "sasl.oauthbearer.token.endpoint.url": "http://me:#{VALUE}@127.0.0.1:1/?key=#{VALUE}"
  }.freeze

  def oidc? = Internal::Settings.read("sasl.oauthbearer.method", "oidc")

  # Everything that was logged and raised while a message failed.
  def output_of(**settings)
    log = StringIO.new
    one = producer(servers: "127.0.0.1:1", debug: "all", log_level: 7, "message.timeout.ms": 1_000,
                   "transaction.timeout.ms": 5_000, **settings) do |config|
      config.logger = Logger.new(log)
      config.rejection_timeout = 100
    end
    errors = Queue.new
    one.monitor.subscribe("error.occurred") { |event| errors << event.payload.inspect << event[:error].full_message }
    error = assert_raises(Penstock::Error) { one.produce_sync(topic: "a", payload: "x") }
    one.close(timeout: 0)
    [log.string, error.full_message, *Array.new(errors.size) { errors.pop }].join("\n")
  end

  def test_secret_settings_that_librdkafka_quotes_are_removed_from_log_lines_and_errors
    text = output_of(**OAUTH, "sasl.oauthbearer.config": "principal=me #{VALUE}=x more=#{VALUE}")
    assert_match(/Unrecognized sasl\.oauthbearer\.config beginning at: \*\*\*/, text)
    refute_includes text, VALUE
  end

  # A password given as another setting's value: the error names the setting, and its valid values.
  MISPLACED = {
    "security.protocol": /security\.protocol: the value is not valid; librdkafka accepts plaintext, ssl, sasl_plaintext,/,
    debug: /debug: the value is not valid; librdkafka accepts generic,/, partitioner: /partitioner: the value is not valid/,
    "sasl.mechanism": /sasl\.mechanism is .*: set it to one of PLAIN,/, acks: /acks/,
    "linger.ms": /linger\.ms/, "plugin.library.paths": /plugin\.library\.paths/, "compression.codec": /none, gzip/,
    "partition.assignment.strategy": /range, roundrobin/, "enable.idempotence": /true or false/
  }.freeze

  def test_a_password_given_as_another_setting_is_in_no_error
    MISPLACED.each do |name, expected|
      [VALUE, "7#{VALUE}", "broker,#{VALUE}"].each do |value|
        sasl = name == :"sasl.mechanism" ? { "security.protocol": "sasl_plaintext" } : {}
        settings = { servers: "127.0.0.1:1", **sasl, name => value }
        error = assert_raises(Penstock::ConfigurationInvalidError) { producer(**settings) }
        refute_includes error.full_message, VALUE
        assert_match(expected, error.message)
      end
    end
    %i[logger on_queue_full close_timeout serializer monitor client_class middleware].each do |name|
      error = assert_raises(Penstock::ConfigurationInvalidError) { producer { |config| config.public_send(:"#{name}=", VALUE) } }
      refute_includes error.full_message, VALUE
      assert_match(/config\.#{name} must be .*, not a value of the class String/, error.message)
    end
  end

  def test_an_error_about_a_value_names_the_nearest_one
    error = assert_raises(Penstock::ConfigurationInvalidError) { producer("security.protocol": "sasl-ssl") }
    assert_match(/librdkafka accepts .*\(did you mean "sasl_ssl"\?\)/, error.message)
  end

  # A broker's text may quote the client's credentials.
  def test_a_secret_in_the_text_of_a_fatal_error_is_removed
    one = producer(servers: "127.0.0.1:1", log_level: 0, **LOGIN.except(:"ssl.key.password"), "transactional.id": "secret")
    client = native_client(one)
    client.connect
    client.test_fatal_error(:producer_fenced, "rejected #{VALUE}")
    calls = [-> { client.begin_transaction }, -> { client.produce({ topic: "a", payload: "x" }) }]
    errors = [client.fatal_error, *calls.map { |call| assert_raises(Penstock::Error, &call) }]
    assert(errors.first(2).all? { |error| error.message.include?("rejected ***") }, errors.inspect)
    errors.each { |error| refute_includes error.full_message, VALUE }
  end

  # Lines that librdkafka prints itself. Only its OIDC code quotes a secret there, and some builds lack OIDC.
  slow def test_without_a_logger_secrets_are_removed_from_lines_on_stderr
    tokens = oidc? ? OIDC : { **OAUTH, "sasl.oauthbearer.config": "principal=me #{VALUE}=x" }
    _, errors = capture_subprocess_io do
      one = producer(servers: "127.0.0.1:1", log_level: 7, debug: "conf", **tokens) { |config| config.rejection_timeout = 100 }
      assert_raises(Penstock::Error) { one.produce_sync(topic: "a", payload: "x") }
      one.close(timeout: 0)
    end
    assert_match(/^penstock: \[\S+\] CONF: .*security\.protocol = sasl_plaintext/, errors)
    refute_includes errors, VALUE
  end

  def test_the_url_of_a_token_endpoint_is_removed_because_it_may_have_secrets
    skip "this librdkafka has no OIDC" unless oidc?

    text = output_of(**OIDC)
    assert_match(/Failed to retrieve OIDC token from "\*\*\*"/, text)
    refute_includes text, VALUE
  end
end

# frozen_string_literal: true

require "openssl"
require "socket"
require_relative "../test_helper"
require_relative "../support/secure_kafka"
require_relative "../support/kafka_topics"

# On a real Kafka with TLS, SASL and ACLs.
class SecurityTest < PenstockTest
  include SecureKafka
  include KafkaTopics

  thorough(/\Atest_(?!a_wrong_password_)\w+_also_raises_in_a_consumers_poll\z/)

  NEW_SCRAM = (Penstock.librdkafka_version.split(".").map(&:to_i) <=> [2, 6, 1]) >= 0

  # A port's first handshake may take seconds on a busy machine, because Java loads what it needs for it.
  def self.shake_hands
    @shake_hands ||= [SSL, MTLS, STRANGER, SASL_SSL].each do |address|
      host, port = address.split(":")
      OpenSSL::SSL::SSLSocket.new(TCPSocket.new(host, Integer(port)), OpenSSL::SSL::SSLContext.new).tap(&:connect).close
    rescue OpenSSL::SSL::SSLError, SystemCallError
      nil # it wants a certificate
    end
  end

  def setup
    super
    self.class.shake_hands
  end

  # Without rejection_timeout messages would wait for message.timeout.ms (150 s). The timeout allows for slow TLS handshakes on a
  # busy machine.
  def impatient(servers, **settings)
    producer(servers:, log_level: 0, **settings) { |config| config.rejection_timeout = 1_500 }
  end

  # It exists: librdkafka would ask a second time for a topic that a broker makes at the first request, a second later.
  def new_topic = create_topic(partitions: 4)

  def deliver(servers, **settings)
    report = producer(servers:, **settings).produce_sync(topic: new_topic, payload: "x")
    assert_predicate report, :persisted?
  end

  # ---- accepted clients ----

  def test_tls_works_with_an_authority_from_a_file = deliver(SSL, **TLS)

  def test_tls_works_with_pem_strings
    deliver(MTLS, "security.protocol": "ssl", "ssl.ca.pem": File.read(CA), "ssl.certificate.pem": File.read(CERT),
                  "ssl.key.pem": File.read(KEY))
  end

  def test_tls_works_with_a_client_certificate_from_files
    deliver(MTLS, **TLS, "ssl.certificate.location": CERT, "ssl.key.location": KEY)
  end

  def test_sasl_plain_works_with_and_without_tls = [deliver(SASL_SSL, **TLS_LOGIN), deliver(SASL, **LOGIN)]

  %w[SCRAM-SHA-256 SCRAM-SHA-512].each do |mechanism|
    define_method("test_#{mechanism.downcase.tr("-", "_")}_works_or_raises_that_librdkafka_is_too_old") do
      next deliver(SASL_SSL, **TLS_LOGIN, "sasl.mechanism": mechanism) if NEW_SCRAM

      error = rejection_of(Penstock::AuthenticationError, SASL_SSL, **TLS_LOGIN, "sasl.mechanism": mechanism)
      assert_match(/librdkafka older than 2\.6\.1/, error.message)
    end
  end

  # A lost wake-up shows after an idle time: the TLS library may have buffered data by then, so no descriptor becomes readable.
  # Longer gaps: PENSTOCK_IDLE_GAPS=1,10,60
  # defect 17
  thorough def test_messages_after_idle_times_over_tls_and_sasl_are_delivered_soon
    one = producer(servers: SASL_SSL, "linger.ms": 0, **TLS_LOGIN)
    name = new_topic
    one.produce_sync(topic: name, payload: "x")
    seconds = ENV.fetch("PENSTOCK_IDLE_GAPS", "1,3").split(",").map do |gap|
      sleep Float(gap)
      seconds_of { one.produce_sync(topic: name, payload: "x") }
    end
    assert_took(1, seconds.max, seconds.inspect)
    assert_equal 0, one.poller.stats[:missed_wakeups]
  end

  def test_a_wrong_host_name_is_accepted_if_host_names_are_not_checked
    deliver(STRANGER, **TLS, "ssl.endpoint.identification.algorithm": "none")
  end

  def test_the_settings_of_a_producer_work_for_another_producer_and_a_consumer
    first = producer(servers: SASL_SSL, **TLS_LOGIN).config.kafka
    second = Penstock::Producer.new { |config| config.kafka = first }.tap { |made| @producers << made }
    topic = new_topic
    assert_predicate second.produce_sync(topic:, payload: "x", partition: 0), :persisted?
    one = consumer(SASL_SSL, **first.slice(*TLS_LOGIN.keys)).assign(topic => { 0 => :beginning })
    read(one, topic)
    third = producer(servers: SASL_SSL, **TLS_LOGIN, "sasl.password": "wrong-secret")
    third.set_credentials(USER, first[:"sasl.password"])
    assert_predicate third.produce_sync(topic:, payload: "x"), :persisted?
  end

  # ---- rejected clients: name of the test => [error, servers, settings, pattern of the message] ----

  REJECTED = {
    "an_authority_that_did_not_sign_the_certificate" =>
      [Penstock::TlsError, SSL, { "security.protocol": "ssl" }, /authority that is not known here.*ssl\.ca\.location/m],
    "a_certificate_for_another_host" =>
      [Penstock::TlsError, STRANGER, TLS, /another (host name|IP address).*bootstrap\.servers/m],
    "no_client_certificate" => [Penstock::TlsError, MTLS, TLS, /requires a client certificate.*ssl\.certificate\.location/m],
    "a_wrong_password" =>
      [Penstock::AuthenticationError, SASL, { **LOGIN, "sasl.password": "wrong-secret" }, /Invalid username.*sasl\.password/m],
    "a_wrong_user" =>
      [Penstock::AuthenticationError, SASL_SSL, { **TLS_LOGIN, "sasl.username": "unknown" }, /sasl\.username/],
    "a_wrong_password_of_scram" =>
      [Penstock::AuthenticationError, SASL, { **LOGIN, "sasl.mechanism": "SCRAM-SHA-256", "sasl.password": "wrong-secret" },
       /SCRAM-SHA-256.*sasl\.password/m],
    "sasl_on_a_port_without_sasl" => [Penstock::AuthenticationError, PLAINTEXT, LOGIN, /does not use SASL.*security\.protocol/m],
    "no_tls_on_a_tls_port" => [Penstock::SecurityProtocolError, SSL, {}, /may require TLS.*security\.protocol/m],
    "tls_on_a_port_without_tls" => # newer versions of librdkafka report less
      [NEW_SCRAM ? Penstock::SecurityProtocolError : Penstock::TlsError, PLAINTEXT, TLS, /The port may.*security\.protocol/m],
    "no_sasl_on_a_sasl_port" => [Penstock::SecurityProtocolError, SASL, {}, /may require (TLS or )?SASL.*security\.protocol/m]
  }.freeze

  REJECTED.each do |cause, (error_class, servers, settings, message)|
    define_method("test_#{cause}_raises_in_time_with_what_to_check") do
      assert_match message, rejection_of(error_class, servers, **settings).message
    end
  end

  def rejection_of(error_class, servers, **settings)
    one = impatient(servers, **settings)
    error = nil
    took = seconds_of { error = assert_raises(error_class) { one.produce_sync(topic: "rejected", payload: "x") } }
    assert_took(10, took)
    assert_predicate error, :retriable?, "the message is certainly not in the topic"
    refute_match(/secret/, error.full_message)
    error
  end

  thorough def test_every_call_that_waits_for_brokers_raises_the_rejection
    settings = { **LOGIN, "sasl.password": "wrong-secret" }
    one = impatient(SASL, **settings)
    handles = one.produce_many_async(Array.new(3) { { topic: "rejected", payload: "x" } })
    assert_raises(Penstock::AuthenticationError) { one.flush(timeout: 20) }
    handles.each { |handle| assert_raises(Penstock::AuthenticationError) { handle.wait } }
    assert_raises(Penstock::AuthenticationError) { one.partition_count("rejected") }
    assert_raises(Penstock::ProduceManyError) { one.produce_many_sync([{ topic: "rejected", payload: "x" }] * 2) }

    transactional = impatient(SASL, **settings, "transactional.id": new_topic)
    took = seconds_of { assert_raises(Penstock::AuthenticationError) { transactional.transaction { nil } } }
    assert_took(15, took)
  end

  def test_a_rejected_producer_works_once_its_credentials_are_corrected
    one = impatient(SASL, **LOGIN, "sasl.password": "wrong-secret")
    assert_raises(Penstock::AuthenticationError) { one.produce_sync(topic: "rejected", payload: "x") }
    one.set_credentials(USER, PASSWORD)
    assert_predicate one.produce_sync(topic: new_topic, payload: "x"), :persisted?
  end

  # The sweep runs too rarely to find a missed event.
  # behaviour: A batch after an idle time is as fast as any other
  def test_delivery_results_after_an_idle_time_over_sasl_arrive_without_the_sweep
    name = new_topic
    one = producer(servers: SASL, **LOGIN) { |config| config.polling.fd.periodic_poll_interval = 600_000 }
    3.times do
      assert one.produce_many_sync(Array.new(20) { { topic: name, payload: "x" } }).all?(&:delivered?)
      sleep 0.5 # the idle time
    end
    assert_equal 0, Penstock::Poller.instance.stats[:missed_wakeups]
  end

  # ---- OAUTHBEARER ----

  # Provides tokens without a signature, which the Kafka of the tests accepts.
  class Provider
    attr_reader :events

    def initialize(lifetime: 3600, &instead)
      @events = Queue.new
      @lifetime = lifetime
      @instead = instead
    end

    def on_oauthbearer_token_refresh(event)
      @events << [event, Thread.current]
      return @instead.call(event) if @instead

      now = Time.now.to_i
      token = [{ alg: "none" }, { sub: SecureKafka::USER, iat: now, exp: now + @lifetime }].map { |part| encode(part) }.join(".")
      event[:bearer].oauthbearer_set_token(token: "#{token}.", lifetime_ms: (now + @lifetime) * 1000,
                                           principal_name: SecureKafka::USER)
    end

    private

    def encode(part) = [JSON.generate(part)].pack("m0").tr("+/", "-_").delete("=")
  end

  OAUTH = { "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER" }.freeze

  def oauth_producer(provider, **settings)
    producer(servers: SASL, log_level: 0, **OAUTH, **settings) do |config|
      config.oauth.token_provider_listener = provider
      config.rejection_timeout = 1_000
      yield config if block_given?
    end
  end

  # behaviour: oauth.token_provider_listener
  # behaviour: oauthbearer.token_refresh
  # behaviour: The producer that needs a token asks for it
  def test_a_token_is_requested_before_the_first_connection_on_a_separate_thread
    provider = Provider.new
    one = oauth_producer(provider)
    published = Queue.new
    one.monitor.subscribe("oauthbearer.token_refresh") { |event| published << event }
    assert_predicate one.produce_sync(topic: new_topic, payload: "x"), :persisted?
    event, thread = provider.events.pop
    assert_equal ["penstock.tokens", one.id, %i[producer_id bearer caller]],
                 [thread.name, event[:producer_id], event.payload.keys]
    assert_equal event.payload, published.pop.payload
    one.close
    assert Slowness.join(thread, 5), "the thread did not end with its producer"
  end

  def test_a_producer_closed_at_once_still_gets_its_token_and_delivers
    one = oauth_producer(Provider.new { |event| sleep(0.3) && Provider.new.on_oauthbearer_token_refresh(event) })
    handle = one.produce_async(topic: new_topic, payload: "x")
    assert_predicate one.close(timeout: 10), :complete?
    assert_predicate handle.wait, :persisted?
  end

  # behaviour: oauth.token_provider_listener
  thorough def test_tokens_are_refreshed_before_they_expire
    provider = Provider.new(lifetime: 3)
    one = oauth_producer(provider)
    one.produce_sync(topic: new_topic, payload: "x")
    eventually(10) { provider.events.size >= 3 }
  end

  def test_a_raising_token_provider_is_published_and_logged_and_messages_fail_in_time
    log = StringIO.new
    one = oauth_producer(Provider.new { raise "secret reason" }) { |config| config.logger = Logger.new(log) }
    errors = Queue.new
    one.monitor.subscribe("error.occurred") { |event| errors << event }
    error = assert_raises(Penstock::AuthenticationError) { one.produce_sync(topic: new_topic, payload: "x") }
    assert_match(/raised RuntimeError.*token_provider_listener/m, error.message)
    event = errors.pop
    assert_equal ["callbacks.oauthbearer_token_refresh.error", "secret reason", one.id],
                 [event[:type], event[:error].message, event[:producer_id]]
    eventually { log.string.match?(/ERROR.*#{one.id}.*RuntimeError at #{Regexp.escape(__FILE__)}/) }
    refute_match(/secret reason/, log.string + error.full_message)
  end

  def test_a_missing_failed_or_expired_token_is_an_error_with_the_reason
    answers = {
      /gave no token/ => ->(_) {},
      /the vault is closed/ => ->(event) { event[:bearer].oauthbearer_set_token_failure("the vault is closed") },
      /not accepted: it expired at 1970-01-01.*lifetime/ => lambda { |event|
        event[:bearer].oauthbearer_set_token(token: "secret", lifetime_ms: 1, principal_name: "x")
      }
    }
    answers.each do |message, answer|
      one = oauth_producer(Provider.new(&answer))
      error = assert_raises(Penstock::AuthenticationError) { one.produce_sync(topic: new_topic, payload: "x") }
      assert_match message, error.message
      refute_match(/secret/, error.message)
    end
  end

  def test_no_log_line_contains_a_token_or_password_at_any_debug_level
    log = StringIO.new
    token = nil
    provider = Provider.new do |event|
      bearer = event[:bearer]
      bearer.define_singleton_method(:oauthbearer_set_token) { |**given| super(**given).tap { token = given[:token] } }
      Provider.new.on_oauthbearer_token_refresh(event)
    end
    one = oauth_producer(provider, log_level: 7, debug: "all") { |config| config.logger = Logger.new(log) }
    other = producer(servers: SASL, log_level: 7, debug: "all", **LOGIN) { |config| config.logger = Logger.new(log) }
    [one, other].each do |each|
      each.produce_sync(topic: new_topic, payload: "x")
      each.close
    end
    eventually { log.string.include?("OAUTHBEARER") && log.string.include?("PLAIN") }
    refute_includes log.string, token
    refute_includes log.string, PASSWORD
  end

  # behaviour: The producer that needs a token asks for it
  def test_a_fork_child_requests_a_token_of_its_own
    provider = Provider.new
    one = oauth_producer(provider)
    one.produce_sync(topic: new_topic, payload: "x")
    child = fork do
      one.produce_sync(topic: new_topic, payload: "x")
      exit!(provider.events.size == 2 ? 0 : 1)
    end
    assert_predicate Process.wait2(child).last, :success?
  end

  # ---- consumers ----

  def teardown
    @consumers&.each { |one| one.close(timeout: 5) }
    @consumers = nil
    super
  end

  def consumer(servers, **settings)
    made = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": servers, "auto.offset.reset": "earliest", log_level: 0, **settings }
      config.rejection_timeout = 500
      yield config if block_given?
    end
    made.tap { |one| (@consumers ||= []) << one }
  end

  # @return [String] a topic with one message
  def written
    new_topic.tap { |topic| producer(servers: PLAINTEXT).produce_sync(topic:, payload: "x", partition: 0) }
  end

  def read(one, topic)
    eventually(20) { one.poll(timeout: 0.2) }.tap { |message| assert_equal [topic, "x"], [message.topic, message.payload] }
  end

  REJECTED.each do |cause, (error_class, servers, settings, message)|
    define_method("test_#{cause}_also_raises_in_a_consumers_poll") do
      one = consumer(servers, **settings).assign("rejected" => [0])
      error = nil
      took = seconds_of { error = assert_raises(error_class) { one.poll(timeout: 60) } }
      assert_took(10, took)
      assert_match message, error.message
      refute_match(/secret/, error.full_message)
    end
  end

  def test_a_rejected_consumer_works_once_its_credentials_are_corrected
    topic = written
    one = consumer(SASL, **LOGIN, "sasl.password": "wrong-secret", "group.id": topic).subscribe(topic)
    assert_raises(Penstock::AuthenticationError) { one.poll(timeout: 60) }
    assert_raises(Penstock::AuthenticationError) { one.commit({ topic => { 0 => 0 } }, timeout: 60) }
    assert_raises(Penstock::AuthenticationError) { one.watermarks(topic, 0, timeout: 60) }
    one.set_credentials(USER, PASSWORD)
    read(one, topic)
    assert one.commit
  end

  def test_a_consumers_credentials_can_be_changed_before_its_first_use
    topic = written
    one = consumer(SASL, **LOGIN, "sasl.password": "wrong-secret")
    one.set_credentials(USER, PASSWORD)
    read(one.assign(topic => { 0 => :beginning }), topic)
  end

  def oauth_consumer(provider, **settings)
    consumer(SASL, **OAUTH, **settings) { |config| config.oauth.token_provider_listener = provider }
  end

  def test_a_consumer_requests_a_token_on_a_separate_thread_and_leaves_its_group_with_it
    topic = written
    provider = Provider.new
    one = oauth_consumer(provider, "group.id": topic).subscribe(topic)
    read(one, topic)
    event, thread = provider.events.pop
    assert_equal ["penstock.tokens", one.id], [thread.name, event[:consumer_id]]
    assert_predicate one.close(timeout: 10), :complete?
    assert Slowness.join(thread, 5), "the thread did not end with its consumer"
  end

  thorough def test_a_consumers_tokens_are_refreshed_before_they_expire_even_if_no_thread_polls
    topic = written
    provider = Provider.new(lifetime: 3)
    one = oauth_consumer(provider)
    read(one.assign(topic => { 0 => :beginning }), topic)
    eventually(10) { provider.events.size >= 3 }
  end

  def test_poll_raises_the_failure_of_a_consumers_token_provider_in_time
    one = oauth_consumer(Provider.new { |event| event[:bearer].oauthbearer_set_token_failure("the vault is closed") })
    error = assert_raises(Penstock::AuthenticationError) { one.assign("rejected" => [0]).poll(timeout: 60) }
    assert_match(/the vault is closed.*token_provider_listener/m, error.message)
  end

  def test_a_consumer_first_used_in_a_fork_child_requests_a_token_there
    topic = written
    provider = Provider.new
    one = oauth_consumer(provider)
    child = fork do
      read(one.assign(topic => { 0 => :beginning }), topic)
      exit!(provider.events.size == 1 && one.close(timeout: 5).complete? ? 0 : 1)
    end
    assert_predicate Process.wait2(child).last, :success?
    assert_predicate provider.events, :empty?
  end

  # ---- rotation ----

  def test_credentials_can_be_changed_without_a_restart_including_later_clients
    one = producer(servers: SASL, **LOGIN, "sasl.password": "wrong-secret")
    one.set_credentials(USER, PASSWORD)
    assert_predicate one.produce_sync(topic: new_topic, payload: "x"), :persisted?
    one.disconnect
    assert_predicate one.produce_sync(topic: new_topic, payload: "x"), :persisted?
    assert_raises(Penstock::ConfigurationInvalidError) { one.set_credentials("", "x") }
    assert_raises(Penstock::ConfigurationInvalidError) { oauth_producer(Provider.new).set_credentials("a", "b") }
  end

  # ---- the documentation ----

  REAL = { "tls.example:9093" => SSL, "mtls.example:9093" => MTLS, "sasl.example:9093" => SASL_SSL, "token.example:9092" => SASL,
           "/etc/kafka/ca.pem" => CA, '"me"' => USER.inspect }.freeze

  SNIPPETS = File.read(File.expand_path("../../docs/security.md", __dir__)).scan(/^```ruby\n(.*?)^```/m).flatten.freeze

  SNIPPETS.each_with_index do |snippet, i|
    define_method("test_snippet_#{i + 1}_of_the_page_about_security_delivers") do
      { "KAFKA_CA" => CA, "KAFKA_CERTIFICATE" => CERT, "KAFKA_KEY" => KEY }.each { |name, file| ENV[name] = File.read(file) }
      ENV["KAFKA_PASSWORD"] = PASSWORD
      if snippet["consumer ="]
        reading = "consumer.assign(topic => { 0 => :beginning }).poll(timeout: 20) or abort('no message was read')"
      end
      output = ruby!(<<~RUBY)
        require "json"
        #{snippet.gsub(Regexp.union(REAL.keys), REAL)}
        topic = "#{new_topic}"
        puts producer.produce_sync(topic:, payload: "x", partition: 0).persisted?
        #{reading}
      RUBY
      assert_equal "true\n", output
    end
  end

  # ---- ACLs ----

  def test_a_topic_without_write_permission_raises_in_time_with_the_reason
    name = "read-only-#{SecureRandom.hex(6)}"
    producer(servers: PLAINTEXT).produce_sync(topic: name, payload: "creates the topic")
    denied(name)
  end

  def test_a_topic_without_describe_permission_raises_in_time_with_the_reason = denied("hidden-#{SecureRandom.hex(6)}")

  def denied(topic)
    one = producer(servers: SASL, log_level: 0, **AS_GUEST)
    error = nil
    took = seconds_of { error = assert_raises(Penstock::DeliveryError) { one.produce_sync(topic:, payload: "x") } }
    assert_equal :topic_authorization_failed, error.code
    assert_match(/Grant this client the right to write to the topic/, error.message)
    assert_took(10, took)
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require "openssl"
require "socket"

# Brokers that reject a client, as far as tests without a real Kafka show it. The rest is in integration/security_test.rb.
class RejectionTest < PenstockTest
  # Accepts connections and closes them without an answer, like a port that expects TLS.
  def with_a_port_that_hangs_up
    server = TCPServer.new("127.0.0.1", 0)
    thread = Thread.new do
      loop { server.accept.tap { |socket| socket.readpartial(100) }.close }
    rescue IOError, SystemCallError
      retry unless server.closed?
    end
    yield "127.0.0.1:#{server.local_address.ip_port}"
  ensure
    server.close
    thread.join
  end

  def rejected_producer(servers, timeout: 100, **kafka)
    producer(servers:, log_level: 0, **kafka) do |config|
      config.rejection_timeout = timeout
      config.polling.fd.periodic_poll_interval = 100
      yield config if block_given?
    end
  end

  slow def test_later_messages_of_a_rejected_producer_fail_sooner
    with_a_port_that_hangs_up do |servers|
      one = rejected_producer(servers)
      3.times do
        took = seconds_of do
          assert_raises(Penstock::SecurityProtocolError) { one.produce_sync(topic: "rejected", payload: "x") }
        end
        assert_took(GCLevel.slow? ? 30 : 5, took)
      end
    end
  end

  # The system accepts the connections of a process that is stopped. librdkafka ends them, as no answer comes.
  slow def test_a_broker_that_does_not_answer_rejects_nobody
    server = TCPServer.new("127.0.0.1", 0)
    kafka = { "api.version.request.timeout.ms": 200, "reconnect.backoff.max.ms": 100, "message.timeout.ms": 2_000 }
    one = rejected_producer("127.0.0.1:#{server.local_address.ip_port}", **kafka)
    error = assert_raises(Penstock::DeliveryError) { one.produce_sync(topic: "frozen", payload: "x") }
    assert_equal [false, :msg_timed_out], [error.is_a?(Penstock::BrokerRejectedError), error.code], error.message
  ensure
    server.close
  end

  def test_a_port_that_closes_during_the_tls_handshake_counts_as_a_rejection
    with_a_port_that_hangs_up do |servers|
      one = rejected_producer(servers, "security.protocol": "ssl")
      error = assert_raises(Penstock::BrokerRejectedError) { one.produce_sync(topic: "rejected", payload: "x") }
      assert_match(/may speak another protocol, without TLS/, error.message)
    end
  end

  # Before the client gives up: the messages say no more than that they were purged, unless the problem is added.
  def test_messages_that_are_purged_while_no_connection_works_name_the_problem
    with_a_port_that_hangs_up do |servers|
      %i[purge close].each do |how|
        one = rejected_producer(servers, timeout: 60_000, "security.protocol": "ssl")
        known = Queue.new
        one.monitor.subscribe("error.occurred") { |event| known << event if event[:type] == "librdkafka.error" }
        handle = one.produce_async(topic: "rejected", payload: "x")
        known.pop
        how == :close ? one.close(timeout: 0) : one.purge
        error = assert_raises(Penstock::DeliveryError) { handle.wait }
        assert_equal :purge_queue, error.code
        assert_match(/no connection works; last problem: ssl.*may speak another protocol, without TLS.*Send it again/i,
                     error.message)
      end
    end
  end

  def test_messages_that_are_purged_while_a_connection_works_name_no_problem
    one = producer("linger.ms": 60_000)
    one.partition_count(topic = self.topic) # connects
    handle = one.produce_async(topic:, payload: "x")
    one.purge
    refute_match(/last problem|no connection/, assert_raises(Penstock::DeliveryError) { handle.wait }.message)
  end

  # For example a port that takes a TLS handshake for the beginning of a long request. librdkafka waits for an answer for
  # socket.connection.setup.timeout.ms, 30 seconds.
  def with_a_port_that_says_nothing
    server = TCPServer.new("127.0.0.1", 0) # the system accepts the connections
    yield "127.0.0.1:#{server.local_address.ip_port}"
  ensure
    server.close
  end

  slow def test_a_port_that_leaves_the_tls_handshake_unanswered_counts_as_a_rejection
    with_a_port_that_says_nothing do |servers|
      one = rejected_producer(servers, "security.protocol": "ssl")
      2.times do
        start = now
        error = assert_raises(Penstock::SecurityProtocolError) { one.produce_sync(topic: "rejected", payload: "x") }
        assert_took(GCLevel.slow? ? 25 : 8, now - start)
        assert_match(/no answer to the TLS handshake.*may speak another protocol, without TLS/, error.message)
      end
    end
  end

  slow def test_a_slow_answer_to_the_tls_handshake_is_no_rejection
    with_a_port_that_says_nothing do |servers|
      one = rejected_producer(servers, timeout: 60_000, "security.protocol": "ssl")
      handle = one.produce_async(topic: "rejected", payload: "x")
      assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 1_500) }
      one.close(timeout: 0)
    end
  end

  # librdkafka 2.14 reports such a port only in its log, together with the error that all brokers are down.
  slow def test_an_unused_port_is_no_rejection_however_librdkafka_reports_it
    one = rejected_producer("127.0.0.1:1", "security.protocol": "ssl")
    handle = one.produce_async(topic: "rejected", payload: "x")
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 2_500) }
    one.close(timeout: 0)
  end

  # Like localhost without a listener on ::1.
  # defect 27
  slow def test_an_unused_address_does_not_hide_a_brokers_rejection
    with_a_port_that_hangs_up do |servers|
      one = rejected_producer("127.0.0.1:1,#{servers}", timeout: 2_000)
      took = seconds_of { assert_raises(Penstock::SecurityProtocolError) { one.produce_sync(topic: "rejected", payload: "x") } }
      assert_took(GCLevel.slow? ? 60 : 15, took)
    end
  end

  thorough slow def test_a_broker_that_hung_up_and_then_went_away_does_not_count_as_rejecting
    one = handle = nil
    with_a_port_that_hangs_up do |servers|
      one = rejected_producer(servers, timeout: 6_000, "reconnect.backoff.max.ms": 200)
      handle = one.produce_async(topic: "rejected", payload: "x")
      assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 1_000) }
    end
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 7_000) }
    one.close(timeout: 0)
  end

  slow def test_without_a_limit_messages_wait_for_their_timeout
    with_a_port_that_hangs_up do |servers|
      one = rejected_producer(servers, timeout: nil, "message.timeout.ms": 2_000, "transaction.timeout.ms": 5_000)
      assert_raises(Penstock::MessageTimedOutError) { one.produce_sync(topic: "rejected", payload: "x") }
    end
  end

  slow def test_unreachable_brokers_are_no_rejection
    one = rejected_producer("127.0.0.1:1")
    handle = one.produce_async(topic: "rejected", payload: "x")
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 1_500) }
    one.close(timeout: 0)
  end

  def test_purging_and_closing_a_rejected_producer_are_reported_as_such
    with_a_port_that_hangs_up do |servers|
      one = rejected_producer(servers, timeout: 60_000)
      purged = one.produce_async(topic: "rejected", payload: "x")
      one.purge
      assert_equal :purge_queue, assert_raises(Penstock::DeliveryError) { purged.wait }.code
      closed = one.produce_async(topic: "rejected", payload: "x")
      assert_equal 1, one.close(timeout: 0).purged
      assert_equal :purge_queue, assert_raises(Penstock::DeliveryError) { closed.wait }.code
    end
  end

  # The provider's thread may fail before the thread that opens the client is done.
  thorough slow def test_a_token_failure_at_once_is_reported
    provider = Object.new
    def provider.on_oauthbearer_token_refresh(event) = event[:bearer].oauthbearer_set_token_failure("shut")
    30.times do
      one = rejected_producer("127.0.0.1:1", "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER") do |config|
        config.oauth.token_provider_listener = provider
      end
      error = assert_raises(Penstock::AuthenticationError) { one.produce_sync(topic: "rejected", payload: "x") }
      assert_match(/shut/, error.message)
      one.close(timeout: 0)
    end
  end

  slow def test_a_client_with_a_token_provider_is_collected_like_any_other
    provider = Object.new
    def provider.on_oauthbearer_token_refresh(_event) = nil
    forget_one_with(provider)
    eventually(10) do
      GC.start
      Thread.list.none? { |thread| thread.name == "penstock.tokens" }
    end
  end

  def forget_one_with(provider)
    Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": "127.0.0.1:1", "security.protocol": "sasl_plaintext",
                       "sasl.mechanism": "OAUTHBEARER", log_level: 0 }
      config.oauth.token_provider_listener = provider
    end.client.connect
    nil
  end

  # ---- consumers ----

  def rejected_consumer(servers, timeout: 100, **kafka)
    made = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": servers, log_level: 0, **kafka }
      config.rejection_timeout = timeout
      yield config if block_given?
    end
    made.tap { |one| (@consumers ||= []) << one }
  end

  def teardown
    @consumers&.each { |one| one.close(timeout: 20) }
    @consumers = nil
    super
  end

  slow def test_polling_a_rejected_consumer_raises_repeatedly_while_the_rejection_lasts
    with_a_port_that_hangs_up do |servers|
      one = rejected_consumer(servers).assign("rejected" => [0])
      3.times do
        error = assert_raises(Penstock::SecurityProtocolError) { one.poll(timeout: 60) }
        assert_equal [one.id, nil, true], [error.consumer_id, error.producer_id, error.retriable?]
        assert_match(/security\.protocol/, error.message)
      end
      assert_nil one.poll(timeout: 0), "the error is rate-limited"
    end
  end

  thorough slow def test_calls_that_wait_for_an_answer_raise_a_rejection_without_a_poll
    with_a_port_that_hangs_up do |servers|
      # librdkafka is destroyed only after a commit has found no coordinator for this long
      one = rejected_consumer(servers, "group.id": "rejected", "session.timeout.ms": 1_000, "heartbeat.interval.ms": 500)
      assert_raises(Penstock::SecurityProtocolError) { one.watermarks("rejected", 0, timeout: 60) }
      assert_raises(Penstock::SecurityProtocolError) { one.committed("rejected", 0, timeout: 60) }
      assert_raises(Penstock::SecurityProtocolError) { one.commit({ "rejected" => { 0 => 1 } }, timeout: 60) }
    end
  end

  thorough slow def test_consumers_without_a_limit_or_without_brokers_report_no_rejection
    with_a_port_that_hangs_up do |servers|
      assert_nil rejected_consumer(servers, timeout: nil).assign("rejected" => [0]).poll(timeout: 1.5)
      assert_nil rejected_consumer("127.0.0.1:1").assign("rejected" => [0]).poll(timeout: 1.5)
    end
  end

  # Older versions of librdkafka report it to a consumer only after socket.connection.setup.timeout.ms.
  slow def test_a_consumer_raises_for_an_unanswered_tls_handshake
    with_a_port_that_says_nothing do |servers|
      setup = { "socket.connection.setup.timeout.ms": 1_000 }
      one = rejected_consumer(servers, "security.protocol": "ssl", **setup).assign("rejected" => [0])
      assert_raises(Penstock::SecurityProtocolError) { one.poll(timeout: 60) }
    end
  end

  # A TLS port with a certificate that no client trusts. It presents it to that many clients, each after another time, so that the
  # errors differ. Later clients get no answer.
  def with_an_untrusted_port(times)
    key = OpenSSL::PKey::EC.generate("prime256v1")
    name = OpenSSL::X509::Name.parse("/CN=localhost")
    certificate = OpenSSL::X509::Certificate.new.tap do |made|
      made.serial = 1
      made.subject = made.issuer = name
      made.public_key = key
      made.not_before = Time.now - 60
      made.not_after = Time.now + 3_600
      made.sign(key, "SHA256")
    end
    context = OpenSSL::SSL::SSLContext.new.tap { |made| made.add_certificate(certificate, key) }
    shown = Queue.new
    port = TCPServer.new("127.0.0.1", 0)
    server = quiet_thread { serve_untrusted(port, context, times, shown) }
    yield "127.0.0.1:#{port.addr[1]}", shown
  ensure
    server.kill.join
    port.close
  end

  def serve_untrusted(port, context, times, shown)
    silent = []
    (1..).each do |number|
      client = port.accept
      next silent << client if number > times

      sleep(0.03 * number)
      begin
        OpenSSL::SSL::SSLSocket.new(client, context).accept
      rescue OpenSSL::SSL::SSLError, SystemCallError
        nil
      end
      client.close
      shown << number
    end
  end

  slow def test_each_rejection_of_a_certificate_names_the_reason_even_if_several_wait_to_be_read
    with_an_untrusted_port(3) do |servers, shown|
      one = rejected_consumer(servers, "security.protocol": "ssl", "reconnect.backoff.max.ms": 100).assign("rejected" => [0])
      3.times { shown.pop } # librdkafka has queued an error for each; nothing has read them
      error = assert_raises(Penstock::TlsError) { one.poll(timeout: 60) }
      assert_match(/the certificate is self-signed.*: /, error.message)
    end
  end

  OAUTH = { "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER" }.freeze

  slow def test_poll_raises_if_a_consumer_gets_no_token
    provider = Object.new
    def provider.on_oauthbearer_token_refresh(event) = (@events ||= []) << event && raise("no #{event[:consumer_id]}")
    log = StringIO.new
    one = rejected_consumer("127.0.0.1:1", **OAUTH) do |config|
      config.oauth.token_provider_listener = provider
      config.logger = Logger.new(log)
    end
    error = assert_raises(Penstock::AuthenticationError) { one.poll(timeout: 60) }
    assert_match(/token provider raised RuntimeError/, error.message)
    eventually { log.string.match?(/ERROR.*#{one.id}.*the token provider raised RuntimeError/) }
    assert_equal %i[consumer_id bearer caller], provider.instance_variable_get(:@events).first.payload.keys
  end

  slow def test_a_consumer_with_a_token_provider_is_collected_like_any_other
    provider = Object.new
    def provider.on_oauthbearer_token_refresh(_event) = nil
    forget_a_consumer_with(provider)
    eventually(10) do
      GC.start
      Thread.list.none? { |thread| thread.name == "penstock.tokens" }
    end
  end

  def forget_a_consumer_with(provider)
    one = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": "127.0.0.1:1", **OAUTH, log_level: 0 }
      config.oauth.token_provider_listener = provider
    end
    one.assign("nothing" => [0])
    nil
  end

  def test_credentials_of_a_consumer_are_checked
    plain = { "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b" }
    one = rejected_consumer("127.0.0.1:1", **plain)
    assert_nil one.set_credentials("me", "secret")
    error = assert_raises(Penstock::ConfigurationInvalidError) { one.set_credentials("me", "") }
    assert_includes error.message, "[consumer #{one.id}]"
    one.close
    assert_raises(Penstock::ConsumerClosedError) { one.set_credentials("me", "secret") }
    assert_raises(Penstock::ConfigurationInvalidError) { rejected_consumer("127.0.0.1:1").set_credentials("me", "secret") }
  end

  { "a certificate is for another host name: x" => /bootstrap\.servers.*identification/,
    "the certificate has expired: x" => /clocks/,
    "error:0A000086:SSL routines::certificate verify failed" => /ssl\.ca\.location/,
    "sslv3 alert bad certificate: SSL alert number 42" => /client certificate/,
    "SASL X mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported mechanisms: PLAIN" =>
      /sasl\.mechanism to one/,
    "Failed to initialize SASL authentication: SASL Handshake not supported by broker (required by mechanism PLAIN)" =>
      /does not use SASL/,
    "Disconnected: verify that security.protocol is correctly configured, broker might require SASL authentication" =>
      /may require SASL/,
    "SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a PLAINTEXT broker listener?" =>
      /without TLS/,
    "Send failed: Broken pipe (after 0ms in state UP)" => /may require TLS or SASL/ }.each_with_index do |(text, advice), i|
    define_method("test_cause_#{i}_has_advice_on_what_to_check") { assert_match advice, Internal::RejectionAdvice.advice(text) }
  end
end

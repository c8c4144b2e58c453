# frozen_string_literal: true

require_relative "test_helper"
require "socket"

# Brokers that refuse a client, as far as that can be seen without a Kafka that does: the rest is in integration/security_test.rb.
class RejectionTest < PenstockTest
  # Answers nobody: takes connections and ends them, as a port does that expects TLS.
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

  def refused_producer(servers, timeout: 100, **kafka)
    producer(servers:, log_level: 0, **kafka) do |config|
      config.rejection_timeout = timeout
      config.polling.fd.periodic_poll_interval = 100
      yield config if block_given?
    end
  end

  slow def test_what_is_refused_later_fails_too_and_sooner
    with_a_port_that_hangs_up do |servers|
      one = refused_producer(servers)
      3.times do
        took = seconds_of do
          assert_raises(Penstock::SecurityProtocolError) { one.produce_sync(topic: "refused", payload: "x") }
        end
        assert_operator took, :<, GCLevel.slow? ? 30 : 5
      end
    end
  end

  def test_a_port_that_ends_the_handshake_of_tls_refuses_too
    with_a_port_that_hangs_up do |servers|
      one = refused_producer(servers, "security.protocol": "ssl")
      error = assert_raises(Penstock::BrokerRejectedError) { one.produce_sync(topic: "refused", payload: "x") }
      assert_match(/may speak another protocol, without TLS/, error.message)
    end
  end

  # A port that takes a TLS handshake for the beginning of a long request, say. librdkafka waits for an answer for
  # socket.connection.setup.timeout.ms, 30 seconds.
  def with_a_port_that_says_nothing
    server = TCPServer.new("127.0.0.1", 0) # the system takes the connections
    yield "127.0.0.1:#{server.local_address.ip_port}"
  ensure
    server.close
  end

  def test_a_port_that_leaves_the_tls_handshake_unanswered_counts_as_a_rejection
    with_a_port_that_says_nothing do |servers|
      one = refused_producer(servers, "security.protocol": "ssl")
      2.times do
        start = now
        error = assert_raises(Penstock::SecurityProtocolError) { one.produce_sync(topic: "refused", payload: "x") }
        assert_operator now - start, :<, GCLevel.slow? ? 25 : 8
        assert_match(/no answer to the TLS handshake.*may speak another protocol, without TLS/, error.message)
      end
    end
  end

  slow def test_a_slow_answer_to_the_tls_handshake_is_no_rejection
    with_a_port_that_says_nothing do |servers|
      one = refused_producer(servers, timeout: 60_000, "security.protocol": "ssl")
      handle = one.produce_async(topic: "refused", payload: "x")
      assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 1_500) }
      one.close(timeout: 0)
    end
  end

  # librdkafka 2.14 reports such a port in its log only, and that all brokers are down.
  slow def test_a_port_that_nobody_listens_to_is_no_rejection_however_librdkafka_reports_it
    one = refused_producer("127.0.0.1:1", "security.protocol": "ssl")
    handle = one.produce_async(topic: "refused", payload: "x")
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 2_500) }
    one.close(timeout: 0)
  end

  # As with localhost where nobody listens on ::1.
  slow def test_an_address_that_nobody_listens_to_does_not_hide_that_a_broker_rejects
    with_a_port_that_hangs_up do |servers|
      one = refused_producer("127.0.0.1:1,#{servers}", timeout: 2_000)
      took = seconds_of { assert_raises(Penstock::SecurityProtocolError) { one.produce_sync(topic: "refused", payload: "x") } }
      assert_operator took, :<, GCLevel.slow? ? 60 : 15
    end
  end

  slow def test_a_broker_that_has_gone_since_it_hung_up_does_not_reject
    one = handle = nil
    with_a_port_that_hangs_up do |servers|
      one = refused_producer(servers, timeout: 6_000, "reconnect.backoff.max.ms": 200)
      handle = one.produce_async(topic: "refused", payload: "x")
      assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 1_000) }
    end
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 7_000) }
    one.close(timeout: 0)
  end

  slow def test_without_a_limit_messages_wait_for_their_timeout
    with_a_port_that_hangs_up do |servers|
      one = refused_producer(servers, timeout: nil, "message.timeout.ms": 2_000, "transaction.timeout.ms": 5_000)
      assert_raises(Penstock::MessageTimedOutError) { one.produce_sync(topic: "refused", payload: "x") }
    end
  end

  slow def test_brokers_that_cannot_be_reached_refuse_nobody
    one = refused_producer("127.0.0.1:1")
    handle = one.produce_async(topic: "refused", payload: "x")
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 1_500) }
    one.close(timeout: 0)
  end

  def test_purging_and_closing_a_producer_that_is_refused_are_told_as_that
    with_a_port_that_hangs_up do |servers|
      one = refused_producer(servers, timeout: 60_000)
      purged = one.produce_async(topic: "refused", payload: "x")
      one.purge
      assert_equal :purge_queue, assert_raises(Penstock::DeliveryError) { purged.wait }.code
      closed = one.produce_async(topic: "refused", payload: "x")
      assert_equal 1, one.close(timeout: 0).purged
      assert_equal :purge_queue, assert_raises(Penstock::DeliveryError) { closed.wait }.code
    end
  end

  # The provider's thread may be faster than the one that opens the client.
  slow def test_a_token_that_is_given_up_at_once_is_heard_of
    provider = Object.new
    def provider.on_oauthbearer_token_refresh(event) = event[:bearer].oauthbearer_set_token_failure("shut")
    30.times do
      one = refused_producer("127.0.0.1:1", "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER") do |config|
        config.oauth.token_provider_listener = provider
      end
      error = assert_raises(Penstock::AuthenticationError) { one.produce_sync(topic: "refused", payload: "x") }
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

  def refused_consumer(servers, timeout: 100, **kafka)
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

  slow def test_who_polls_a_consumer_that_is_refused_is_told_and_again_while_it_lasts
    with_a_port_that_hangs_up do |servers|
      one = refused_consumer(servers).assign("refused" => [0])
      3.times do
        error = assert_raises(Penstock::SecurityProtocolError) { one.poll(timeout: 60) }
        assert_equal [one.id, nil, true], [error.consumer_id, error.producer_id, error.retriable?]
        assert_match(/security\.protocol/, error.message)
      end
      assert_nil one.poll(timeout: 0), "once in a while only"
    end
  end

  slow def test_who_waits_for_an_answer_is_told_though_nobody_polls
    with_a_port_that_hangs_up do |servers|
      # librdkafka is not destroyed before a commit has found no coordinator for so long
      one = refused_consumer(servers, "group.id": "refused", "session.timeout.ms": 1_000, "heartbeat.interval.ms": 500)
      assert_raises(Penstock::SecurityProtocolError) { one.watermarks("refused", 0, timeout: 60) }
      assert_raises(Penstock::SecurityProtocolError) { one.committed("refused", 0, timeout: 60) }
      assert_raises(Penstock::SecurityProtocolError) { one.commit({ "refused" => { 0 => 1 } }, timeout: 60) }
    end
  end

  slow def test_a_consumer_without_a_limit_and_one_that_reaches_nobody_find_nothing
    with_a_port_that_hangs_up do |servers|
      assert_nil refused_consumer(servers, timeout: nil).assign("refused" => [0]).poll(timeout: 1.5)
      assert_nil refused_consumer("127.0.0.1:1").assign("refused" => [0]).poll(timeout: 1.5)
    end
  end

  # Older librdkafkas report it to a consumer only after socket.connection.setup.timeout.ms.
  def test_a_consumer_learns_of_a_tls_handshake_that_is_not_answered
    with_a_port_that_says_nothing do |servers|
      setup = { "socket.connection.setup.timeout.ms": 1_000 }
      one = refused_consumer(servers, "security.protocol": "ssl", **setup).assign("refused" => [0])
      assert_raises(Penstock::SecurityProtocolError) { one.poll(timeout: 60) }
    end
  end

  OAUTH = { "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER" }.freeze

  slow def test_a_token_that_a_consumer_does_not_get_is_an_error_of_its_poll
    provider = Object.new
    def provider.on_oauthbearer_token_refresh(event) = (@events ||= []) << event && raise("no #{event[:consumer_id]}")
    log = StringIO.new
    one = refused_consumer("127.0.0.1:1", **OAUTH) do |config|
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
    one = refused_consumer("127.0.0.1:1", **plain)
    assert_nil one.set_credentials("me", "secret")
    error = assert_raises(Penstock::ConfigurationInvalidError) { one.set_credentials("me", "") }
    assert_includes error.message, "[consumer #{one.id}]"
    one.close
    assert_raises(Penstock::ConsumerClosedError) { one.set_credentials("me", "secret") }
    assert_raises(Penstock::ConfigurationInvalidError) { refused_consumer("127.0.0.1:1").set_credentials("me", "secret") }
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
    define_method("test_cause_#{i}_is_told_with_what_to_check") { assert_match advice, Internal::RejectionAdvice.advice(text) }
  end
end

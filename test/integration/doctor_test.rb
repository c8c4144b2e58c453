# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/secure_kafka"
require "penstock/doctor"

# penstock doctor on a real Kafka with TLS and SASL.
class DoctorOnKafkaTest < PenstockTest
  include SecureKafka

  def examine(server, **settings)
    Penstock::Doctor::Cluster.new([Penstock::Doctor::Address.parse(server)], settings, timeout: 20).facts
  end

  # name of the test => [server, settings, the steps after tcp]
  FINE = {
    "plaintext" => [PLAINTEXT, {}, %w[kafka apis]],
    "tls" => [SSL, TLS, %w[tls kafka apis]],
    "a_client_certificate" =>
      [MTLS, { **TLS, "ssl.certificate.location": CERT, "ssl.key.location": KEY }, %w[tls kafka apis]],
    "a_password" => [SASL, LOGIN, %w[sasl kafka apis]],
    "a_password_over_tls" => [SASL_SSL, TLS_LOGIN, %w[tls sasl kafka apis]]
  }.freeze

  FINE.each do |what, (server, settings, steps)|
    define_method("test_all_steps_succeed_with_#{what}") do
      facts = examine(server, **settings)
      assert_empty facts.reject { |fact| fact.status == :ok }.map(&:to_s)
      names = facts.map(&:name)
      assert_equal %W[name tcp #{steps.join(" ")}].join(" "), names.take(steps.size + 2).map { |name| name.split.last }.join(" ")
      assert_match(/cluster \S{22}, 1 broker, controller 1/, facts.find { |fact| fact.name.end_with?("kafka") }.value)
      assert_match(/\A[4-9]\d: Produce \d+-\d+, Fetch/, facts.find { |fact| fact.name.end_with?("apis") }.value)
    end
  end

  # name of the test => [server, settings, the step that fails, its value, its advice]
  WRONG = {
    "an_unknown_authority" => [SSL, { "security.protocol": "ssl" }, "tls", /authority that is not known/, /ssl\.ca\.location/],
    "a_certificate_for_another_host" => [STRANGER, TLS, "tls", /another (host name|IP address)/, /host names that the broker's/],
    "no_client_certificate" => [MTLS, TLS, "tls", /certificate|handshake/, /requires a client certificate/],
    "a_wrong_password" => [SASL, { **LOGIN, "sasl.password": "wrong-secret" }, "sasl", /Invalid username/, /sasl\.password/],
    "a_wrong_password_over_tls" =>
      [SASL_SSL, { **TLS_LOGIN, "sasl.password": "wrong-secret" }, "sasl", /Invalid username/, /sasl\.password/],
    "no_tls_on_a_tls_port" => [SSL, {}, "kafka", /reject this client/, /may require TLS/],
    "sasl_on_a_port_without_sasl" => [PLAINTEXT, LOGIN, "sasl", /reject this client/, /does not use SASL/]
  }.freeze

  WRONG.each do |what, (server, settings, step, value, advice)|
    define_method("test_#{what}_is_a_problem_of_its_step_with_advice") do
      facts = examine(server, **settings)
      problem = facts.last
      assert_equal ["#{server} #{step}", :problem, 1], [problem.name, problem.status, facts.count(&:problem?)], facts.join("\n")
      assert_match value, problem.value
      assert_match advice, problem.advice
      refute_match(/secret/, facts.join)
    end
  end

  [0, "0", "f", "F", "FALSE", false].each_with_index do |off, i|
    define_method("test_disabled_certificate_verification_is_reported_in_spelling_#{i}") do
      facts = examine(SSL, "security.protocol": " SSL", "enable.ssl.certificate.verification": off)
      assert_match(/not verified/, facts.find { |fact| fact.name == "#{SSL} tls" }.value)
    end
  end

  def test_names_and_values_that_are_not_text_are_a_problem_of_the_settings
    [{ "sasl.password\xff" => "my-secret" }, { "client.id": "my-secret\xff" },
     { "sasl.password\0" => "my-secret" }].each do |settings|
      facts = Penstock::Doctor::Cluster.new([Penstock::Doctor::Address.parse(PLAINTEXT)], settings, timeout: 20).facts
      assert_equal ["settings"], facts.map(&:name)
      assert_match(/UTF-8/, facts.first.value)
      refute_match(/secret/, facts.join)
    end
  end

  def test_the_negotiated_tls_is_reported_even_if_the_password_is_wrong
    facts = examine(SASL_SSL, **TLS_LOGIN, "sasl.password": "wrong-secret")
    assert_equal %i[ok problem], facts.last(2).map(&:status)
    assert_equal "#{SASL_SSL} tls", facts[-2].name
  end

  # The step that fails depends on the version of librdkafka.
  def test_tls_on_a_port_without_tls_is_a_problem
    problem = examine(PLAINTEXT, **TLS).last
    assert_equal :problem, problem.status
    assert_match(/\A#{PLAINTEXT} (tls|kafka)\z/, problem.name)
    assert_match(/The port may/, problem.advice)
  end
end

# frozen_string_literal: true

require_relative "../test_helper"

# Valid values of bootstrap.servers, and the errors about invalid ones.
class BootstrapServersTest < PenstockTest
  def made(servers, name: :"bootstrap.servers")
    Penstock::Producer.new { |config| config.kafka = { name => servers } }
  end

  def message_of(servers, **options)
    assert_raises(Penstock::ConfigurationInvalidError) { made(servers, **options) }.message
  end

  def test_each_broker_is_host_and_port
    ["127.0.0.1:9092", "kafka:1", "kafka_1.local-net:65535", "a:1,b:2,c:3", "[::1]:9092", "a:1,[fe80::1%eth0]:2", "kafka",
     "[::1]", "a:1,10.0.0.1", "a:1,,b:2", "a:1,", ",a:1", "a:1, b:2", " a:1", "a:1\n"].each do |servers|
      made(servers)
    end
    made("kafka:9092", name: "bootstrap.servers")
  end

  def test_an_array_raises_with_the_string_to_write
    [%w[a:9092 b:9092], [], [:a]].each do |servers|
      assert_match(/bootstrap\.servers must be a String such as "kafka-1:9092.*not Array: join the brokers with commas/,
                   message_of(servers))
    end
    error = assert_raises(Penstock::ConfigurationInvalidError) do
      Penstock::Consumer.new { |config| config.kafka = { "metadata.broker.list" => %w[a:9092] } }
    end
    assert_match(/metadata\.broker\.list must be a String/, error.message)
  end

  { "kafka+ssl://k.example:9092" => ["k.example:9092", "security.protocol to \"ssl\""],
    "ssl://k.example:9092" => ["k.example:9092", "security.protocol to \"ssl\""],
    "TLS://k.example:9092" => ["k.example:9092", "security.protocol to \"ssl\""],
    "kafka://k.example:9092" => ["k.example:9092", "security.protocol to \"plaintext\", the default"],
    "PLAINTEXT://k.example:9092" => ["k.example:9092", "security.protocol to \"plaintext\", the default"],
    "SASL_PLAINTEXT://k.example:9092" => ["k.example:9092", "security.protocol to \"sasl_plaintext\""],
    "SASL_SSL://k.example:9092/" => ["k.example:9092", "security.protocol to \"sasl_ssl\""],
    "https://k.example:443/topics?x=1" => ["k.example:443", "Kafka's protocol on a port of their own"],
    "kafka+ssl://k.example" => ["write k.example,", "security.protocol to \"ssl\""] }.each_with_index do |(url, words), i|
    define_method("test_url_#{i}_raises_with_an_explanation") do
      [url, "a:1,#{url}"].each do |servers|
        message = message_of(servers)
        [*words, "#{url[/\A[^:]+/]}://"].each { |word| assert_includes message, word }
      end
    end
  end

  def test_a_password_in_a_url_is_not_shown_and_the_error_explains_sasl
    ["kafka+ssl://me:s3cret@k.example:9092", "kafka+ssl://me:s3c@ret@k.example", "ssl://s3cret@k.example:x"].each do |url|
      message = message_of("a:1,#{url}")
      refute_match(/me:|s3c|ret@/, message)
      assert_match(/broker 2 of bootstrap\.servers.*"sasl_ssl".*sasl\.username and sasl\.password/, message)
    end
    ["me:s3cret@k:1", "k:s3cret", "s3cret here"].each { |servers| refute_includes message_of(servers), "s3cret" }
  end

  { "," => /is blank/, " , " => /is blank/, " " => /is blank/, "a :1" => /a space/, "a:1,b b:2" => /broker 2.*a space/,
    "kafka\n" => /a space or line end/, "a:1,\n" => /host:port/,
    "kafka:" => /no port after kafka: write kafka:9092/, "kafka:0" => /1 to 65535, after kafka/, "kafka:99999" => /1 to 65535/,
    "kafka:65536" => /1 to 65535/, "kafka:abc" => /1 to 65535/, "kafka:-1" => /1 to 65535/, "kafka:9092/x" => /host:port/,
    "::1" => /\[::1\]:9092/, "ka*ka:1" => /host:port/ }.each_with_index do |(servers, words), i|
    define_method("test_list_#{i}_raises_with_what_to_write") { assert_match words, message_of(servers) }
  end

  def test_the_alias_metadata_broker_list_and_consumers_get_the_same_checks
    assert_match(/metadata\.broker\.list is a URL/, message_of("ssl://a:1", name: :"metadata.broker.list"))
    error = assert_raises(Penstock::ConfigurationInvalidError) do
      Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers" => "ssl://a:1" } }
    end
    assert_match(/bootstrap\.servers is a URL/, error.message)
  end
end

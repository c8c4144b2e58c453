# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Clients are made with librdkafka's settings as keywords, with a block, and with both.
class SettingsAsKeywordsTest < ConsumerTestCase
  SERVERS = { "bootstrap.servers": "127.0.0.1:1" }.freeze

  def make(client_class, ...)
    client_class.new(...).tap { |made| (client_class == Penstock::Producer ? @producers : @consumers) << made }
  end

  def each_client
    [Penstock::Producer, Penstock::Consumer].each do |client_class|
      yield ->(*more, **kafka, &block) { make(client_class, *more, **kafka, &block) }
    end
  end

  def test_a_producer_made_with_keywords_delivers_and_a_consumer_made_so_reads
    name = topic(partitions: 1)
    servers = cluster.bootstrap_servers
    make(Penstock::Producer, "bootstrap.servers": servers).produce_sync(topic: name, payload: "x")
    reader = make(Penstock::Consumer, "bootstrap.servers": servers, "group.id": "g").assign(name => { 0 => :beginning })
    assert_equal "x", reader.poll(timeout: 10).payload
    assert_predicate reader.config, :group?
  end

  def test_setting_names_may_be_strings
    each_client do |make|
      assert_includes make.call("bootstrap.servers" => "127.0.0.1:1").config.kafka.values, "127.0.0.1:1"
      assert_raises(Penstock::ConfigurationInvalidError) { make.call(**SERVERS, 5 => 1) }
    end
  end

  def test_the_block_sees_the_given_settings_and_may_change_them
    each_client do |make|
      seen = nil
      one = make.call(**SERVERS, "client.id": "given") do |config|
        seen = config.kafka.dup
        config.id = "mine"
        config.kafka[:"client.id"] = "changed"
      end
      assert_equal({ **SERVERS, "client.id": "given" }, seen)
      assert_equal ["mine", "changed", "127.0.0.1:1"], [one.id, *one.config.kafka.values_at(:"client.id", :"bootstrap.servers")]
      two = make.call("client.id": "given", **SERVERS) { |config| config.kafka = SERVERS }
      assert_equal "penstock", two.config.kafka[:"client.id"]
    end
  end

  def test_the_given_hash_stays_unchanged
    given = SERVERS.dup
    each_client { |make| make.call(**given) { |config| config.kafka[:"client.id"] = "x" } }
    assert_equal SERVERS, given
  end

  def test_invalid_keywords_raise_the_same_errors_as_in_the_block
    each_client do |make|
      error = assert_raises(Penstock::ConfigurationInvalidError) { make.call("bootstrap.server": "a:1") }
      assert_match(/no setting "bootstrap.server" \(did you mean "bootstrap.servers"\?\)/, error.message)
      error = assert_raises(Penstock::ConfigurationInvalidError) { make.call("client.id": "x") }
      assert_match(/bootstrap\.servers/, error.message)
    end
  end

  def test_penstocks_own_settings_are_rejected_as_keywords
    each_client do |make|
      %i[id kafka logger close_timeout oauth].each do |name|
        error = assert_raises(Penstock::ConfigurationInvalidError) { make.call(**SERVERS, name => "secret") }
        assert_equal "Invalid configuration: config.#{name} is not a setting of librdkafka: set it in the block.", error.message
      end
    end
  end

  def test_a_hash_in_braces_shows_the_right_form
    each_client do |make|
      error = assert_raises(ArgumentError) { make.call({ "bootstrap.servers": "secret:1" }) }
      assert_match(/\A1 positional argument too many; write new\("bootstrap\.servers": "localhost:9092"/, error.message)
    end
  end

  def test_setup_accepts_settings_too
    one = make(Penstock::Producer).setup(**SERVERS)
    assert_equal "127.0.0.1:1", one.config.kafka[:"bootstrap.servers"]
    assert_raises(Penstock::ProducerAlreadyConfiguredError) { one.setup(**SERVERS) }
    error = assert_raises(Penstock::ConfigurationInvalidError) { make(Penstock::Producer).setup }
    assert_match(/bootstrap\.servers/, error.message)
  end

  def test_a_subclass_may_pass_settings_on
    seen = Class.new(Penstock::Producer) { def initialize(**kafka) = super(**kafka, "client.id": "mine") }
    @producers << (one = seen.new(**SERVERS))
    assert_equal "mine", one.config.kafka[:"client.id"]
  end
end

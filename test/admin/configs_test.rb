# frozen_string_literal: true

require_relative "../test_helper"

# Settings of topics, brokers and groups: what calls reject before anything is sent, and the values.
class AdminConfigsTest < Minitest::Test
  SECRET = "correct horse battery staple"

  def setup
    @admin = Penstock::Admin.new("bootstrap.servers": "127.0.0.1:1", log_level: 0)
  end

  def teardown
    assert_equal :configured, @admin.state, "something was sent"
    @admin.close
  end

  def rejected(pattern, &)
    error = assert_raises(ArgumentError, &)
    assert_match(pattern, error.message)
    refute_match(/#{SECRET}/o, error.message)
  end

  # ---- reading ----

  def test_resources_that_cannot_exist_are_rejected
    rejected(/topics must be an Array, not String/) { @admin.configs(topics: "a") }
    rejected(/name of a topic must be a non-empty UTF-8 String without a zero byte, not :a/) { @admin.configs(topics: [:a]) }
    rejected(/name of a topic must be .*, not ""/) { @admin.topic_config("") }
    rejected(/name of a group must be .*, not "a\\u0000"/) { @admin.group_config("a\0") }
    rejected(/id of a broker must be an Integer that is not negative, not "1"/) { @admin.broker_config("1") }
    rejected(/id of a broker must be .*, not -1/) { @admin.configs(brokers: [1, -1]) }
    rejected(/id of a broker must be .*, not 2147483648/) { @admin.configs(brokers: [2**31]) }
    rejected(/topic "a" is given twice/) { @admin.configs(topics: %w[a b a]) }
  end

  def test_calls_of_the_wrong_form_are_rejected
    rejected(/unknown keyword: :topic \(did you mean :topics\?\); write configs/) { @admin.configs(topic: "a") }
    rejected(/unknown keyword: :topics; write alter_configs\(\{ topics:/) { @admin.alter_configs({}, topics: {}) }
    rejected(/above 0 and at most 3600/) { @admin.configs(topics: ["a"], timeout: 0) }
  end

  # ---- changing ----

  def alter(settings, owner = :topics) = @admin.alter_configs({ owner => { owner == :brokers ? 1 : "a" => settings } })

  def test_changes_that_are_no_changes_are_rejected
    rejected(/changes must be a Hash, not Array/) { @admin.alter_configs([]) }
    rejected(/unknown key :topic \(did you mean :topics\?\); write topics, brokers or groups/) do
      @admin.alter_configs({ topic: {} })
    end
    rejected(/topics must be a Hash, not String/) { @admin.alter_configs({ topics: SECRET }) }
    rejected(/changes of topic "a" must be a Hash, not String/) { alter(SECRET) }
    rejected(/changes of broker 1 must be a Hash, not Integer/) { alter(1, :brokers) }
    rejected(/name of a setting must be a Symbol or a String, not 1/) { alter({ 1 => 2 }) }
    rejected(/topic "a": retention.ms is given twice/) { alter({ "retention.ms" => 1, "retention.ms": 2 }) }
  end

  def test_values_that_no_setting_has_are_rejected_and_not_shown
    rejected(/topic "a": x must be a String, .*class Object/) { alter({ x: Object.new }) }
    rejected(/topic "a": x must be a String, .*class String/) { alter({ x: "#{SECRET}\xff" }) }
    rejected(/topic "a": x must be UTF-8 without a zero byte/) { alter({ x: Penstock::Secret.new("#{SECRET}\0") }) }
    rejected(/topic "a": x must be a String, .*class NilClass/) { alter({ x: { append: [SECRET, nil] } }) }
    rejected(/topic "a": x must not be empty/) { alter({ x: [] }) }
    [{}, { add: SECRET }, { append: SECRET, subtract: SECRET }].each do |wanted|
      rejected(/topic "a": x must be a value, nil, { append: value } or { subtract: value }/) { alter({ x: wanted }) }
    end
  end

  def test_nothing_to_do_is_done_at_once
    assert_empty @admin.configs
    assert_empty @admin.alter_configs({})
    assert_empty @admin.alter_configs({ topics: {} })
  end

  def test_what_librdkafka_lacks_is_unsupported_before_anything_is_sent
    native = Internal.of(@admin).instance_variable_get(:@client)
    unless native.respond_to?(:describe_group_configs)
      error = assert_raises(Penstock::UnsupportedError) { @admin.group_config("g") }
      assert_match(/cannot read or change settings of groups.*2\.10\.0 or newer/, error.message)
      assert_raises(Penstock::UnsupportedError) { alter({ "consumer.session.timeout.ms" => 1 }, :groups) }
    end
    return if native.respond_to?(:incremental_alter_configs)

    error = assert_raises(Penstock::UnsupportedError) { alter({ "log.cleaner.threads" => 1 }, :brokers) }
    assert_match(/cannot change settings of brokers.*2\.2\.0 or newer/, error.message)
  end

  # ---- merging, which only old librdkafkas need ----

  Merge = Penstock::Admin.const_get(:ConfigMerge)
  Changes = Penstock::Admin.const_get(:ConfigChanges)

  def entry(name, value, source = :topic, sensitive: false)
    Penstock::Admin::ConfigEntry.new(name:, value:, source:, read_only: false, sensitive:, synonyms: [])
  end

  def merge(entries, wanted)
    changes = Changes.of({ topics: { "a" => wanted } }).values.first
    Merge.merge(entries, changes).to_h { |name, operation, value| operation.zero? ? [name, value] : flunk(name) }
  end

  ENTRIES = [["retention.ms", "1"], ["segment.bytes", "2"], ["cleanup.policy", "delete", :default],
             ["min.insync.replicas", "2", :static_broker], ["flush.ms", "3", :dynamic_default_broker]].freeze

  def test_a_merge_keeps_what_the_topic_has_of_its_own_and_nothing_else
    entries = ENTRIES.map { |one| entry(*one) }
    assert_equal({ "retention.ms" => "9", "segment.bytes" => "2" }, merge(entries, { "retention.ms" => 9 }))
    assert_equal({ "segment.bytes" => "2" }, merge(entries, { "retention.ms" => nil, "unknown" => nil }))
    assert_equal({ "retention.ms" => "1", "segment.bytes" => "2", "flush.ms" => "4" }, merge(entries, { "flush.ms": 4 }))
  end

  def test_a_merge_changes_lists_as_the_brokers_do
    entries = [entry("own", "a, b,,c"), entry("default", "delete", :default), entry("empty", "")]
    assert_equal "a,b,c,d", merge(entries, { "own" => { append: %w[b d] } })["own"]
    assert_equal "a,c", merge(entries, { "own" => { subtract: "b,x" } })["own"]
    assert_equal "delete,compact", merge(entries, { "default" => { append: "compact" } })["default"]
    assert_equal "", merge(entries, { "default" => { subtract: "delete" } })["default"]
    assert_equal "x", merge(entries, { "empty" => { append: "x" } })["empty"]
    assert_equal "x", merge([], { "new" => { append: "x" } })["new"]
  end

  def test_a_merge_that_would_lose_something_is_impossible
    hidden = [entry("password", nil, sensitive: true)]
    error = assert_raises(Merge::Impossible) { merge(hidden, { "retention.ms" => 1 }) }
    assert_match(/the value of password, which would have to be sent again, is hidden/, error.message)
    assert_raises(Merge::Impossible) { merge([entry("retention.ms", "1", :unknown)], { "segment.bytes" => 1 }) }
    assert_raises(Merge::Impossible) { merge([], { "token" => { append: SECRET } }) }
    assert_equal %w[retention.ms], merge([entry("password", nil, :default, sensitive: true)], { "retention.ms" => 1 }).keys
  end

  # ---- values ----

  def test_an_entry_is_a_value
    one = entry("retention.ms", "1", :default)
    assert_predicate one, :frozen?
    assert_predicate one, :default?
    refute_predicate one, :read_only?
    refute_predicate one, :sensitive?
    assert_equal "#<Penstock::Admin::ConfigEntry retention.ms=\"1\" source=:default>", one.inspect
    assert_equal one.inspect, one.to_s
    hidden = entry("password", nil, sensitive: true)
    assert_equal "#<Penstock::Admin::ConfigEntry password=[hidden] source=:topic>", hidden.inspect
    assert_equal({ value: "1", source: :default }, one.deconstruct_keys(%i[value source]))
  end

  def test_secret_values_of_changes_are_hidden
    shown = Changes.of({ brokers: { 1 => { "ssl.keystore.password" => SECRET, "ssl.keystore.key" => "-----BEGIN #{SECRET}",
                                           "x" => Penstock::Secret.new(SECRET), "sasl.jaas.config" => { append: SECRET } } } })
    refute_match(/#{SECRET}/o, shown.inspect)
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/real_admin"

# Settings of topics, brokers and groups on a real Apache Kafka.
class KafkaAdminConfigsTest < PenstockTest
  include RealAdmin

  SECRET = "correct-horse-battery-staple"

  # The broker that answers may be some milliseconds behind.
  def own(topic) = @admin.topic_config(topic).select { |_, entry| entry.source == :topic }.transform_values(&:value)

  def alter(topic, settings, **options) = @admin.alter_configs({ topics: { topic => settings } }, **options)

  # ---- reading ----

  def test_settings_of_a_topic_say_where_they_come_from
    settings = @admin.topic_config(new_topic(config: { "retention.ms" => 100_000 }))
    assert_predicate settings, :frozen?
    assert Ractor.shareable?(settings)
    entry = settings.fetch("retention.ms")
    assert_equal ["retention.ms", "100000", :topic, false, false],
                 [entry.name, entry.value, entry.source, entry.read_only?, entry.sensitive?]
    refute_predicate entry, :default?
    assert_equal [["retention.ms", "100000", :topic], ["log.retention.ms", "-1", :static_broker],
                  ["log.retention.hours", "168", :default]], entry.synonyms.map { |one| [one.name, one.value, one.source] }
    assert_predicate settings.fetch("cleanup.policy"), :default?
    assert_equal :static_broker, settings.fetch("segment.bytes").source
  end

  def test_settings_of_a_broker_without_the_values_of_sensitive_ones
    settings = @admin.broker_config(1)
    assert_equal ["1", :static_broker, true], settings.fetch("node.id").then { |one| [one.value, one.source, one.read_only?] }
    hidden = settings.values.select(&:sensitive?)
    assert_operator hidden.size, :>, 5
    assert_empty hidden.filter_map(&:value)
    assert_empty hidden.flat_map(&:synonyms).filter_map(&:value)
    refute_match(/#{SecureKafka::PASSWORD}|PRIVATE KEY/o, settings.inspect + settings.to_s + settings.values.map(&:to_h).inspect)
  end

  def test_many_resources_each_with_settings_or_an_error
    topics = Array.new(2) { new_topic }
    missing = unique
    results = @admin.configs(topics: [topics[0], missing, topics[1]], brokers: [1])
    assert_equal [[:topic, topics[0]], [:topic, missing], [:topic, topics[1]], [:broker, 1]], results.keys
    assert_equal [[:topic, missing]], results.errors.keys
    error = assert_raises(Penstock::AdminError) { results[:topic, missing] }
    assert_equal [:unknown_topic_or_part, missing], [error.code, error.topic]
    assert_equal "delete", results[:topic, topics[1]]["cleanup.policy"].value
    assert_equal "1", results[:broker, 1]["node.id"].value
    assert_raises(Penstock::AdminError) { @admin.topic_config(missing) }
  end

  def test_a_broker_that_does_not_exist_is_an_error_of_its_own_at_once
    topic = new_topic
    assert_took(5, seconds_of { @results = @admin.configs(topics: [topic], brokers: [77, 1], timeout: 60) })
    assert_equal({ [:broker, 77] => :broker_not_available }, @results.errors.transform_values(&:code))
    assert_equal [[:topic, topic], [:broker, 1]], @results.ok.keys
    assert_equal :broker_not_available, assert_raises(Penstock::AdminError) { @admin.broker_config(77, timeout: 60) }.code
    return unless librdkafka?("2.2.0")

    altered = @admin.alter_configs({ brokers: { 77 => { "log.cleaner.threads" => 1 } } }, timeout: 60)
    assert_equal [:broker_not_available], altered.errors.values.map(&:code)
  end

  def test_settings_of_a_group
    skip "needs librdkafka 2.10.0" unless librdkafka?("2.10.0")
    group = unique
    setting = "consumer.session.timeout.ms"
    read = -> { @admin.group_config(group).fetch(setting).then { |entry| [entry.value, entry.source] } }
    before = read.call
    refute_equal :group, before.last
    assert_predicate @admin.alter_configs({ groups: { group => { setting => 7_000 } } }), :ok?
    eventually { read.call == ["7000", :group] }
    assert_predicate @admin.alter_configs({ groups: { group => { setting => nil } } }), :ok?
    eventually { read.call == before }
  end

  # ---- changing ----

  def test_changes_leave_all_other_settings_alone
    topic = new_topic(config: { "retention.ms" => 100_000, "segment.ms" => 50_000, "flush.ms" => 7_000 })
    results = alter(topic, { "retention.ms" => 200_000, "segment.ms": nil, "min.insync.replicas" => 1 })
    assert_equal({ [:topic, topic] => true }, results.to_h)
    eventually { own(topic) == { "retention.ms" => "200000", "flush.ms" => "7000", "min.insync.replicas" => "1" } }
  end

  def test_values_are_added_to_lists_and_removed
    topic = new_topic
    alter(topic, { "cleanup.policy" => { append: :compact } }).raise!
    eventually { own(topic) == { "cleanup.policy" => "delete,compact" } }
    alter(topic, { "cleanup.policy" => { subtract: ["delete"] }, "flush.ms" => 7_000 }).raise!
    eventually { own(topic) == { "cleanup.policy" => "compact", "flush.ms" => "7000" } }
    alter(topic, { "cleanup.policy" => %w[compact delete] }).raise!
    eventually { own(topic)["cleanup.policy"] == "compact,delete" }
  end

  def test_each_resource_is_changed_or_has_an_error
    good, bad = Array.new(2) { new_topic }
    missing = unique
    results = @admin.alter_configs({ topics: { good => { "flush.ms" => 7_000 }, missing => { "flush.ms" => 7_000 },
                                               bad => { "flush.ms" => 8_000, "retention.ms" => "tomorrow" } } })
    assert_equal [[:topic, good], [:topic, missing], [:topic, bad]], results.keys
    assert_equal({ [:topic, missing] => :unknown_topic_or_part, [:topic, bad] => :invalid_config },
                 results.errors.transform_values(&:code))
    assert_match(/tomorrow.*topic #{bad}/, results.errors.fetch([:topic, bad]).message)
    eventually { own(good) == { "flush.ms" => "7000" } }
    assert_empty own(bad), "the changes of a topic belong together"
  end

  def test_validate_only_changes_nothing
    topic = new_topic
    assert_predicate alter(topic, { "flush.ms" => 7_000 }, validate_only: true), :ok?
    assert_equal :invalid_config, alter(topic, { "flush.ms" => -7 }, validate_only: true).errors.values.first.code
    alter(topic, { "segment.ms" => 7_000 }).raise!
    eventually { own(topic) == { "segment.ms" => "7000" } }
  end

  def test_a_secret_value_is_in_no_error
    topic = new_topic
    [{ "retention.ms" => Penstock::Secret.new(SECRET) }, { "retention.ms" => "x", "password" => SECRET }].each do |settings|
      error = alter(topic, settings).errors.values.first
      assert_equal [:invalid_config, topic], [error.code, error.topic]
      assert_match(/their reason is not shown, because one of the values is secret/, error.message)
      refute_match(/#{SECRET}/o, error.full_message + error.inspect)
    end
  end

  def test_settings_of_a_broker_change
    skip "needs librdkafka 2.2.0" unless librdkafka?("2.2.0")
    read = -> { @admin.broker_config(1).fetch("log.cleaner.backoff.ms").then { |one| [one.value, one.source] } }
    assert_predicate @admin.alter_configs({ brokers: { 1 => { "log.cleaner.backoff.ms" => 14_999 } } }), :ok?
    eventually { read.call == ["14999", :dynamic_broker] }
    assert_predicate @admin.alter_configs({ brokers: { 1 => { "log.cleaner.backoff.ms" => nil } } }), :ok?
    eventually { read.call == ["15000", :default] }
    error = @admin.alter_configs({ brokers: { 1 => { "node.id" => 2 } } }).errors.fetch([:broker, 1])
    assert_match(/node\.id/, error.message)
  end

  def test_a_topic_with_a_hidden_setting_is_not_replaced
    skip "librdkafka 2.2.0 changes single settings" if librdkafka?("2.2.0")
    one, other = Array.new(2) { new_topic(config: { "flush.ms" => 7_000 }) }
    hidden = Penstock::Admin::ConfigEntry.new(name: "key", source: :topic, read_only: false, sensitive: true, synonyms: [])
    Internal.of(@admin).define_singleton_method(:read_configs) do |*arguments| # no setting of a topic is hidden in this Kafka
      super(*arguments).to_h { |resource, entries| [resource, resource.last == one ? [*entries, hidden] : entries] }
    end
    results = @admin.alter_configs({ topics: { one => { "segment.ms" => 8_000 }, other => { "segment.ms" => 8_000 } } })
    error = results.errors.fetch([:topic, one])
    assert_instance_of Penstock::UnsupportedError, error
    assert_match(/would lose some \(the value of key,.* is hidden\).*2\.2\.0 or newer.*topic #{one}/, error.message)
    assert_equal [[:topic, other]], results.ok.keys
    eventually { admin.topic_config(other).fetch("segment.ms").value == "8000" }
    assert_equal :default, admin.topic_config(one).fetch("segment.ms").source
  end

  # ---- rights ----

  def test_a_client_without_the_rights_gets_errors
    allowed = new_topic(config: { "flush.ms" => 7_000 })
    denied = new_topic("read-only", config: { "flush.ms" => 7_000 })
    one = guest
    results = one.configs(topics: [allowed, denied])
    assert_equal({ [:topic, denied] => :topic_authorization_failed }, results.errors.transform_values(&:code))
    results = one.alter_configs({ topics: { denied => { "flush.ms" => nil }, allowed => { "segment.ms" => 8_000 } } })
    assert_equal({ [:topic, denied] => :topic_authorization_failed }, results.errors.transform_values(&:code))
    eventually { own(allowed) == { "flush.ms" => "7000", "segment.ms" => "8000" } }
    assert_equal({ "flush.ms" => "7000" }, own(denied))
  end
end

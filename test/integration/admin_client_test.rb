# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/kafka_cluster"
require_relative "../support/real_admin"

# The admin client itself on a real Kafka: topics, brokers that reject it, and brokers that freeze.
class AdminClientTest < PenstockTest
  include RealAdmin
  include SecureKafka

  # By a request that librdkafka answers with an event, and by a blocking function on a thread.
  WAYS = { "a_request" => ->(one, **options) { one.delete_topics("none", **options) },
           "a_question" => ->(one, **options) { one.topics(**options) } }.freeze

  def rejected(servers, **kafka)
    admin("bootstrap.servers": servers, log_level: 0, **kafka) { |config| config.rejection_timeout = 1_500 }
  end

  # ---- topics ----

  def test_a_topic_is_created_described_extended_and_deleted
    name = unique
    assert_equal true, @admin.create_topic(name, partitions: 2, config: { "retention.ms" => 60_000 })
    topic = @admin.topic(name)
    assert_equal [[0, 1], 1], [topic.partitions.map(&:id), topic.replication_factor]
    assert_includes @admin.cluster.brokers.map(&:id), topic.partitions.first.leader
    assert @admin.create_partitions({ name => 5 }).ok?
    eventually { @admin.topic(name).partitions.size == 5 }
    assert @admin.delete_topics(name).ok?
    refute @admin.topics.key?(name)
  end

  def test_one_topic_of_many_fails_by_itself
    there = new_topic
    name = unique
    results = @admin.create_topics({ there => {}, name => { partitions: 1 } })
    @topics << name
    assert_equal [[name], [there], :topic_already_exists], [results.ok.keys, results.errors.keys, results.errors[there].code]
    error = assert_raises(Penstock::AdminError) { results.raise! }
    assert_equal there, error.topic
  end

  def test_what_is_only_validated_is_not_created
    name = unique
    assert @admin.create_topics({ name => { partitions: 1 } }, validate_only: true).ok?
    refute @admin.topics.key?(name)
    error = assert_raises(Penstock::AdminError) { @admin.create_topic(name, replicas: [[999]], validate_only: true) }
    assert_equal :invalid_replica_assignment, error.code
  end

  # ---- brokers that reject the client ----

  WAYS.each do |name, way|
    define_method("test_#{name}_with_a_wrong_password_raises_within_the_rejection_timeout") do
      one = rejected(SASL, **LOGIN, "sasl.password": "wrong")
      elapsed = seconds_of { assert_raises(Penstock::AuthenticationError) { way.call(one, timeout: 60) } }
      assert_took(10, elapsed)
    end

    define_method("test_#{name}_with_a_certificate_for_another_host_raises_within_the_rejection_timeout") do
      one = rejected(SecureKafka::STRANGER, **TLS)
      elapsed = seconds_of { assert_raises(Penstock::TlsError) { way.call(one, timeout: 60) } }
      assert_took(10, elapsed)
    end
  end

  # ---- brokers that freeze ----

  def test_calls_on_a_frozen_kafka_end_at_their_timeout_and_work_when_it_goes_on
    skip "bin/matrix has no Java for Kafkas of its own" if ENV["PENSTOCK_MATRIX"]
    KafkaCluster.with(1) do |kafka|
      one = admin("bootstrap.servers": kafka.servers)
      one.create_topic("test", partitions: 1)
      eventually(60) { group_set?(one) }
      kafka.pause(1)
      calls = [-> { one.create_topic("late", timeout: 2) }, -> { one.topics(timeout: 2) }, -> { one.cluster(timeout: 2) },
               -> { one.alter_group_offsets("g", { "test" => { 0 => 1 } }, timeout: 2) }]
      calls.each do |call|
        assert_took(1.99..2.2, seconds_of { assert_raises(Penstock::AdminTimeoutError, &call) })
      end
      kafka.resume(1)
      assert_equal 1, one.topic("test", timeout: 60).partitions.size
      one.alter_group_offsets("g", { "test" => { 0 => 2 } }, timeout: 60)
    end
  rescue KafkaCluster::Unavailable => e
    raise if ENV["CI"]

    skip e.message
  end

  # A Kafka that has just started makes its topic of groups first. On a busy machine that once took more than a minute.
  def group_set?(admin)
    admin.alter_group_offsets("g", { "test" => { 0 => 0 } }, timeout: 15).ok?
  rescue Penstock::AdminTimeoutError
    false
  end
end

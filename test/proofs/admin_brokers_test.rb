# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/admin_test_case"
require_relative "../support/kafka_cluster"

# An admin client of three brokers, of which one stops. Each test starts its own Kafka (bin/kafka), which it may break.
class AdminBrokersTest < AdminTestCase
  PARTITIONS = 6
  # librdkafka remembers the coordinators of eleven groups. Of another one it asks a broker, perhaps the one that is frozen.
  GROUPS = Array.new(10) { |i| "group-#{i}" }

  # In CI the test fails if Kafka cannot be started.
  def with_kafka
    skip "bin/matrix has no Java for Kafkas of its own" if ENV["PENSTOCK_MATRIX"]
    KafkaCluster.with(3) do |kafka|
      @one = admin(servers: kafka.servers)
      @one.create_topic("spread", partitions: PARTITIONS, replication_factor: 3, timeout: 60)
      fill(kafka.servers)
      yield kafka
    end
  rescue KafkaCluster::Unavailable => e
    raise if ENV["CI"]

    skip e.message
  end

  # Ten messages in each partition, and groups that have committed offset 4 of each.
  def fill(servers)
    sender = Penstock::Producer.new("bootstrap.servers": servers)
    sender.produce_many_sync(Array.new(PARTITIONS * 10) { |i| { topic: "spread", payload: "x", partition: i % PARTITIONS } })
    sender.close
    GROUPS.each { |id| @one.alter_group_offsets(id, each_partition(4), timeout: 60).raise! }
  end

  def each_partition(value) = { "spread" => (0...PARTITIONS).to_h { |partition| [partition, value] } }

  def partitions = @one.topics("spread").raise!["spread"].partitions

  def led_by(broker) = partitions.select { |partition| partition.leader == broker }.map(&:id)

  def coordinated_by(broker)
    @one.describe_groups(*GROUPS).raise!.ok.select { |_, group| group.coordinator.id == broker }.keys
  end

  def test_requests_reach_each_broker_and_leaders_can_be_elected
    with_kafka do |kafka|
      assert_equal [1, 2, 3], @one.cluster.brokers.map(&:id).sort
      assert_equal [[1, 2, 3]], partitions.map { |partition| partition.replicas.sort }.uniq
      assert_equal [1, 2, 3], partitions.map(&:leader).uniq.sort
      assert_equal({ 1 => "1", 2 => "2", 3 => "3" },
                   [1, 2, 3].to_h { |id| [id, @one.broker_config(id)["node.id"].value] })
      assert_equal each_partition(10), @one.offsets(each_partition(:end)).raise!.ok
      assert_equal GROUPS.sort, @one.groups.raise!.ids
      assert_operator @one.describe_groups(*GROUPS).raise!.values.map { |group| group.coordinator.id }.uniq.size, :>, 1
      assert_equal GROUPS.to_h { |id| [id, each_partition(6)] }, @one.lag(*GROUPS).raise!.ok
      assert_predicate @one.delete_records(each_partition(5)), :ok?
      assert_equal each_partition(5), @one.offsets(each_partition(:beginning)).raise!.ok
      assert_predicate @one.delete_groups(*GROUPS), :ok?
      assert_leaders_come_back(kafka)
    end
  end

  # A broker that is killed leads nothing afterwards, until it is elected.
  def assert_leaders_come_back(kafka)
    preferred = partitions.to_h { |partition| [partition.id, partition.leader] }
    kafka.kill(1)
    eventually(60) { led_by(1).empty? && partitions.all?(&:leader) }
    kafka.start(1)
    eventually(60) { partitions.all? { |partition| partition.in_sync.size == 3 } }
    if Gem::Version.new(Penstock.librdkafka_version) < Gem::Version.new("2.6")
      assert_raises(Penstock::UnsupportedError) { @one.elect_leaders(:preferred, { "spread" => preferred.keys }) }
      return
    end
    @one.elect_leaders(:preferred, { "spread" => preferred.keys }).raise!
    eventually(30) { partitions.to_h { |partition| [partition.id, partition.leader] } == preferred }
  end

  LIMIT = 2 # seconds

  # @return [Object] of the block, which must end in time
  def in_time(what)
    start = now
    yield
  ensure
    assert_took(LIMIT * 1.1, now - start, what)
  end

  def test_a_broker_that_is_frozen_costs_only_its_own_answers
    with_kafka do |kafka|
      frozen = ([1, 2, 3] - [@one.cluster.controller]).first
      own = led_by(frozen)
      groups = coordinated_by(frozen)
      kafka.pause(frozen)
      begin
        assert_frozen(frozen, own, groups)
      ensure
        kafka.resume(frozen)
      end
      eventually(120) { answer { @one.groups(timeout: 10) }&.then { |found| found.ok? && found.ids == GROUPS.sort } }
      eventually(120) { answer { @one.offsets(each_partition(:end), timeout: 10) }&.ok? }
    end
  end

  # On a busy machine, what was frozen takes its time: a question that comes too early may get no answer.
  # @return [Object, nil] of the block
  def answer
    yield
  rescue Penstock::AdminTimeoutError
    nil
  end

  def assert_frozen(frozen, own, groups)
    in_time("broker_config") { assert_raises(Penstock::AdminTimeoutError) { @one.broker_config(frozen, timeout: LIMIT) } }
    listed = in_time("groups") { @one.groups(timeout: LIMIT) }
    assert_equal [[:timed_out], (GROUPS - groups).sort], [listed.errors.map(&:code), listed.ids]
    described = in_time("describe_groups") { @one.describe_groups(*GROUPS, timeout: LIMIT) }
    assert_equal groups.sort, described.errors.keys.sort
    assert_equal [:timed_out], described.errors.values.map(&:code).uniq
    in_time("offsets") { assert_offsets_without(own) }
  end

  # Before 2.3.0 librdkafka answers when all leaders have answered, or not at all.
  def assert_offsets_without(own)
    found = @one.offsets(each_partition(:end), timeout: LIMIT)
    assert_equal own, found.errors["spread"].keys
    assert_equal (0...PARTITIONS).to_a - own, found.ok["spread"].keys
  rescue Penstock::AdminTimeoutError
    assert_operator Gem::Version.new(Penstock.librdkafka_version), :<, Gem::Version.new("2.3")
  end
end

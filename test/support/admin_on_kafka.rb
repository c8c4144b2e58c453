# frozen_string_literal: true

require "securerandom"
require_relative "consumer_test_case"

# What the tests of an admin client on a real Kafka share: PENSTOCK_KAFKA says where it is; bin/test starts one.
class AdminOnKafka < ConsumerTestCase
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }
  START = Time.at(1_600_000_000)

  def setup
    super
    @admins = []
    @topics = []
  end

  def teardown
    @consumers.each { |consumer| consumer.close(timeout: 5) } # before their topics are deleted
    admin.delete_topics(*@topics, wait: false) if @topics.any?
    @admins.each { |made| made.close(timeout: 5) }
    @admins = @admin = @sender = nil
    super
  end

  def admin = @admin ||= new_admin

  # An admin client that is closed after the test.
  def new_admin(**kafka, &block)
    Penstock::Admin.new("bootstrap.servers": SERVERS, **kafka, &block).tap { |made| @admins << made }
  end

  def producer(servers: SERVERS, **settings, &block) = super

  def consumer(servers: SERVERS, **settings, &block) = super

  def since?(version) = Gem::Version.new(Penstock.librdkafka_version) >= Gem::Version.new(version)

  def requires(version) = (skip "librdkafka #{Penstock.librdkafka_version} is older than #{version}" unless since?(version))

  def random(prefix = "penstock-test") = "#{prefix}-#{SecureRandom.hex(6)}"

  # Message i of each partition is of the second i after START. The topic is deleted after the test.
  def new_topic(messages = 0, partitions: 1, prefix: "penstock-test")
    random(prefix).tap do |topic|
      @topics << topic
      admin.create_topic(topic, partitions:)
      sending = partitions.times.flat_map do |partition|
        Array.new(messages) { |i| { topic:, payload: "#{partition}-#{i}", partition:, timestamp: START + i } }
      end
      (@sender ||= producer).produce_many_sync(sending) if sending.any?
    end
  end

  # A member of the group that has its partitions.
  def member(group, topic, **settings)
    newer = settings.key?(:"group.protocol") # brokers decide about its session
    one = newer ? consumer("group.id": group, "auto.offset.reset": "earliest", **settings) : group_consumer(group, **settings)
    one.subscribe(topic)
    eventually(30) { one.poll(timeout: 0.1) || one.assignment.any? }
    one
  end

  # @return [Class] raised by the block, if its code is this one
  def assert_code(code, &block)
    error = block ? assert_raises(Penstock::AdminError, &block) : flunk
    assert_equal code, error.code, error.message
    error
  end
end

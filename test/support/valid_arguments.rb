# frozen_string_literal: true

# How every public method can be called: the only place in the tests that knows the arguments of all. A method without a row gets
# none. Conformance, misuse and keywords call the methods with these arguments.
module ValidArguments
  MESSAGE = { topic: "test", payload: "x", key: "k", partition: 0 }.freeze
  RECEIVED = Penstock::Message.new(topic: "test", partition: 0, offset: 0)
  CATALOG = Penstock::Admin::TopicCatalog.new { |declare| declare.topic("test") }
  ACL = Penstock::Admin::Acl.new(topic: "test", principal: "User:me", operation: :read)
  OFFSETS = { "test" => { 0 => 1 } }.freeze
  PLACES = { "test" => [0] }.freeze

  def self.args(*positional, **keywords) = [positional, keywords]
  private_class_method :args

  # By name, or by class and name where classes differ.
  TABLE = {
    # sending
    "produce_sync" => args(MESSAGE), "produce_async" => args(MESSAGE), "produce_many_sync" => args([MESSAGE]),
    "produce_many_async" => args([MESSAGE]), "tombstone_sync" => args(MESSAGE), "tombstone_async" => args(MESSAGE),
    "tombstone_many_sync" => args([MESSAGE]), "tombstone_many_async" => args([MESSAGE]), "buffer" => args(MESSAGE),
    "buffer_many" => args([MESSAGE]), "partition_count" => args("test"), "set_credentials" => args("me", "secret"),
    "Producer#with" => args(max_wait_timeout: 5), "Producer#variant" => args(topic_config: { "request.timeout.ms": 5_000 }),
    "DeliveryHandle.await_all" => args([]),
    # consuming
    "subscribe" => args("test"), "assign" => args(PLACES), "seek" => args("test", 0, 0), "rewind" => args(RECEIVED),
    "position" => args("test", 0), "mark" => args(RECEIVED), "revoked?" => args(RECEIVED), "commit" => args(OFFSETS),
    "committed" => args("test", 0), "watermarks" => args("test", 0), "Consumer#lag" => args(PLACES),
    "offsets_for_times" => args("test", 0, 0), "Consumer.select" => args([]),
    "ConsumerSet#add" => -> { args(unconnected) }, "ConsumerSet#delete" => -> { args(unconnected) },
    "ConsumerSet#include?" => -> { args(unconnected) },
    # of an admin client
    "create_topic" => args("test"), "create_topics" => args({ "test" => {} }), "delete_topics" => args("test"),
    "create_partitions" => args({ "test" => 5 }), "Admin#topic" => args("test"), "topics" => args("test"),
    "configs" => args(topics: ["test"]), "Admin#topic_config" => args("test"), "broker_config" => args(1),
    "group_config" => args("test"), "alter_configs" => args({ topics: { "test" => { "a" => 1 } } }), "create_acls" => args(ACL),
    "delete_acls" => args({ topic: "test" }), "alter_scram_users" => args(delete: { "me" => "SCRAM-SHA-256" }),
    "Admin#group" => args("test"), "describe_groups" => args("test"), "delete_groups" => args("test"),
    "Admin#lag" => args("test"), "group_offsets" => args({ "test" => nil }), "alter_group_offsets" => args("test", OFFSETS),
    "reset_group_offsets" => args("test", to: :end), "delete_group_offsets" => args("test", PLACES),
    "offsets" => args({ "test" => { 0 => :end } }), "delete_records" => args(OFFSETS),
    "elect_leaders" => args(:preferred, PLACES),
    "plan" => args(CATALOG), "apply" => args(CATALOG),
    # of an embedded cluster
    "inject_errors" => args(:produce, :transport), "clear_errors" => args(:produce), "set_round_trip_time" => args(seconds: 0),
    "broker_down" => args(1), "broker_up" => args(1), "move_leader" => args("test", 0, 1),
    # of the clients inside producers, which only Penstock calls
    "produce" => args(MESSAGE), "produce_many" => args([MESSAGE], 100), "oauthbearer_set_token_failure" => args("none")
  }.freeze

  class << self
    # @return [Array(Array, Hash)] positional arguments and keywords
    def of(object, name)
      type, mark = object.is_a?(Module) ? [object, "."] : [object.class, "#"]
      row = TABLE.fetch("#{type.name.to_s.delete_prefix("Penstock::")}#{mark}#{name}") { TABLE.fetch(name.to_s, [[], {}]) }
      row.respond_to?(:call) ? row.call : row
    end

    # @param more [Hash] further keywords
    def call(object, name, *also, **more, &block)
      positional, keywords = of(object, name)
      without_warnings { object.public_send(name, *positional, *also, **keywords, **more, &block) }
    end

    private

    # Ruby 3.4 warns of a block that a method ignores.
    def without_warnings
      verbose = $VERBOSE
      $VERBOSE = false
      yield
    ensure
      $VERBOSE = verbose
    end

    def unconnected = Penstock::Consumer.new("bootstrap.servers": "a")
  end
end

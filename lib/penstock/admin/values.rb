# frozen_string_literal: true

module Penstock
  class Admin
    # What an admin client knows of a cluster, as frozen values that Ractors may share. Each is a Struct with keywords: it can be
    # compared, matched by patterns, and turned into a Hash. nil stands for what is unknown.
    # @api private
    module Value
      include AsJson

      # @param members [Array<Symbol>]
      # @yield the body of the class
      # @return [Class]
      def self.of(*members, &body)
        Struct.new(*members) do
          include Value
          # Ruby's own initialize with keywords takes twice as long, and there may be 10,000 partitions.
          class_eval(<<~RUBY, __FILE__, __LINE__ + 1)
            def initialize(#{members.map { |name| "#{name}: nil" }.join(", ")}) # def initialize(id: nil, ...)
              super(#{members.map { |name| "#{name}.freeze" }.join(", ")})      #   super(id.freeze, ...)
              freeze
            end
          RUBY
          class_eval(&body) if body
        end
      end

      # @return [String] without what is unknown
      def inspect
        shown = to_h.compact.map { |name, value| "#{name}=#{value.inspect}" }
        "#<#{self.class} #{shown.join(" ")}>"
      end
      alias to_s inspect

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(**to_h)
    end

    # The names of Kafka's operations in the order of its protocol, for rights and ACLs.
    OPERATIONS = %i[
      unknown any all read write create delete alter describe cluster_action describe_configs alter_configs idempotent_write
    ].freeze
    private_constant :OPERATIONS

    # A broker.
    #
    # - `id` [Integer]
    # - `host` [String], `port` [Integer]: where clients reach it
    # - `rack` [String, nil]: requires librdkafka 2.3.0
    Broker = Value.of(:id, :host, :port, :rack)

    # A cluster.
    #
    # - `id` [String, nil]
    # - `controller` [Integer, nil]: the id of the broker to which requests for the controller go
    # - `brokers` [Array<{Broker}>]: that are up
    # - `authorized_operations` [Array<Symbol>, nil]: what this client may do with the cluster, if it was asked for
    Cluster = Value.of(:id, :controller, :brokers, :authorized_operations)

    # A topic.
    #
    # - `name` [String]
    # - `id` [String, nil]: requires librdkafka 2.3.0
    # - `internal` [Boolean, nil]: whether Kafka itself uses it. Requires librdkafka 2.3.0
    # - `partitions` [Array<{Partition}>]: in order
    # - `authorized_operations` [Array<Symbol>, nil]: what this client may do with the topic, if it was asked for
    Topic = Value.of(:name, :id, :internal, :partitions, :authorized_operations) do
      # @return [Integer] how many replicas the partitions have; of different numbers the smallest
      def replication_factor = partitions.map { |partition| partition.replicas.size }.min || 0
    end

    # A partition.
    #
    # - `topic` [String], `id` [Integer]
    # - `leader` [Integer, nil]: the id of the broker that leads it; nil: none does
    # - `replicas`, `in_sync` [Array<Integer>]: ids of brokers
    Partition = Value.of(:topic, :id, :leader, :replicas, :in_sync)

    # A setting of a topic, broker or group.
    #
    # - `name` [String]
    # - `value` [String, nil]: nil for a sensitive one, whose value Kafka never gives away, or without a value
    # - `source` [Symbol]: where the value comes from. `:topic`, `:group`, `:dynamic_broker`: it was set for this topic, group or
    #   broker. `:dynamic_default_broker`: for all brokers. `:static_broker`: a broker's file. `:default`: Kafka's own.
    #   `:broker_logger`, `:client_metrics`, `:unknown`
    # - `read_only` [Boolean]: whether it cannot be changed while the brokers run
    # - `sensitive` [Boolean]: whether it is a password, key or the like
    # - `synonyms` [Array<{ConfigSynonym}>]: all places that give it a value, the one that counts first
    ConfigEntry = Value.of(:name, :value, :source, :read_only, :sensitive, :synonyms) do
      # @return [Boolean] whether nobody has set it
      def default? = source == :default

      # @return [Boolean]
      def read_only? = read_only

      # @return [Boolean]
      def sensitive? = sensitive

      # @return [String] without synonyms
      def inspect
        shown = sensitive ? Secret::HIDDEN : value.inspect
        "#<#{self.class} #{name}=#{shown} source=#{source.inspect}#{" read_only" if read_only}>"
      end
      alias_method :to_s, :inspect
    end

    # What a user logs in with by SCRAM.
    #
    # - `user` [String]
    # - `mechanism` [Symbol]: `:"SCRAM-SHA-256"`, `:"SCRAM-SHA-512"` or `:unknown`
    # - `iterations` [Integer]
    ScramCredential = Value.of(:user, :mechanism, :iterations)

    # A place that gives a setting a value.
    #
    # - `name` [String]: there, for example `log.retention.ms` of a broker for `retention.ms` of a topic
    # - `value` [String, nil], `source` [Symbol]: see {ConfigEntry}
    ConfigSynonym = Value.of(:name, :value, :source)

    # A group in a list.
    #
    # - `id` [String]
    # - `state` [Symbol]: :stable, :empty, :preparing_rebalance, :completing_rebalance, :dead; :unknown: another one, such as that
    #   of a rebalancing group of the type :consumer
    # - `type` [Symbol, nil]: :classic or :consumer (`group.protocol`). Requires librdkafka 2.6.0
    # - `simple` [Boolean]: whether it is only a name for committed offsets, without any member until now
    GroupListing = Value.of(:id, :state, :type, :simple) do
      # @return [Boolean]
      def simple? = simple
    end

    # A group and its members.
    #
    # - `id`, `state`, `simple`: see {GroupListing}; `type` requires librdkafka 2.10.0
    # - `assignor` [String, nil]: what divides the partitions, such as "range" or "uniform"
    # - `coordinator` [{Broker}]
    # - `members` [Array<{Member}>]
    # - `authorized_operations` [Array<Symbol>, nil]: what this client may do with the group, if it was asked for
    Group = Value.of(:id, :state, :type, :simple, :assignor, :coordinator, :members, :authorized_operations) do
      # @return [Boolean]
      def simple? = simple
    end

    # A member of a group.
    #
    # - `id` [String]
    # - `client_id`, `host` [String, nil]
    # - `instance_id` [String, nil]: `group.instance.id`
    # - `assignment` [Hash{String => Array<Integer>}]: its partitions by topic
    # - `target` [Hash{String => Array<Integer>}, nil]: the partitions that it gets in the end, in a group of the type :consumer.
    #   Requires librdkafka 2.10.0
    Member = Value.of(:id, :client_id, :host, :instance_id, :assignment, :target)

    # What {Admin#reset_group_offsets} changes for a partition.
    #
    # - `before` [Integer, nil]: the committed offset; nil: there was none
    # - `after` [Integer]
    OffsetChange = Value.of(:before, :after)
  end
end

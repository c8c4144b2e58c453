# frozen_string_literal: true

module Penstock
  # A Kafka cluster inside this process, for demos and tests: librdkafka's mock brokers, on 127.0.0.1. Other processes
  # can connect to it. It supports produce, fetch, groups and transactions, and keeps about 5 MB a partition in memory.
  # Producing to an unknown topic creates it, with 4 partitions. It has no admin API, no read_committed isolation, no security.
  #
  # librdkafka's mock brokers draw producer ids at random from 900,000. If a transactional producer draws the id of another
  # producer, its transaction fails (`:invalid_producer_id_mapping`) after `config.max_wait_timeout`. With 100 producers that
  # happens to about one cluster in 200: give tests with many transactions a cluster each.
  #
  #     cluster = Penstock::EmbeddedCluster.new(brokers: 3)
  #     cluster.create_topic("events", partitions: 6)
  #     cluster.inject_errors(:produce, :not_leader_for_partition)
  #     cluster.close
  #
  # Every method blocks for about a ms, rarely for a second, without the GVL. Any thread may call it. A fork child
  # cannot use it, but can connect to it. Programs that the process starts inherit its connections. After {#close} every method
  # but {#close} and {#closed?} raises {ProducerClosedError}.
  class EmbeddedCluster
    extend RequiresSuper
    include Uncopyable
    include AsJson

    # Kafka's numbers of its requests (protocol "API keys").
    API_KEYS = {
      produce: 0, fetch: 1, list_offsets: 2, metadata: 3, offset_commit: 8, offset_fetch: 9, find_coordinator: 10,
      join_group: 11, heartbeat: 12, leave_group: 13, sync_group: 14, sasl_handshake: 17, api_versions: 18,
      init_producer_id: 22, add_partitions_to_txn: 24, add_offsets_to_txn: 25, end_txn: 26, txn_offset_commit: 28
    }.freeze

    # @return [Integer] number of brokers; their ids are 1 to this number
    attr_reader :brokers

    # @param brokers [Integer] 1 to 100
    # @raise [ArgumentError] when the number is out of range
    # @overload initialize(brokers: 1)
    def initialize(*more, brokers: 1, **wrong)
      Keywords.check("new(brokers: 1)", %i[brokers], more, wrong)
      @brokers = integer(:brokers, brokers, 1..100)
      call_start(brokers)
    end

    # @!method bootstrap_servers
    #   @return [String] "127.0.0.1:port,..." for `config.kafka["bootstrap.servers"]`
    # @!method close
    #   Stops the brokers. Producers still connected lose them. Closing again does nothing.
    #   @return [nil]
    # @!method closed?
    #   @return [Boolean]

    # @param topic [String, Symbol]
    # @param partitions [Integer] 1 to 10_000
    # @param replication_factor [Integer] 1 to {#brokers}
    # @return [nil]
    # @raise [Error] when the topic exists already
    # @overload create_topic(topic, partitions: 1, replication_factor: 1)
    def create_topic(topic, *more, partitions: 1, replication_factor: 1, **wrong)
      Keywords.check("create_topic(topic, partitions: 1, replication_factor: 1)", %i[partitions replication_factor], more, wrong)
      call_create_topic(topic.to_s, integer(:partitions, partitions, 1..10_000),
                        integer(:replication_factor, replication_factor, 1..brokers))
    end

    # Makes the next requests of a kind fail, one for each error, in that order.
    #
    # @param api [Symbol, Integer] one of {API_KEYS}
    # @param errors [Array<Symbol, Integer>] such as :not_leader_for_partition, :request_timed_out, or
    #   :transport, which drops the connection
    # @return [nil]
    # @raise [ArgumentError] when the request or error is unknown
    def inject_errors(api, *errors)
      call_inject_errors(api_key(api), errors.flatten.map { |error| error_code(error) })
    end

    # Removes the injected errors of a kind of request that have not occurred yet.
    # @return [nil]
    def clear_errors(api) = call_clear_errors(api_key(api))

    # Delays every answer.
    # @param seconds [Numeric] 0 to 600; 0: no delay
    # @param broker [Integer, nil] its id; nil: all
    # @return [nil]
    # @raise [ArgumentError] when the time or broker is invalid
    # @overload set_round_trip_time(seconds:, broker: nil)
    def set_round_trip_time(*more, seconds: nil, broker: nil, **wrong)
      Keywords.check("set_round_trip_time(seconds: 0.3, broker: 1)", %i[seconds broker], more, wrong)
      unless seconds.is_a?(Numeric) && seconds.real? && seconds >= 0 && seconds <= 600
        raise ArgumentError, "seconds must be a number from 0 to 600, not #{seconds.inspect}"
      end

      time = (seconds * 1000).ceil
      (broker ? [broker_id(broker)] : 1..brokers).each { |id| call_set_rtt(id, time) }
      nil
    end

    # Stops a broker: it closes its connections and accepts none until {#broker_up}.
    # @param broker [Integer] its id
    # @return [nil]
    def broker_down(broker) = call_broker_down(broker_id(broker))

    # @param broker [Integer] its id
    # @return [nil]
    def broker_up(broker) = call_broker_up(broker_id(broker))

    # Makes another broker the leader of a partition. Clients learn it by the error NOT_LEADER.
    # @return [nil]
    # @raise [Error] when the topic has no such partition; a missing topic is created
    def move_leader(topic, partition, broker)
      call_move_leader(topic.to_s, integer(:partition, partition, 0..2**31 - 1), broker_id(broker))
    end

    # @return [String] its address, or that it is closed
    def inspect = closed? ? "#<#{self.class} closed>" : "#<#{self.class} #{bootstrap_servers}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(brokers:, bootstrap_servers: closed? ? nil : bootstrap_servers)

    private

    # @see RequiresSuper
    def initialized? = !@brokers.nil?

    def integer(name, value, range)
      return value if value.is_a?(Integer) && range.cover?(value)

      raise ArgumentError, "#{name} must be an Integer from #{range.first} to #{range.last}, not #{value.inspect}"
    end

    def broker_id(value) = integer(:broker, value, 1..brokers)

    def api_key(api)
      return integer(:api, api, 0..2**15 - 1) if api.is_a?(Integer)

      API_KEYS.fetch(api) { raise ArgumentError, "no request #{api.inspect}; known: #{API_KEYS.keys.join(", ")}" }
    end

    def error_code(error)
      return integer(:error, error, -2**15..2**15 - 1) if error.is_a?(Integer)

      codes = EmbeddedCluster.__send__(:error_codes)
      codes[error] || codes[:"_#{Text.printable(error)}"] or
        raise ArgumentError, "no error #{error.inspect}#{Suggestion.hint(error, codes.keys)}"
    end
  end
end

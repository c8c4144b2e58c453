# frozen_string_literal: true

class HostileBroker
  # One lie: the request that it answers, how often, and how much the client's memory may grow.
  class Attack
    # The client of client.rb that sends each request soonest.
    CLIENTS = {
      api_versions: :produce, metadata: :produce, produce: :produce, init_producer_id: :produce_idempotently,
      add_partitions_to_txn: :transact, end_txn: :transact, find_coordinator: :subscribe, join_group: :subscribe,
      sync_group: :subscribe, heartbeat: :subscribe, leave_group: :subscribe, offset_fetch: :subscribe, offset_commit: :subscribe,
      list_offsets: :assign, fetch: :assign, sasl_handshake: :produce_sasl, sasl_authenticate: :produce_sasl,
      describe_groups: :admin_describe_groups, list_groups: :admin_list_groups, create_topics: :admin_create_topics,
      delete_topics: :admin_delete_topics, delete_records: :admin_delete_records, describe_acls: :admin_acls,
      create_acls: :admin_create_acls, delete_acls: :admin_delete_acls, describe_configs: :admin_describe_configs,
      alter_configs: :admin_alter_configs, create_partitions: :admin_create_partitions, delete_groups: :admin_delete_groups,
      elect_leaders: :admin_elect_leaders, incremental_alter_configs: :admin_alter_configs,
      offset_delete: :admin_delete_group_offsets, describe_scram_users: :admin_scram_users,
      alter_scram_users: :admin_alter_scram_users
    }.freeze
    ALWAYS = Float::INFINITY
    GROWTH = 48 # MB

    SECONDS = 1

    attr_reader :name, :api, :client, :settings, :growth, :seconds, :delivered

    # @param way [String] the kind of lie
    # @param api [Symbol] of GoodAnswers::NAMES
    # @param times [Numeric] how many requests to attack; later ones get good answers, so that the client recovers
    # @param growth [Integer] MB that the client's resident memory may grow by
    # @param seconds [Numeric] how long a consumer polls, unless it gets all messages sooner
    # @param settings [Hash] the client's settings
    # @param optional [Boolean] whether some clients never send the request, or use a version without the field
    # @yieldparam exchange [Exchange]
    def initialize(way, api, client: CLIENTS.fetch(api), times: 1, growth: GROWTH, seconds: SECONDS, settings: {},
                   optional: false, &deliver)
      @name = "#{api} (#{client}): #{way}#{" always" if times == ALWAYS}"
      @api = api
      @client = client
      @times = times
      @growth = growth
      @seconds = seconds
      @settings = settings
      @optional = optional
      @deliver = deliver
      @delivered = 0
      @lock = Mutex.new
    end

    def optional? = @optional

    # Starts over for another client.
    def again(_try) = tap { @delivered = 0 }

    def call(exchange)
      return unless exchange.api == @api && @lock.synchronize { (@delivered += 1) <= @times }

      @deliver.call(exchange)
    end
  end
end

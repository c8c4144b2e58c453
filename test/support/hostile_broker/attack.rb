# frozen_string_literal: true

class HostileBroker
  # One lie: which request it answers, how often, and how much the client may grow by it.
  class Attack
    # The client of client.rb that comes to a request soonest.
    CLIENTS = {
      api_versions: :produce, metadata: :produce, produce: :produce, init_producer_id: :produce_idempotently,
      add_partitions_to_txn: :transact, end_txn: :transact, find_coordinator: :subscribe, join_group: :subscribe,
      sync_group: :subscribe, heartbeat: :subscribe, leave_group: :subscribe, offset_fetch: :subscribe, offset_commit: :subscribe,
      list_offsets: :assign, fetch: :assign, sasl_handshake: :produce_sasl, sasl_authenticate: :produce_sasl
    }.freeze
    ALWAYS = Float::INFINITY
    GROWTH = 48 # MB

    SECONDS = 1

    attr_reader :name, :api, :client, :settings, :growth, :seconds, :delivered

    # @param way [String] of lying
    # @param api [Symbol] of GoodAnswers::NAMES
    # @param times [Numeric] the first so many requests; later ones get good answers, so that the client recovers
    # @param growth [Integer] MB that the client's resident memory may grow by
    # @param seconds [Numeric] that a consumer polls for, if it does not get all messages sooner
    # @param settings [Hash] of the client
    # @param optional [Boolean] some clients never come so far, or speak a version without the field
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

    # Again from the beginning, for another client.
    def again(_try) = tap { @delivered = 0 }

    def call(exchange)
      return unless exchange.api == @api && @lock.synchronize { (@delivered += 1) <= @times }

      @deliver.call(exchange)
    end
  end
end

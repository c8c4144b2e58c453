# frozen_string_literal: true

require "securerandom"

module Penstock
  # The settings of one consumer, set in the block of {Consumer#initialize} and frozen after it.
  #
  # Durations are in milliseconds, like Kafka's own.
  class ConsumerConfig < ConfigSection
    include ConfigChecks

    # librdkafka settings that differ from its defaults unless they are given. docs/configuration.md quotes the reasons.
    KAFKA_DEFAULTS = {
      "client.id": "penstock", # brokers show it in logs, metrics and quotas
      log_level: 4, # warnings and worse
      "socket.nagle.disable": true # requests are not delayed
    }.freeze

    # librdkafka requires a group even for a consumer without one. Nothing is ever committed to this group.
    WITHOUT_GROUP = { "group.id": "penstock.none", "enable.auto.commit": false }.freeze
    # librdkafka's default for "message.max.bytes".
    LARGEST_MESSAGE = 1_000_000
    # That for "fetch.max.bytes".
    LARGEST_FETCH = 52_428_800
    STORE = "enable.auto.offset.store"
    LONGEST_POLL = "max.poll.interval.ms"
    LONGEST_POLL_DEFAULT = 300_000
    RESET = "auto.offset.reset"
    RESETS = { beginning: "earliest", end: "latest" }.freeze
    private_constant :WITHOUT_GROUP, :LARGEST_MESSAGE, :LARGEST_FETCH, :STORE, :LONGEST_POLL, :LONGEST_POLL_DEFAULT,
                     :RESET, :RESETS

    # ---- Identity and connection ----

    # Identifies the consumer in errors and logs. The default is "penstock-consumer-" and 12 hex digits.
    # @return [String]
    setting :id, checked_values("String")
    # librdkafka's settings by name: Symbol or String to Integer, Float, String, true or false. "bootstrap.servers" is
    # required, and "group.id" for everything but {Consumer#assign}.
    # @return [Hash]
    setting :kafka, checked_values("Hash"), default: {}
    # Receives librdkafka's log lines, and errors while the consumer is polled, on the dispatcher thread. nil: they go to
    # stderr, and no Ruby thread is needed.
    # @return [Logger, nil]
    setting :logger, object_with(:add, "Logger", "a Logger")
    # @return [OAuth]
    group :oauth, OAuth

    # ---- Offsets ----

    # When a message counts as processed, so that the consumer may commit the offset after it. `:next_poll`: when the fiber or
    # thread that polled it polls again. `:manual`: when the program calls {Consumer#mark}. `:at_once`: when it is polled; a
    # process that crashes then loses the messages that it works on. "enable.auto.offset.store" in {#kafka} stands for `:at_once`
    # (true) or `:manual` (false).
    # @return [Symbol]
    setting :mark, one_of(:next_poll, :manual, :at_once), default: :next_poll

    # ---- Groups ----

    # The consumer calls it when the group assigns partitions to it or takes them away: any of the methods `assigned(rebalance)`,
    # `revoked(rebalance)` and `lost(rebalance)`, which get a {Rebalance}. They run in the thread or fiber that polls, or in the
    # thread of {Consumer#keep_alive}, before the consumer answers the group, and may commit and choose start offsets. The group
    # waits meanwhile. `revoked` comes before the partitions go to other members, also in {Consumer#close}; `lost` after that
    # (without it `revoked` is called). An error that is raised comes out of the poll, after the answer.
    # @return [#assigned, #revoked, #lost, nil]
    setting :rebalance_listener, checked_values("#assigned", "#revoked", "#lost", "nil")

    # Where the group begins to read a partition for which it has not committed an offset. `:beginning` and `:end` stand for
    # "auto.offset.reset" in {#kafka}. A Time begins at the first message with this timestamp or a later one, at the end if there
    # is none; `[:last, 10]` 10 offsets before the end. For these two, the consumer asks brokers for the offsets when the group
    # assigns partitions. While they do not answer, each poll raises the error after at most 5 s, and the next poll asks again,
    # at most once a second: nothing is read from the wrong place. {Rebalance#start_at} has precedence.
    # @return [:beginning, :end, Time, Array(Symbol, Integer), nil]
    setting :start_at, checked_values(":beginning", ":end", "Time", "[:last, Integer]", "nil")

    # How long a revocation of partitions waits while messages of them are in work: polled by a thread or fiber that has not
    # polled again, and not marked. The other members of the group wait meanwhile. With 0 the consumer gives up such partitions
    # at once, and another member reads these messages again. It concerns programs in which several threads use a consumer, or
    # that call {Consumer#keep_alive}: otherwise no message is in work when the consumer polls. It must be less than
    # "max.poll.interval.ms" (300_000): a revocation that waits does not count as polling, and the group goes on without the
    # consumer then.
    # @return [Integer]
    setting :hold_rebalances, milliseconds(0..), default: 0

    # ---- Events ----

    # Publishes the events of the consumer. nil: a new {Monitor}, which {Consumer#monitor} returns.
    # @return [Monitor, nil]
    setting :monitor, object_with(:instrument, "Monitor", "a Penstock::Monitor")

    # ---- Messages ----

    # Makes the object of a payload: {Message#value} and {Batch#values} return it. They call it when the object is read, in the
    # thread that reads. It has the values of {Config#serializer}, so give both the same one:
    #
    #     config.deserializer = Penstock::MessagePack # or a Factory or Pool of it, :json, ->(bytes) { ... }
    #
    # `:json` stands for JSON.parse. Anything else has a method `load(bytes)` or `call(bytes)`. If it has both, `load` is called.
    # Of `JSON` itself, the additions are not created. The bytes are a frozen binary String. A tombstone's value is nil, without a
    # call.
    #
    # If it raises, reading this value raises {DeserializationError}. Other messages are not affected. Messages are shareable
    # between Ractors only without deserializers, batches if the deserializers are shareable, such as modules and `:json`.
    # @return [:json, #load, #call, nil]
    setting :deserializer, checked_values(":json", "#load", "#call", "nil")
    # The same for keys: {Message#decoded_key} and {Batch#decoded_keys}. A message without a key has nil.
    # @return [:json, #load, #call, nil]
    setting :key_deserializer, checked_values(":json", "#load", "#call", "nil")

    # ---- Tests ----

    # Replaces librdkafka, for example by {Clients::InMemoryConsumer}. Nothing connects.
    # @return [Class, nil]
    setting :client_class, checked_values("Class", "nil")

    # ---- Watching ----

    # After how long a partition counts as stuck: it is assigned and not paused, has more messages, and none arrives. The event
    # "partition.stuck" is published then. A thread of Ruby, which all consumers share, asks the brokers for the ends of
    # partitions from which nothing came.
    # @return [Integer, nil]
    setting :stuck_after, milliseconds(1.., none: "partitions are not watched")
    # Whether librdkafka is made to fetch a stuck partition anew, with a seek to the position that it has. Requires
    # {#stuck_after}.
    # @return [Boolean]
    setting :restart_stuck, boolean, default: false

    # ---- Limits ----

    # About how much memory fetched messages may take that the program has not polled yet. librdkafka fetches no more while its
    # queue is that full. Messages that the program has polled do not count. Settings in {#kafka}, such as
    # "queued.min.messages", replace those that are computed from it (docs/consuming.md).
    # @return [Integer, nil]
    setting :memory, bytes((8 << 20).., none: "268_435_456; with client.rack and librdkafka before 2.2.0 536_870_912")
    # How long closing takes at most, when the consumer is closed without a timeout, is garbage-collected, or is still open at
    # the end of the process. See {Consumer#close}.
    # @return [Integer]
    setting :close_timeout, milliseconds(0..), default: 10_000
    # How long brokers may reject the client (certificate, password, protocol) before calls fail. If no connection works for
    # this time, {Consumer#poll} and calls that wait for brokers raise the cause ({BrokerRejectedError}). They raise again
    # each second while the rejection lasts. The consumer keeps trying, and reads once brokers accept it.
    # @return [Integer, nil]
    setting :rejection_timeout, milliseconds(0.., none: "calls wait, and polls return nothing"), default: 10_000

    def initialize
      super
      @id = "penstock-consumer-#{SecureRandom.hex(6)}"
      @group = nil # until the configuration is finished: it then has a group that librdkafka requires
    end

    # @return [Boolean] whether a "group.id" was given
    def group? = @group.nil? ? group_given? : @group

    # @return [String] without the values of settings, which may be secret
    def inspect
      "#<#{self.class} id=#{id.inspect} kafka=#{kafka.respond_to?(:keys) ? kafka.keys.inspect : "?"}>"
    end

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(id:)

    private

    # @raise [ConfigurationInvalidError] when a setting is invalid; the message names the first
    # @return [self] frozen
    def finish
      check_settings
      check_rebalance_listener
      check_start_at
      check_stuck
      check_deserializers
      check_client_class
      check_id
      warn_of_short_times
      check_kafka
      check_hold
      @group = group_given?
      read_store
      check_commits unless @group
      @kafka = with_defaults({ **KAFKA_DEFAULTS, **fetch_limits, **group_protocol, **offset_reset })
      @kafka = @kafka.reject { |name, _| WITHOUT_GROUP.key?(name.to_s.to_sym) }.merge(WITHOUT_GROUP) unless @group
      @kafka = @kafka.reject { |name, _| name.to_s == STORE }.merge(STORE.to_sym => false)
      @kafka = checked(@kafka, role: :consumer, token_provider: oauth.token_provider_listener)
      freeze
    end

    # For {Producer#transaction}. A consumer that commits by itself would commit what a transaction has aborted. And only a
    # read_committed consumer that gets a partition waits for the end of the transactions of the partition's previous reader.
    # @raise [ConfigurationInvalidError]
    def check_transactions
      group? or raise_invalid("transaction(consumer) requires config.kafka[\"group.id\"]")
      value?("enable.auto.commit", "false") or
        raise_invalid("transaction(consumer) requires \"enable.auto.commit\": false, as only the transaction may commit offsets")
      return if given("isolation.level").nil? || value?("isolation.level", "read_committed")

      raise_invalid("transaction(consumer) requires \"isolation.level\": \"read_committed\", the default; without it, the next " \
                    "reader of a partition would not wait for the end of this one's transaction")
    end

    def value?(name, expected) = !given(name).nil? && Settings.read(name, given(name)) == expected

    # Penstock stores offsets itself.
    def read_store
      store = given(STORE)
      return if store.nil?

      @mark = { "true" => :at_once, "false" => :manual }.fetch(Settings.read(STORE, store)) do
        raise ErrorFactory.build(ConfigurationInvalidError, "config.kafka: #{STORE} must be true or false, not #{store.inspect}")
      end
    end

    def group_given? = !given("group.id").to_s.empty?

    def check_rebalance_listener
      check("rebalance_listener", rebalance_listener, "an object with a method assigned, revoked or lost, or nil") do
        rebalance_listener.nil? || %i[assigned revoked lost].any? { |name| rebalance_listener.respond_to?(name) }
      end
    end

    def check_start_at
      @start_at = @start_at.dup.freeze if @start_at.is_a?(Array)
      check("start_at", start_at, ":beginning, :end, a Time since 1970, [:last, 10] or nil") do
        RESETS.key?(start_at) || start_at.nil? || (start_at.is_a?(Time) ? start_at.to_i >= 0 : last?(start_at))
      end
      return if start_at.nil? || RESETS.key?(start_at) || group_given?

      raise_invalid("config.start_at requires config.kafka[\"group.id\"]; without a group, name the place in `assign`")
    end

    def check_stuck
      return unless restart_stuck && stuck_after.nil?

      raise_invalid("config.restart_stuck requires config.stuck_after, the milliseconds after which a partition is stuck")
    end

    # No event is taken from librdkafka while a revocation waits. So after that time it takes the program for dead, and leaves the
    # group. Brokers wait for a member's answer for the same time.
    def check_hold
      return unless group_given?

      limit = Integer(given(LONGEST_POLL) || LONGEST_POLL_DEFAULT, exception: false) # librdkafka rejects others
      return if limit.nil? || hold_rebalances.zero? || hold_rebalances < limit

      raise_invalid("config.hold_rebalances (#{hold_rebalances} ms) must be less than #{LONGEST_POLL} (#{limit} ms), after " \
                    "which the group goes on without the consumer")
    end

    def last?(place)
      place.is_a?(Array) && place.size == 2 && place[0] == :last && place[1].is_a?(Integer) && place[1].between?(0, (2**63) - 1)
    end

    # librdkafka has one setting for both.
    def offset_reset
      wanted = RESETS[start_at] or return {}
      reset = given(RESET)
      return { RESET.to_sym => wanted } if reset.nil? || Settings.read(RESET, reset) == Settings.read(RESET, wanted)

      raise_invalid("config.start_at #{start_at.inspect} stands for #{RESET} \"#{wanted}\", but config.kafka sets #{RESET} " \
                    "to another value: set only one of them")
    end

    def check_deserializers
      { "deserializer" => deserializer, "key_deserializer" => key_deserializer }.each do |name, given|
        check(name, given, "nil, :json or an object with a method load or call that takes the bytes") do
          given.nil? || Codec.method_of(given, :load)
        end
      end
    end

    def check_client_class
      check("client_class", client_class, "nil or a class for consumers, such as Penstock::Clients::InMemoryConsumer") do
        client_class.nil? || (client_class.is_a?(Class) && client_class.method_defined?(:poll_batch))
      end
    end

    def fetch_limits
      largest = Integer(given("message.max.bytes"), exception: false) || LARGEST_MESSAGE # invalid ones are reported later
      limits = FetchLimits.settings(memory, largest, given("client.rack"))
      queued = Integer(given("queued.max.messages.kbytes"), exception: false)
      wanted = queued ? [queued * 1024, LARGEST_FETCH].min : limits[:"fetch.max.bytes"]
      receive = Integer(given("receive.message.max.bytes"), exception: false)
      limits.merge("fetch.max.bytes": FetchLimits.fetch_bytes(wanted, receive, largest))
    end

    # librdkafka plans another default, which would move existing groups to another protocol. Before 2.4.0 it knows only this one,
    # and has no such setting.
    def group_protocol = Settings.read("group.protocol", "classic") ? { "group.protocol": "classic" } : {}

    def given(name) = kafka.fetch(name.to_sym) { kafka[name] }

    def check_commits
      commits = given("enable.auto.commit")
      return if commits.nil? || Settings.read("enable.auto.commit", commits) != "true"

      raise ErrorFactory.build(ConfigurationInvalidError, "config.kafka: enable.auto.commit requires \"group.id\"")
    end
  end
end

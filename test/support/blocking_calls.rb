# frozen_string_literal: true

require_relative "documented_methods"
require_relative "valid_arguments"

# Every public method that can block, once, and how to make it block on a cluster that does not answer.
module BlockingCalls
  # `stuck`: the kind of object that {Stuck} makes for it. `call` gets that object, and the deadline's seconds, if it has a
  # deadline. `ends`: the class that the call returns or raises at its deadline, or nil if it has no deadline. `trap`: the error
  # in a signal trap, or nil if it works there. `brief`: only librdkafka's own thread can block it, for a ms, and no cluster can.
  # `since`: the librdkafka that it requires.
  Call = Struct.new(:name, :stuck, :call, :ends, :trap, :brief, :since, keyword_init: true) do
    def slug = name.gsub(/\W+/, "_").downcase
    def run(on, seconds) = call.call(on, seconds)
    def possible? = since.nil? || Gem::Version.new(Penstock.librdkafka_version) >= Gem::Version.new(since)
  end

  MESSAGE = ValidArguments::MESSAGE
  LATE = Penstock::WaitTimeoutError
  RAISES = Penstock::SignalTrapError
  FULL = Penstock::QueueFullError
  FULL_MANY = Penstock::ProduceManyError

  # What Producer and Variant share. The deadline is the producer's max_wait_timeout, or its wait_timeout_on_queue_full.
  SENDING = {
    produce_sync: [:dead, ->(one, _) { one.produce_sync(MESSAGE) }, LATE],
    produce_many_sync: [:dead, ->(one, _) { one.produce_many_sync([MESSAGE] * 2) }, LATE],
    tombstone_sync: [:dead, ->(one, _) { one.tombstone_sync(MESSAGE) }, LATE],
    tombstone_many_sync: [:dead, ->(one, _) { one.tombstone_many_sync([MESSAGE]) }, LATE],
    produce_async: [:full, ->(one, _) { one.produce_async(MESSAGE) }, FULL],
    produce_many_async: [:full, ->(one, _) { one.produce_many_async([MESSAGE]) }, FULL_MANY],
    tombstone_async: [:full, ->(one, _) { one.tombstone_async(MESSAGE) }, FULL],
    tombstone_many_async: [:full, ->(one, _) { one.tombstone_many_async([MESSAGE]) }, FULL_MANY],
    flush_sync: [:dead, ->(one, _) { one.buffer(MESSAGE) && one.flush_sync }, LATE, RAISES],
    flush_async: [:full, ->(one, _) { one.buffer(MESSAGE) && one.flush_async }, FULL_MANY, RAISES],
    transaction: [:unreachable, ->(one, _) { one.transaction { nil } }, Penstock::TransactionError, RAISES]
  }.flat_map do |name, (stuck, call, ends, trap)|
    [
      Call.new(name: "Producer##{name}", stuck:, call:, ends:, trap:),
      Call.new(name: "Variant##{name}", stuck: :"#{stuck}_variant", call:, ends:, trap:)
    ]
  end

  PRODUCER = [
    Call.new(name: "Producer#flush", stuck: :dead, call: ->(one, seconds) { one.flush(timeout: seconds) }, ends: LATE),
    Call.new(name: "Producer#partition_count", stuck: :dead, call: ->(one, _) { one.partition_count("test") }), # 5 s
    Call.new(name: "Producer#purge", stuck: :dead, call: ->(one, _) { one.produce_async(MESSAGE) && one.purge }, brief: true),
    Call.new(name: "Producer#close", stuck: :dead, call: ->(one, seconds) { one.close(timeout: seconds) },
             ends: Penstock::CloseReport),
    Call.new(name: "Producer#close!", stuck: :dead, call: ->(one, seconds) { one.close!(timeout: seconds) },
             ends: Penstock::CloseReport),
    Call.new(name: "Producer#disconnect", stuck: :dead, call: ->(one, _) { one.disconnect }, ends: TrueClass, trap: RAISES),
    Call.new(name: "Producer#transaction_mark_as_consumed", stuck: :open_transaction, # its deadline: transaction.timeout.ms
             call: ->(one, _) { one.mark }, trap: RAISES),
    Call.new(name: "DeliveryHandle#wait", stuck: :handle, ends: LATE,
             call: ->(handle, seconds) { handle.wait(max_wait_timeout_ms: seconds * 1000) }),
    Call.new(name: "DeliveryHandle.await_all", stuck: :handle, ends: NilClass,
             call: ->(handle, seconds) { Penstock::DeliveryHandle.await_all([handle], timeout: seconds) })
  ].freeze

  LATE_CONSUMER = Penstock::ConsumeTimeoutError

  CONSUMER = [
    Call.new(name: "Consumer#poll", stuck: :reader, call: ->(one, seconds) { one.poll(timeout: seconds) }, ends: NilClass),
    Call.new(name: "Consumer#poll_batch", stuck: :reader, call: ->(one, seconds) { one.poll_batch(max: 5, timeout: seconds) },
             ends: Penstock::Batch),
    Call.new(name: "Consumer#each", stuck: :reader, call: ->(one, seconds) { one.each(timeout: seconds) { next } }),
    Call.new(name: "Consumer#commit", stuck: :committer, ends: LATE_CONSUMER,
             call: ->(one, seconds) { one.commit({ "test" => { 0 => 1 } }, timeout: seconds) }),
    Call.new(name: "Consumer#committed", stuck: :reader, ends: LATE_CONSUMER,
             call: ->(one, seconds) { one.committed("test", 0, timeout: seconds) }),
    Call.new(name: "Consumer#watermarks", stuck: :reader, ends: Penstock::ConsumeError, # in time, or all brokers are down
             call: ->(one, seconds) { one.watermarks("test", 0, timeout: seconds) }),
    Call.new(name: "Consumer#offsets_for_times", stuck: :reader, ends: Penstock::ConsumeError,
             call: ->(one, seconds) { one.offsets_for_times("test", 0, Time.now, timeout: seconds) }),
    Call.new(name: "Consumer#lag", stuck: :reader, ends: Penstock::ConsumeError,
             call: ->(one, seconds) { one.lag(timeout: seconds) }),
    Call.new(name: "Consumer#close", stuck: :member, call: ->(one, seconds) { one.close(timeout: seconds) },
             ends: Penstock::ConsumerCloseReport),
    Call.new(name: "Consumer#subscribe", stuck: :reader, call: ->(one, _) { one.subscribe("test") }, brief: true),
    Call.new(name: "Consumer#unsubscribe", stuck: :reader, call: ->(one, _) { one.unsubscribe }, brief: true),
    Call.new(name: "Consumer#assign", stuck: :reader, call: ->(one, _) { one.assign("test" => [1]) }, brief: true),
    Call.new(name: "Consumer#assignment", stuck: :reader, call: ->(one, _) { one.assignment }, brief: true),
    Call.new(name: "Consumer#seek", stuck: :reader, call: ->(one, _) { one.seek("test", 0, 1) }, brief: true),
    Call.new(name: "Consumer#rewind", stuck: :reader, brief: true,
             call: ->(one, _) { [one.rewind(Penstock::Message.new(topic: "test", partition: 0, offset: 1))] }),
    Call.new(name: "Consumer#pause", stuck: :reader, call: ->(one, _) { one.pause }, brief: true),
    Call.new(name: "Consumer#resume", stuck: :reader, call: ->(one, _) { one.resume }, brief: true),
    Call.new(name: "Consumer.select", stuck: :idle_reader, ends: Array,
             call: ->(one, seconds) { Penstock::Consumer.select([one], timeout: seconds) }),
    Call.new(name: "ConsumerSet#wait", stuck: :set, call: ->(set, seconds) { set.wait(timeout: seconds) }, ends: Array),
    Call.new(name: "ConsumerSet#each_batch", stuck: :set, call: ->(set, _) { set.each_batch { next } })
  ].freeze

  # The librdkafka that a request requires.
  SINCE = { "group_config" => "2.10.0", "scram_users" => "2.2.0", "alter_scram_users" => "2.2.0",
            "elect_leaders" => "2.6.0" }.freeze

  # Every request of an admin client. All end at their timeouts.
  ADMIN = (DocumentedMethods.blocking.grep(/\AAdmin#/) - ["Admin#close"]).map do |name|
    request = name.delete_prefix("Admin#")
    Call.new(name:, stuck: :admin, call: ->(one, timeout) { ValidArguments.call(one, request, timeout:) },
             ends: Penstock::AdminTimeoutError, since: SINCE[request])
  end.freeze

  CLOSING_ADMIN = Call.new(name: "Admin#close", stuck: :admin, brief: true,
                           call: ->(one, seconds) { one.close(timeout: seconds) })

  LISTED = [*SENDING, *PRODUCER, *CONSUMER, *ADMIN, CLOSING_ADMIN].freeze
  ALL = LISTED.select(&:possible?).freeze

  # The objects of the calls. They wait for brokers which never answer, each with a message in flight.
  module Stuck
    FOREVER_MS = 30_000
    WHILE_MS = 1_000 # ms that an abort waits for the answer

    # A producer in an open transaction of its own fiber, which only that fiber can use. Leaving the block aborts, which waits for
    # the cluster too. What counts is the moment when the inner call ended.
    Marking = Struct.new(:producer, :consumer, :left) do
      def mark
        producer.transaction do
          producer.transaction_mark_as_consumed(consumer, Struct.new(:topic, :partition, :offset).new("test", 0, 1))
        ensure
          self.left = true
        end
      end
    end

    # @param seconds [Numeric] the deadline of calls that take it from the configuration
    def stuck(kind, seconds) = send("stuck_#{kind}", seconds)

    def unstick
      @stuck_producers&.each { |producer| producer.close(timeout: 0) }
      @stuck_consumers&.each { |consumer| consumer.close(timeout: 0) }
      @stuck_admins&.each { |admin| admin.close(timeout: 0) }
    end

    private

    # @return [String] the address of a cluster that never answers: a port without a listener
    def unanswering = "127.0.0.1:1"

    # A connected producer, so that a trap may use it.
    def stuck_dead(seconds, **kafka)
      one = stuck_producer(seconds, **kafka)
      one.produce_async(MESSAGE)
      one
    end

    def stuck_full(seconds) = stuck_dead(seconds, "queue.buffering.max.messages": 1)

    def stuck_unreachable(seconds) = stuck_producer(seconds, "transactional.id": "stuck-#{rand(2**64)}")

    # A variant with its own client, which is stuck too.
    def stuck_dead_variant(seconds)
      variant(stuck_producer(seconds), seconds).tap { |made| made.produce_async(MESSAGE) }
    end

    def stuck_full_variant(seconds)
      variant(stuck_producer(seconds, "queue.buffering.max.messages": 1), seconds).tap { |made| made.produce_async(MESSAGE) }
    end

    def stuck_unreachable_variant(seconds) = stuck_unreachable(seconds).with

    def variant(producer, seconds)
      producer.with(max_wait_timeout: (seconds * 1000).to_i, topic_config: { "request.timeout.ms": 5_000 })
    end

    def stuck_handle(seconds) = stuck_producer(seconds).produce_async(MESSAGE)

    # A producer whose brokers stopped answering.
    def stuck_open_transaction(long)
      seconds = 10 # to connect
      cluster = own_cluster
      cluster.create_topic("test", partitions: 4)
      one = stuck_producer(seconds, "bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "stuck",
                                    "transaction.timeout.ms": 10_000)
      one.transaction { nil }
      cluster.set_round_trip_time(seconds: [WHILE_MS / 1000.0, long * 0.5].max)
      Marking.new(one, stuck_reader(seconds))
    end

    def stuck_reader(_)
      stuck_consumer(unanswering).assign("test" => { 0 => 0 })
    end

    # A consumer without errors: it has no brokers that it could fail to reach.
    def stuck_idle_reader(_) = stuck_consumer(unanswering)

    def stuck_set(_) = Penstock::ConsumerSet.new(stuck_idle_reader(0))

    # The broker does not answer when it leaves the group.
    def stuck_member(_)
      stop_answering(FOREVER_MS) do |one|
        one.subscribe("test")
        one.poll(timeout: 0.05) while one.assignment.empty?
      end
    end

    # It knows its coordinator. Otherwise librdkafka would retry the commit for longer than a test lasts.
    def stuck_committer(long)
      stop_answering([WHILE_MS * 2, (long * 1000).to_i].max) do |one|
        one.assign("test" => { 0 => 0 })
        one.committed("test", 0, timeout: 10)
      end
    end

    # @yieldparam one [Penstock::Consumer] connects it
    def stop_answering(round_trip_ms)
      cluster = own_cluster
      cluster.create_topic("test", partitions: 4)
      group = { "session.timeout.ms": 3_000, "heartbeat.interval.ms": 1_000 }
      one = stuck_consumer(cluster.bootstrap_servers, "enable.auto.commit": false, **group)
      yield one
      cluster.set_round_trip_time(seconds: round_trip_ms / 1000.0)
      one
    end

    # A connected client, so that a trap may use it.
    def stuck_admin(_, **kafka)
      made = Penstock::Admin.new("bootstrap.servers": unanswering, log_level: 0, **kafka) do |config|
        config.unreachable_timeout = 0
      end
      (@stuck_admins ||= []) << made
      [-> { made.topics(timeout: 0.01) }, -> { made.group_offsets({ "test" => nil }, timeout: 0.01) },
       -> { made.offsets({ "test" => { 0 => :end } }, timeout: 0.01) }].each do |connect| # it has a client for each of them
        connect.call
      rescue Penstock::AdminTimeoutError
        nil
      end
      made
    end

    def stuck_producer(seconds, **kafka)
      made = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": unanswering, log_level: 0, **kafka }
        config.logger = nil
        config.max_wait_timeout = config.close_timeout = config.wait_timeout_on_queue_full = (seconds * 1000).to_i
        config.max_attempts_on_transaction_command = 1
        config.reload_on_transaction_fatal_error = false
      end
      (@stuck_producers ||= []) << made
      made
    end

    def stuck_consumer(servers, **kafka)
      made = Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": servers, log_level: 0, "group.id": "stuck", **kafka }
      end
      (@stuck_consumers ||= []) << made
      made
    end
  end
end

# frozen_string_literal: true

require_relative "native"
require_relative "producer/close_report"
require_relative "producer/delivery_report"
require_relative "producer/delivery_handle"
require_relative "producer/config"
require_relative "producer/middleware"
require_relative "producer/status"
require_relative "producer/transaction_lock"
require_relative "producer/connection"
require_relative "producer/send_context"
require_relative "producer/send_hooks"
require_relative "producer/resending"
require_relative "producer/tombstones"
require_relative "producer/serializer"
require_relative "producer/publisher"
require_relative "producer/notifier"
require_relative "producer/statistics"
require_relative "producer/metrics"
require_relative "producer/ractor_handles"
require_relative "producer/buffer"
require_relative "producer/transaction_runner"
require_relative "producer/consumed_batch"
require_relative "producer/exactly_once"
require_relative "producer/variant"
require_relative "producer/variant_checks"
require_relative "producer/variants"
require_relative "producer/closer"
require_relative "producer/credentials"
require_relative "producer/idle_disconnector"
require_relative "producer/internals"
require_relative "producer/shareable_producer"

module Penstock # rubocop:disable Style/Documentation -- in lib/penstock.rb
  # Sends messages to Kafka.
  #
  #     producer = Penstock::Producer.new do |config|
  #       config.kafka = { "bootstrap.servers": "localhost:9092" }
  #     end
  #     producer.produce_sync(topic: "events", payload: "hello")  # => DeliveryReport
  #     producer.close
  #
  # A message is a Hash with Symbol keys:
  # - `topic` (String or Symbol, required)
  # - `payload` (required): a String, or nil for a tombstone. With {Config#serializer}: any object
  # - `key` (String): also decides the partition, according to the `partitioner` setting
  # - `partition` (Integer): the partition. -1 or absent: the partitioner decides
  # - `partition_key` (String): decides the partition in place of `key`
  # - `timestamp`: Time, ActiveSupport::TimeWithZone, or Integer of ms since the epoch, more than 0. Absent or nil: now
  # - `headers` (Hash): names are Strings of UTF-8 or Symbols, values Strings, nil (null) or Arrays of these. A Symbol is sent
  #   as its name
  # - `label` (any object): returned in the handle and the report, not sent
  #
  # The bytes of Strings are sent unchanged, whatever their encoding. They are copied before the call returns.
  #
  # `new` checks the configuration and does not connect. The producer connects at its first use.
  #
  # Any number of threads and fibers may use a producer at once. In a fork child the producer connects again at its first
  # use there, unless it was closed. Messages in its buffer at the time of the fork are sent by the parent process only.
  #
  # A signal trap may close the producer, put messages into its buffer, purge it and read its state. It may send through a
  # producer that is connected, has no `transactional.id` and delivers for real (`config.deliver`). Everything else raises
  # {SignalTrapError} there: {#flush_sync}, {#disconnect}, {#transaction}, the first use.
  #
  # "Blocks: this thread" means that the call waits without the GVL. In a fiber with a scheduler, only that fiber waits
  # (docs/waiting.md). Whatever interrupts a sleep interrupts the wait at once: Thread#raise, Timeout, Ctrl-C, stopping a
  # task.
  #
  # If the `initialize` of a subclass does not call super, `new` raises a TypeError.
  #
  # Every accepted message gets exactly one delivery result. This holds too when the producer is closed or
  # garbage-collected, and when it is still open at the end of the process.
  class Producer
    extend RequiresSuper
    include Uncopyable
    include AsJson

    private_constant :Buffer, :Closer, :Connection, :ConsumedBatch, :Credentials, :ExactlyOnce, :IdleDisconnector, :Internals,
                     :Metrics, :Notifier, :Publisher, :RactorHandles, :SendHooks, :Statistics, :StatusChanges, :TransactionLock,
                     :TransactionRunner, :VariantChecks, :Variants

    # Librdkafka's settings are keywords. The block sets everything else, and may change {Config#kafka}, which contains the
    # keywords. Without keywords and block, call {#setup} before the first use. Does not connect.
    #
    #     Penstock::Producer.new("bootstrap.servers": "localhost:9092")
    #     Penstock::Producer.new("bootstrap.servers": "localhost:9092") { |config| config.logger = Logger.new($stdout) }
    #
    # @overload initialize(**kafka)
    #   @param kafka [Hash] librdkafka's settings; see {Config#kafka}
    #   @yieldparam config [Config]
    #   @raise [ConfigurationInvalidError] when a setting is invalid; the message names the setting
    def initialize(*more, **kafka, &block)
      Keywords.check("new(\"bootstrap.servers\": \"localhost:9092\")", [], more, {})
      @internals = Internals.new(self)
      @publisher = @internals.publisher
      @internals.announce
      setup(**kafka, &block) if block || !kafka.empty?
    end

    # Configures a producer that was made without settings. Does not connect.
    # @param kafka [Hash] librdkafka's settings; see {#initialize}
    # @yieldparam config [Config]
    # @return [self]
    # @raise [ProducerAlreadyConfiguredError] when the producer is configured already
    # @raise [ConfigurationInvalidError] when a setting is invalid; the message names the setting
    def setup(**kafka, &block)
      @internals.setup(kafka, &block)
      self
    end

    # @return [Config, nil] frozen; nil before {#setup}
    def config = @internals.config

    # @return [String, nil] `config.id`; nil before {#setup}
    def id = @internals.id

    # @return [Status] its state, such as configured, connected or closed
    def status = @internals.status

    # @return [Monitor] publishes its events; subscribe here
    def monitor = @internals.monitor

    # @return [Middleware] the steps that each message passes before it is checked and sent; add steps with `append` and
    #   `prepend`
    def middleware = @internals.middleware

    # @return [Tags] labels of the application for this producer
    def tags = @internals.tags

    # @return [Poller, nil] the poller that serves it; nil before {#setup}
    def poller = @internals.poller

    # @return [Boolean] whether retries cannot store a message twice (enable.idempotence)
    def idempotent? = @internals.idempotent?

    # @return [Boolean] whether it has a transactional.id
    def transactional? = @internals.transactional?

    # The librdkafka client. Connects if necessary. For `config.client_class` and tests.
    # @return [Native::ProducerClient]
    # @raise [ProducerNotConfiguredError] when {#setup} was not called
    # @raise [ProducerClosedError] when the producer is closed
    def client = @internals.client

    # ---- sending ----

    # Sends a message and waits for its delivery result.
    #
    # Blocks: this thread, until the delivery result or `max_wait_timeout`, without the GVL; interruptible at once. When
    # librdkafka's queue is full, also as long as `config.on_queue_full` says.
    #
    # @param message [Hash] see {Producer}
    # @return [DeliveryReport] of the delivered message
    # @raise [MessageInvalidError] when the message cannot be sent as it is; nothing was sent
    # @raise [QueueFullError] when librdkafka's queue has no space; nothing was sent
    # @raise [DeliveryError] when the delivery failed
    # @raise [ProducerFencedError] when another producer with the same `transactional.id` has taken over; do not send again
    #   from here
    # @raise [WaitTimeoutError] when the delivery result did not come in time; the message may still be delivered
    # @raise [ProducerClosedError] when the producer is closed; nothing was sent
    def produce_sync(message) = @publisher.produce_sync(message)

    # Sends a message without waiting for its delivery result.
    #
    # Blocks: not in general. Three cases wait: The first use makes the threads of the client, which takes some ms. A full
    # queue waits as `config.on_queue_full` says. For a topic or partition that does not exist according to librdkafka, the
    # call asks the cluster again, for up to a second, and once a second for a topic.
    #
    # @param message [Hash] see {Producer}
    # @return [DeliveryHandle]
    # @raise [MessageInvalidError, QueueFullError, ProducerClosedError] see {#produce_sync}; nothing was sent
    def produce_async(message) = @publisher.produce_async(message)

    # Sends messages and waits for all their delivery results. Checks all messages before it sends the first.
    #
    # Blocks: like {#produce_sync}. `max_wait_timeout` is for all messages together.
    #
    # @param messages [Array<Hash>] see {Producer}
    # @return [Array<DeliveryHandle>] one for each message, in order; all were delivered
    # @raise [MessageInvalidError] when a message cannot be sent as it is; nothing was sent
    # @raise [ProduceManyError] when at least one message was not accepted or not delivered. `dispatched` has the handles of
    #   the accepted messages, with their delivery results
    # @raise [ProducerFencedError] see {#produce_sync}
    # @raise [WaitTimeoutError] when not all delivery results came in time
    def produce_many_sync(messages) = @publisher.produce_many_sync(messages)

    # Sends messages without waiting for their delivery results. Checks all messages before it sends the first.
    #
    # Blocks: like {#produce_async}. The call holds the GVL while it checks the messages, about a tenth of a microsecond for
    # each. It releases the GVL while it hands them to librdkafka.
    #
    # @param messages [Array<Hash>] see {Producer}
    # @return [Array<DeliveryHandle>] one for each message, in order
    # @raise [MessageInvalidError] when a message cannot be sent as it is; nothing was sent
    # @raise [ProduceManyError] when librdkafka did not accept all messages, for example because its queue is full.
    #   `dispatched` has the handles of the messages before the first that was not accepted
    def produce_many_async(messages) = @publisher.produce_many_async(messages)

    # Sends a tombstone and waits for its delivery result. A tombstone is a message without payload; it deletes its key from
    # a compacted topic. Ignores the payload of the message.
    #
    # Blocks: like {#produce_sync}.
    #
    # @param message [Hash] see {Producer}. `key` and `partition` are required, so that it goes to the partition of the
    #   key's messages
    # @return [DeliveryReport]
    # @raise [Error] see {#produce_sync}
    def tombstone_sync(message) = produce_sync(@publisher.make_tombstone("message.produce_sync", message))

    # {#tombstone_sync} without waiting. Blocks: like {#produce_async}.
    # @param message [Hash]
    # @return [DeliveryHandle]
    # @raise [Error] see {#produce_async}
    def tombstone_async(message) = produce_async(@publisher.make_tombstone("message.produce_async", message))

    # {#tombstone_sync} for many. Blocks: like {#produce_many_sync}.
    # @param messages [Array<Hash>]
    # @return [Array<DeliveryHandle>]
    # @raise [Error] see {#produce_many_sync}
    def tombstone_many_sync(messages)
      produce_many_sync(@publisher.make_tombstones("messages.produce_many_sync", messages))
    end

    # {#tombstone_async} for many. Blocks: like {#produce_many_async}.
    # @param messages [Array<Hash>]
    # @return [Array<DeliveryHandle>]
    # @raise [Error] see {#produce_many_async}
    def tombstone_many_async(messages)
      produce_many_async(@publisher.make_tombstones("messages.produce_many_async", messages))
    end

    # Adds a hook around each call that sends: one message, a batch, a flush of the buffer (also by {#close}). It runs for
    # variants and in transactions too.
    #
    #     producer.around do |sending|
    #       sending.messages = sending.messages.map { |message| message.merge(headers: { "team" => "billing" }) }
    #       report = sending.call # sends
    #       puts report.offset if sending.operation == :produce_sync
    #     end
    #
    # The hook runs in the thread and fiber that sends, after middleware and serializer. A transactional producer gives a
    # message outside of a transaction one of its own; the hook runs around that. The hook must call {SendContext#call}
    # there, exactly once. The first hook is the outermost. Hooks do not run for an empty batch, for a message that is no
    # Hash, and when the producer is closed.
    #
    # If a hook raises before it calls, the caller gets that error, and nothing was sent, also of a batch. If it neither
    # calls nor raises, the caller gets a {HookError}.
    #
    # After the call a hook cannot change the outcome: the caller gets what {SendContext#call} returned or raised. An error
    # that the hook raises then is published as "error.occurred" of the type "around.error", or printed as a warning on
    # stderr if that event has no subscriber. Only an exception that is no StandardError, ScriptError or SystemStackError,
    # such as Interrupt, reaches the caller although the messages were sent.
    #
    # Any thread and fiber may add hooks while others send: a call uses the hooks that existed when it began. Hooks cannot
    # be removed. Without hooks there is no cost. Never blocks.
    #
    # @param hook [#call, nil] or a block
    # @yieldparam sending [SendContext]
    # @return [self]
    # @raise [ArgumentError] when the hook is not callable, or when both or neither of hook and block are given
    def around(hook = nil, &block)
      @publisher.around(hook, block)
      self
    end

    # ---- the buffer ----

    # Adds a message to the buffer. The flush checks it and runs the middleware and the serializer.
    #
    # Blocks: never.
    # @param message [Hash] see {Producer}
    # @return [Array<Hash>] the buffer
    # @raise [ProducerClosedError] when the producer is closed
    def buffer(message) = @internals.buffer.put(message)

    # Adds messages to the buffer.
    #
    # Blocks: never.
    # @param given [Array<Hash>]
    # @return [Array<Hash>] the given messages
    # @raise [ProducerClosedError] when the producer is closed
    def buffer_many(given) = @internals.buffer.put_many(given)

    # Sends the messages of the buffer and waits for all delivery results.
    #
    # Blocks: like {#produce_many_sync}, and while another thread flushes.
    # @return [Array<DeliveryHandle>] [] when the buffer is empty
    # @raise [Error] see {#produce_many_sync}. After any error or interrupt, the messages that were not accepted are at the
    #   front of the buffer again, in order. The whole buffer is restored when one of its messages is invalid, or when the
    #   transaction of its own that a transactional producer gives it was aborted.
    # @raise [SignalTrapError] when called in a signal trap; the buffer is unchanged
    def flush_sync = @internals.buffer.flush_sync

    # Sends the messages of the buffer without waiting for their delivery results.
    #
    # Blocks: like {#produce_many_async}, and while another thread flushes.
    # @return [Array<DeliveryHandle>] [] when the buffer is empty
    # @raise [Error] see {#flush_sync}
    def flush_async = @internals.buffer.flush_async

    # @return [Array<Hash>] the buffer itself: the messages that no flush has sent yet
    def messages = @internals.buffer.messages

    # ---- transactions ----

    # Runs the block in a transaction. It commits when the block returns, and aborts when the block is left in any other
    # way: by any exception, an interrupt, the end of the thread. A call inside the block, in the same fiber, joins the
    # running transaction. Outside of a transaction, each message that is sent alone and each batch has a transaction of its
    # own.
    #
    # With a consumer, it reads, processes and writes exactly once: it polls a batch, yields it, and commits the offsets of the
    # batch together with what the block has sent. If nothing is committed, the consumer goes back to the first message of the
    # batch, so that the next call gets the same messages. If no message comes in time, no transaction begins and the block is not
    # called.
    #
    #     producer.transaction(consumer) { |batch| producer.produce_many_async(bills_for(batch)) } until stopping
    #
    # The consumer needs `"enable.auto.commit": false`. Inside the block do not poll, seek or commit with it. A consumer has one
    # such transaction at a time; other threads wait. docs/transactions.md says what happens when members come, go and crash.
    #
    # An abort discards messages that were not sent yet. Their delivery result is purge_queue, and each is published as
    # "message.purged".
    #
    # A transaction may last for `transaction.timeout.ms` (default: 165 seconds). Then the cluster aborts it and fences the
    # producer: make a new one.
    #
    # Inside the block, do not wait for another thread or fiber that sends through the same producer: it waits for the end
    # of the block.
    #
    # Blocks: this thread, for the block, for earlier transactions of this producer and for round trips to the cluster;
    # without the GVL and interruptible at once. An interrupt aborts the transaction. A command that the cluster asks to
    # repeat is repeated up to `config.max_attempts_on_transaction_command` times. The first use connects, which takes up to
    # `config.max_wait_timeout`, all attempts together.
    #
    # @overload transaction
    #   @yield sends messages, marks offsets
    #   @return [Object, nil] the block's value; nil after {AbortTransaction}
    # @overload transaction(consumer, batch = nil, max: 100, timeout: 1, offset_metadata: nil)
    #   @param consumer [Consumer]
    #   @param batch [Batch, nil] that the program has polled from it: the latest one, as its earlier ones must be processed. nil:
    #     polls one
    #   @param max [Integer] see {Consumer#poll_batch}, as `timeout`
    #   @param timeout [Numeric, nil] seconds
    #   @param offset_metadata [String, nil] stored beside each offset
    #   @yieldparam batch [Batch] sends messages
    #   @return [Batch, nil, false] the batch, when it is committed. nil: no message came, or the block has raised
    #     {AbortTransaction}. false: the group has moved a partition of the batch, so nothing is committed, and the members that
    #     have the partitions now read the messages. Or a newly assigned partition did not begin at the committed offset, and the
    #     consumer has gone there. Call again
    #   @raise [ConfigurationInvalidError] when a setting of the consumer excludes exactly once; the message names it
    #   @raise [TransactionalOffsetInvalidError] when another thread works on earlier messages of a partition; nothing was begun
    #   @raise [UsageError] when called inside another transaction of this producer or consumer; nothing was polled
    #   @raise [ConsumeError, ConsumeTimeoutError] when the consumer could not poll or go back. The next call goes back first
    #   @raise [ConsumerClosedError] when the consumer is closed; after an abort, if it was closed inside the block
    # @raise [ProducerNotTransactionalError] when the producer has no transactional.id
    # @raise [EarlyTransactionExitNotAllowedError] when return, break or throw left the block; the transaction was aborted.
    #   `Timeout.timeout` without an error class throws on Ruby 3.1 to 3.3: pass it a class.
    # @raise [TransactionDeadlockError] when another fiber of this thread is inside a transaction and no scheduler can
    #   resume it; nothing was begun
    # @raise [SignalTrapError] when called in a signal trap; nothing was begun
    # @raise [TransactionError] when the cluster rejects a command, or cannot be reached in time (code :timed_out). Readers
    #   of committed messages see nothing of the transaction. If the commit failed because of a message, the error names its
    #   topic, and the `cause` is the error of that message.
    # @raise [TransactionTimedOutError] when the transaction has lasted longer than `transaction.timeout.ms`
    # @raise [ProducerFencedError] when another producer has taken over
    # @raise [TransactionOutcomeUnknownError] when the cluster did not say in time how the commit has ended. With a consumer, call
    #   again. Without one, read the topic before you send the messages again
    # @raise [ForkedError] when the parent process used the producer before the fork: using its transactional.id here would
    #   fence the parent. Make a producer with an id of its own.
    def transaction(consumer = nil, batch = nil, *more, max: 100, timeout: 1, offset_metadata: nil, **wrong, &block)
      Keywords.check("transaction(consumer, max: 100, timeout: 1) { |batch| ... }", %i[max timeout offset_metadata], more, wrong)
      return @internals.transactions.run(&block) if consumer.nil? && batch.nil?

      @internals.exactly_once.run(consumer, batch, max:, timeout:, offset_metadata:, &block)
    end

    # @return [Boolean] whether this fiber is inside a {#transaction}
    def transaction? = @internals.transactions.running?

    # Makes the offset of a consumed message part of the running transaction. The commit of the transaction moves the
    # group's committed offset to the offset after it.
    #
    # Blocks: this thread, for a round trip, without the GVL; interruptible at once.
    #
    # @param consumer [Consumer] that got the message, with a group.id
    # @param message [Message] any object with topic, partition and offset
    # @param offset_metadata [String, nil] stored beside the offset
    # @return [nil]
    # @raise [TransactionRequiredError] when no transaction is running in this fiber
    # @raise [TransactionalOffsetInvalidError] when an argument is invalid; nothing was marked
    # @raise [TransactionError] when the cluster rejects it. The transaction must be aborted: leave the block
    def transaction_mark_as_consumed(consumer, message, offset_metadata = nil)
      @internals.exactly_once.mark_as_consumed(consumer, message, offset_metadata)
    end

    # ---- variants, and other Ractors ----

    # The producer with other settings; see {Variant}. Make one for each combination of settings, and keep it.
    #
    # Blocks: no; when there are many variants, it closes the idle clients of variants that are gone, which
    # takes a moment.
    #
    # @param max_wait_timeout [Integer, nil] ms, instead of the producer's
    # @param topic_config [Hash] librdkafka's topic settings, such as `{ acks: 1 }`; see {Variant::TOPIC_SETTINGS}
    # @return [Variant]
    # @raise [VariantInvalidError] when a setting is unknown, has a wrong value or contradicts the producer's, and when
    #   there are {Variant::MOST} variants with different topic settings already
    # @overload with(max_wait_timeout: config.max_wait_timeout, topic_config: {})
    def with(*more, max_wait_timeout: config&.max_wait_timeout, topic_config: {}, **wrong)
      Keywords.check("with(max_wait_timeout: 5_000, topic_config: { acks: 1 })", %i[max_wait_timeout topic_config], more, wrong)
      @internals.with(max_wait_timeout, topic_config)
    end
    alias variant with

    # @return [Variant] that the messages of the current fiber use
    # @raise [ProducerNotConfiguredError] when {#setup} was not called
    def current_variant = @internals.current_variant

    # A handle that any Ractor may use; see {ShareableProducer}. Connects if necessary. Each call makes a new handle. All
    # handles share the client of this producer, and keep the producer alive while they are in use.
    #
    #     shareable = producer.shareable
    #     Ractor.new(shareable) { |events| events.produce_sync(topic: "events", payload: "from a Ractor").offset }
    #
    # A handle cannot run Ruby code of the main Ractor. So a producer is not shareable with transactions, middleware, hooks
    # ({#around}), listeners of events of a call ("message.produced_sync"), or a client that sends nothing. If one of these
    # is added later, the handles' calls raise until it is removed. A {Config#serializer} must be shareable.
    #
    # Works for a {Variant} too, with its settings. Call it in the main Ractor, and not in a signal trap. Blocks: no;
    # the first use makes the threads of the client, which takes some ms.
    #
    # @return [ShareableProducer] frozen, and shareable
    # @raise [NotShareableError] when the producer cannot be shared; the message names the reason
    # @raise [ProducerNotConfiguredError] when {#setup} was not called
    # @raise [ProducerClosedError] when the producer is closed
    # @raise [SignalTrapError] when called in a signal trap
    def shareable = @internals.ractor_handles.make

    # ---- what is in flight ----

    # Waits until no message is in flight, and sends at once what `linger.ms` would hold back. Messages in the buffer stay
    # there.
    #
    # Blocks: this thread, until then or until the timeout, without the GVL; interruptible at once.
    #
    # @param timeout [Numeric, nil] seconds; more than an hour must be a Float; nil: no limit; default:
    #   `config.max_wait_timeout`
    # @return [true]
    # @raise [WaitTimeoutError] when the time ran out; the messages are still in flight
    # @raise [BrokerRejectedError, BrokersUnreachableError] when messages failed for this reason during the wait; nothing is
    #   in flight
    # @raise [ArgumentError] when the timeout is invalid, or an Integer above an hour, which looks like milliseconds
    # @overload flush(timeout: config.max_wait_timeout / 1000.0)
    def flush(*more, timeout: @internals.default_flush_timeout, **wrong)
      Keywords.check("flush(timeout: 5)", %i[timeout], more, wrong)
      @internals.flush(timeout)
    end

    # Discards the messages in the buffer and in flight. Messages that were not sent get the delivery result purge_queue and
    # are not in the topic. Messages on their way to a broker get purge_inflight and may be in the topic. The producer can
    # be used further.
    #
    # Blocks: for a fraction of a ms, until librdkafka's threads have released the messages, without the GVL. While one of
    # these threads looks up the name of its broker, up to a second; messages produced until then may be discarded too.
    # Yields to other fibers. A signal trap may call it.
    # @return [Integer] messages that were in flight
    def purge = @internals.purge

    # @return [Integer] accepted messages without a delivery result, without those in the buffer; never blocks
    def queue_size = @internals.queue_size

    alias queue_length queue_size

    # Counters that Penstock keeps without librdkafka's statistics; see docs/events.md. The counters of messages and
    # requests begin at zero with each connection. `retries` counts requests, each with messages of one partition, that
    # settled no message: librdkafka sends their messages again.
    #
    # Blocks: no.
    # @return [Hash{Symbol => Integer, Hash}]
    def metrics = @internals.metrics.to_h

    # The number of partitions of a topic. The answer is cached for 30 seconds, so that a topic that grows or is made again
    # is noticed after that time. A missing topic is not cached. On a cluster that creates topics on demand, this call
    # creates the topic.
    #
    # The partitioner uses the number that librdkafka knows. librdkafka asks for it every
    # `topic.metadata.refresh.interval.ms` (5 minutes), and learns it from this method too. A message that names a new
    # partition can be sent as soon as the partition exists. A message in flight to a partition that is gone fails with
    # unknown_partition, and can be sent again.
    #
    # Blocks: this thread, for a round trip if the answer is not cached, without the GVL; interruptible at once.
    #
    # @param topic [String, Symbol]
    # @return [Integer, nil] nil if the cluster does not know the topic
    # @raise [Error] when the cluster did not answer within 5 seconds
    def partition_count(topic) = @internals.partition_count(topic)

    # ---- the connection ----

    # Sets user name and password for later logins. Existing connections stay until the broker ends them
    # (`connections.max.reauth.ms`). If brokers reject the producer, it tries again at once. Also applies to later clients,
    # after a {#disconnect} or a reload.
    #
    # Blocks: no.
    # @param username [String]
    # @param password [String, Secret]
    # @return [nil]
    # @raise [ConfigurationInvalidError] when the producer does not log in with a password
    def set_credentials(username, password) = @internals.credentials.set(username, password)

    # Delivers what is in flight, then closes the connection and ends its threads. The next message connects again.
    #
    # Blocks: this thread, up to `config.close_timeout`, without the GVL; interruptible at once.
    # @return [Boolean] false: not {#disconnectable?}, and nothing was done
    # @raise [SignalTrapError] when called in a signal trap
    def disconnect = @internals.closer.disconnect

    # @return [Boolean] whether it is connected, its buffer is empty and no transaction is running
    def disconnectable? = @internals.closer.disconnectable?

    # Closes the producer: flushes the buffer, raises for new messages, delivers those in flight, purges the rest shortly before
    # the time is up, and releases all resources. Afterwards every handle has its delivery result. Messages that are left in the
    # buffer are still in {#messages}. Later calls do nothing and return the same report. If several threads close at once,
    # one closes and all wait. A transaction of another fiber is waited for.
    #
    # Blocks: this thread, up to the timeout, at least 0.5 s; interruptible at once. It stops delivering a tenth of the time
    # before its end, 0.2 to 0.5 s; a transactional producer up to a second earlier, to abort an open transaction. If the last
    # steps take longer, for example because the lookup of a broker's name hangs, the call returns and they continue on a
    # thread of their own. After an interrupt, closing continues on a thread of its own, too. If the process ends during that,
    # closing gets `config.close_timeout` from then on, and undelivered messages are logged.
    #
    # A signal trap, an `at_exit` block and a fork child may call it. It does not wait for a transaction or flush that
    # cannot continue before close returns: one that the trap interrupted, or one in another fiber of the same thread
    # without a scheduler. In a trap, a listener may need a lock of the interrupted thread, such as a logger's. Close then
    # waits for the listener for up to `config.listener_budget`; the listener gets its events when the trap has ended.
    #
    # @param timeout [Numeric, nil] seconds for all of it; more than an hour must be a Float; nil: no limit;
    #   default: `config.close_timeout`. With 0 nothing more is delivered
    # @param force [Boolean] has no effect: what is left when the time is up is always purged
    # @return [CloseReport] the results of the messages that were in flight
    # @raise [ArgumentError] when the timeout is invalid, or an Integer above an hour, which looks like milliseconds
    # @raise [ProducerTransactionalCloseAttemptError] when this fiber is inside a transaction; nothing was closed
    # @overload close(timeout: config.close_timeout / 1000.0, force: false)
    def close(*more, timeout: @internals.closer.default_timeout, force: false, **wrong) # rubocop:disable Lint/UnusedMethodArgument
      Keywords.check("close(timeout: 30)", %i[timeout force], more, wrong)
      @internals.closer.close(timeout)
    end

    # The same as {#close}.
    # @param timeout [Numeric, nil] see {#close}
    # @return [CloseReport]
    # @raise [Error] see {#close}
    # @overload close!(timeout: config.close_timeout / 1000.0)
    def close!(*more, timeout: @internals.closer.default_timeout, **wrong)
      Keywords.check("close!(timeout: 30)", %i[timeout], more, wrong)
      close(timeout:)
    end

    # @return [Boolean] whether {#close} was called; never blocks
    def closed? = @internals.closed?

    # Never blocks, never shows settings.
    # @return [String]
    def inspect = "#<#{[self.class, id && Text.printable(id), status].compact.join(" ")}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = AsJson.of(self, id:, status: status.to_s)

    private

    # @see RequiresSuper
    def initialized? = !@internals.nil?
  end

  private_constant :Resending, :Tombstones, :Serializer
end

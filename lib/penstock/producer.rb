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
require_relative "producer/variant"
require_relative "producer/variant_checks"
require_relative "producer/variants"
require_relative "producer/closer"
require_relative "producer/credentials"
require_relative "producer/idle_disconnector"
require_relative "producer/registry"
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
  # - `payload` (String, or nil for a tombstone; required; with {Config#serializer} any object)
  # - `key` (String): also decides the partition, as the `partitioner` setting says
  # - `partition` (Integer): goes there; -1 or absent: the partitioner decides
  # - `partition_key` (String): decides the partition in place of `key`
  # - `timestamp` (Time, ActiveSupport::TimeWithZone, or Integer of ms since the epoch; absent or 0: now)
  # - `headers` (Hash of String or Symbol to String or Array of Strings); a Symbol is sent as its name
  # - `label` (anything): handed back in the handle and the report, not sent
  #
  # Strings are sent as their bytes, whatever their encoding, and are copied before the call returns.
  #
  # Making a producer checks its configuration and connects nothing; the first use does. Any thread and fiber may use
  # a producer, any number at once. In a forked child it connects anew at its first use there, unless it was closed;
  # what was in its buffer is the parent's to send.
  # A signal trap may close a producer, put messages into its buffer, purge it and ask it anything; and send with one that is
  # connected already, has no `transactional.id`, and really delivers. All else, such as {#flush_sync},
  # {#disconnect}, {#transaction} and the first use, raises {SignalTrapError} there.
  #
  # What "blocks this thread" does so without the GVL; in a fiber with a scheduler it blocks the fiber only, and others go on
  # (docs/waiting.md). It is interrupted at once by what interrupts a sleep: Thread#raise, Timeout, Ctrl-C, stopping a task.
  #
  # A subclass whose initialize does not call super is refused with a TypeError when one is made.
  #
  # Every message that is taken gets exactly one verdict, also when the producer is closed, dropped or still open
  # when the process ends.
  class Producer
    extend RequiresSuper
    include Uncopyable
    include AsJson

    private_constant :Buffer, :Closer, :Connection, :Credentials, :IdleDisconnector, :Internals, :Metrics, :Notifier, :Publisher,
                     :RactorHandles, :SendHooks, :Statistics, :StatusChanges, :TransactionLock, :TransactionRunner,
                     :VariantChecks, :Variants

    # Librdkafka's settings are keywords, or the block sets them with everything else; with both, the block finds in
    # {Config#kafka} what was given, and may change it. Without either, {#setup} configures the producer. Connects nothing.
    #
    #     Penstock::Producer.new("bootstrap.servers": "localhost:9092")
    #     Penstock::Producer.new("bootstrap.servers": "localhost:9092") { |config| config.logger = Logger.new($stdout) }
    #
    # @overload initialize(**kafka)
    #   @param kafka [Hash] librdkafka's settings; see {Config#kafka}
    #   @yieldparam config [Config]
    #   @raise [ConfigurationInvalidError] naming the setting that is wrong
    def initialize(*more, **kafka, &block)
      Keywords.check("new(\"bootstrap.servers\": \"localhost:9092\")", [], more, {})
      @internals = Internals.new(self)
      @publisher = @internals.publisher
      @internals.announce
      setup(**kafka, &block) if block || !kafka.empty?
    end

    # Configures a producer that was made without settings and block. Connects nothing.
    # @param kafka [Hash] librdkafka's settings; see {#initialize}
    # @yieldparam config [Config]
    # @return [self]
    # @raise [ProducerAlreadyConfiguredError] for the second time
    # @raise [ConfigurationInvalidError] naming the setting that is wrong
    def setup(**kafka, &block)
      @internals.setup(kafka, &block)
      self
    end

    # @return [Config, nil] frozen; nil before {#setup}
    def config = @internals.config

    # @return [String, nil] the name given as `config.id`; nil before {#setup}
    def id = @internals.id

    # @return [Status] where it is in its life
    def status = @internals.status

    # @return [Monitor] its events
    def monitor = @internals.monitor

    # @return [Middleware] what each message goes through before it is checked and sent; `append` and `prepend` steps
    def middleware = @internals.middleware

    # @return [Tags] anything the application wants to remember about it
    def tags = @internals.tags

    # @return [Poller, nil] who serves it; nil before {#setup}
    def poller = @internals.poller

    # @return [Boolean] whether librdkafka removes the duplicates that sending again makes (enable.idempotence)
    def idempotent? = @internals.idempotent?

    # @return [Boolean] whether it has a transactional.id
    def transactional? = @internals.transactional?

    # The librdkafka client, connected at need. For `config.client_class` and tests.
    # @return [Native::ProducerClient]
    # @raise [ProducerNotConfiguredError, ProducerClosedError]
    def client = @internals.client

    # ---- sending ----

    # Sends a message and waits for its verdict.
    #
    # Blocks: this thread, until the verdict or `max_wait_timeout`, without the GVL; interruptible at once. While
    # librdkafka's queue is full, as `config.on_queue_full` says.
    #
    # @param message [Hash] see {Producer}
    # @return [DeliveryReport] of a message that was delivered
    # @raise [MessageInvalidError] the message cannot be sent as it is; nothing was sent
    # @raise [QueueFullError] librdkafka's queue has no room; nothing was sent
    # @raise [DeliveryError] the verdict is a failure
    # @raise [ProducerFencedError] another producer with the same `transactional.id` has taken over; do not send again from here
    # @raise [WaitTimeoutError] no verdict in time; the message may still be delivered
    # @raise [ProducerClosedError] nothing was sent
    def produce_sync(message) = @publisher.produce_sync(message)

    # Sends a message without waiting for its verdict.
    #
    # Blocks: no, except at the first use, for the ms it takes to make the client's threads; while librdkafka's
    # queue is full, as `config.on_queue_full` says; and for a topic or partition that librdkafka says does not exist,
    # while the cluster is asked whether that still holds: once a second for a topic, for a second at most.
    #
    # @param message [Hash] see {Producer}
    # @return [DeliveryHandle]
    # @raise [MessageInvalidError, QueueFullError, ProducerClosedError] see {#produce_sync}; nothing was sent
    def produce_async(message) = @publisher.produce_async(message)

    # Sends messages and waits for all their verdicts. All are checked before the first is sent.
    #
    # Blocks: like {#produce_sync}, `max_wait_timeout` being for all together.
    #
    # @param messages [Array<Hash>] see {Producer}
    # @return [Array<DeliveryHandle>] one for each message, in order, each with its verdict: all were delivered
    # @raise [MessageInvalidError] one of them cannot be sent as it is; nothing was sent
    # @raise [ProduceManyError] at least one was not taken or not delivered; `dispatched` has the handles of those
    #   that were taken, and they have their verdicts
    # @raise [ProducerFencedError] see {#produce_sync}
    # @raise [WaitTimeoutError] not all verdicts came in time
    def produce_many_sync(messages) = @publisher.produce_many_sync(messages)

    # Sends messages without waiting for their verdicts. All are checked before the first is sent.
    #
    # Blocks: like {#produce_async}. The GVL is held while the messages are checked, about a tenth of a microsecond
    # for each, and released while they are handed to librdkafka.
    #
    # @param messages [Array<Hash>] see {Producer}
    # @return [Array<DeliveryHandle>] one for each message, in order
    # @raise [MessageInvalidError] one of them cannot be sent as it is; nothing was sent
    # @raise [ProduceManyError] librdkafka did not take all, such as when its queue is full; `dispatched` has the
    #   handles of those before the first that was not
    def produce_many_async(messages) = @publisher.produce_many_async(messages)

    # Sends a tombstone, a message without payload that deletes its key from a compacted topic, and waits for its verdict.
    # A payload given is left out.
    #
    # Blocks: like {#produce_sync}.
    #
    # @param message [Hash] see {Producer}; with `key` and `partition`, so that it goes where the key's messages are
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

    # Adds a hook around each call that sends: one message, a batch, the buffer when it is flushed or the producer closed;
    # with its variants and in transactions too.
    #
    #     producer.around do |sending|
    #       sending.messages = sending.messages.map { |message| message.merge(headers: { "team" => "billing" }) }
    #       report = sending.call # sends
    #       puts report.offset if sending.operation == :produce_sync
    #     end
    #
    # It runs in the thread and fiber that sends, after middleware and serializer, around the transaction of its own that a
    # message has outside of one, and has to call {SendContext#call} there, once. The first hook is the outermost. What is
    # refused before, as the producer is closed or the message is no Hash, passes no hook, nor does an empty batch.
    #
    # What a hook raises before it called goes to the caller, and nothing was sent, of a batch neither; with a hook that
    # neither calls nor raises it is {HookError}. Afterwards a hook changes nothing: the caller gets what
    # {SendContext#call} returned or raised, whatever the hook does with it. What the hook itself raises then is told as
    # "error.occurred" of the type "around.error", or as a warning on stderr when nobody listens to that; what is no
    # StandardError, ScriptError or SystemStackError goes through, such as Interrupt, though the messages were sent.
    #
    # Any thread and fiber may add hooks while others send: a call uses the hooks there were when it began. They
    # cannot be removed. Without hooks sending costs nothing more. Never blocks.
    #
    # @param hook [#call, nil] or a block
    # @yieldparam sending [SendContext]
    # @return [self]
    # @raise [ArgumentError] it is not callable, or both or none were given
    def around(hook = nil, &block)
      @publisher.around(hook, block)
      self
    end

    # ---- the buffer ----

    # Puts a message aside. It is checked, and goes through the middleware and the serializer, when it is flushed.
    #
    # Blocks: never.
    # @param message [Hash] see {Producer}
    # @return [Array<Hash>] the buffer
    # @raise [ProducerClosedError]
    def buffer(message) = @internals.buffer.put(message)

    # Puts messages aside.
    #
    # Blocks: never.
    # @param given [Array<Hash>]
    # @return [Array<Hash>] the given ones
    # @raise [ProducerClosedError]
    def buffer_many(given) = @internals.buffer.put_many(given)

    # Sends what was put aside, and waits for all verdicts.
    #
    # Blocks: like {#produce_many_sync}, and while another thread flushes.
    # @return [Array<DeliveryHandle>] [] when the buffer is empty
    # @raise [Error] see {#produce_many_sync}. Whatever it is, an interrupt too: messages that were not taken are put
    #   back, in order, at the front of the buffer; so is the whole buffer when one of its messages is invalid, or when
    #   the transaction that a transactional producer gives them was aborted.
    # @raise [SignalTrapError] this is a signal trap; the buffer is left alone
    def flush_sync = @internals.buffer.flush_sync

    # Sends what was put aside without waiting for the verdicts.
    #
    # Blocks: like {#produce_many_async}, and while another thread flushes.
    # @return [Array<DeliveryHandle>] [] when the buffer is empty
    # @raise [Error] see {#flush_sync}
    def flush_async = @internals.buffer.flush_async

    # @return [Array<Hash>] the buffer itself, what was put aside and not flushed
    def messages = @internals.buffer.messages

    # ---- transactions ----

    # Runs the block in a transaction, which is committed when the block returns and aborted when it does not: any
    # exception, interrupts and the end of the thread included. Inside the block of the same fiber it joins the
    # transaction that is running. Outside of one, each message that is sent alone, and each batch, has its own.
    #
    # Messages that an abort drops before they were sent have the verdict purge_queue, and each is told as "message.purged".
    #
    # It may last for `transaction.timeout.ms` (165 seconds unless set). The cluster then aborts it and fences the producer,
    # as it does when another one takes over; nobody can tell these apart, so the producer has to be made anew.
    #
    # Do not wait inside the block for another thread or fiber that sends through the same producer: it waits for the
    # block's end.
    #
    # Blocks: this thread, for the block and for what other transactions of this producer, and their round trips to the
    # cluster, take; without the GVL and interruptible at once, which aborts. Commands that the cluster asks to repeat are
    # repeated `config.max_attempts_on_transaction_command` times. The first use connects, which takes `config.max_wait_timeout`
    # at most, all attempts together.
    #
    # @yield sends messages, marks offsets
    # @return [Object, nil] the block's value; nil after {AbortTransaction}
    # @raise [ProducerNotTransactionalError] there is no transactional.id
    # @raise [EarlyTransactionExitNotAllowedError] the block was left by return, break or throw: aborted. `Timeout.timeout`
    #   without an error class of its own throws on Ruby 3.1 to 3.3, so give it one.
    # @raise [TransactionDeadlockError] another fiber of this thread is inside a transaction, and no scheduler could ever
    #   let it go on; nothing was begun
    # @raise [SignalTrapError] this is a signal trap; nothing was begun
    # @raise [TransactionError] the cluster refused, or could not be reached in time (code :timed_out); nothing of the
    #   transaction is visible to read_committed readers unless {Error#retriable?}, when the outcome of a commit is unknown
    # @raise [ForkedError] the producer was used before this process was forked: using its transactional.id here would
    #   fence the parent. Make a producer with an id of its own.
    def transaction(&block) = @internals.transactions.run(&block)

    # @return [Boolean] whether this fiber is inside a {#transaction}
    def transaction? = @internals.transactions.running?

    # Makes a consumed message's offset part of the running transaction: the group's committed offset moves to the one
    # after it when the transaction is committed.
    #
    # Blocks: this thread, for a round trip, without the GVL; interruptible at once.
    #
    # @param consumer [Consumer] that got the message, with a group.id
    # @param message [Message] anything with topic, partition and offset
    # @param offset_metadata [String, nil] kept beside the offset
    # @raise [TransactionRequiredError] no transaction is running in this fiber
    # @raise [TransactionalOffsetInvalidError] one of the arguments is not what it has to be
    # @raise [TransactionError] the cluster refused; the transaction has to be aborted, which leaving the block does
    def transaction_mark_as_consumed(consumer, message, offset_metadata = nil)
      @internals.transactions.mark_as_consumed(consumer, message, offset_metadata)
    end

    # ---- variants, and other Ractors ----

    # The producer with other settings; see {Variant}. To be made once for each combination of settings, and kept.
    #
    # Blocks: no; where there are many, it closes the idle clients of those that were dropped, which takes a moment.
    #
    # @param max_wait_timeout [Integer, nil] ms, instead of the producer's
    # @param topic_config [Hash] librdkafka's topic settings, such as `{ acks: 1 }`, see {Variant::TOPIC_SETTINGS}
    # @return [Variant]
    # @raise [VariantInvalidError] a setting is unknown, has a wrong value, or does not go together with the producer's; or there
    #   are {Variant::MOST} variants with different topic settings already
    # @overload with(max_wait_timeout: config.max_wait_timeout, topic_config: {})
    def with(*more, max_wait_timeout: config&.max_wait_timeout, topic_config: {}, **wrong)
      Keywords.check("with(max_wait_timeout: 5_000, topic_config: { acks: 1 })", %i[max_wait_timeout topic_config], more, wrong)
      @internals.with(max_wait_timeout, topic_config)
    end
    alias variant with

    # @return [Variant] what the current fiber's messages go through
    # @raise [ProducerNotConfiguredError]
    def current_variant = @internals.current_variant

    # A handle that any Ractor may use: see {ShareableProducer}. Connects, if it has to, so that the Ractors need not. Each call
    # makes a new one; all of them, and this producer, share its client. While one is in use the producer is kept.
    #
    #     shareable = producer.shareable
    #     Ractor.new(shareable) { |events| events.produce_sync(topic: "events", payload: "from a Ractor").offset }
    #
    # What needs Ruby code of the main Ractor for each call cannot go along: transactions, middleware, hooks
    # ({#around}), listeners of "message.produced_sync" and the like, a client that sends nothing. What
    # of it comes later makes the handles' calls raise, until it is gone. A {Config#serializer} goes along if it is shareable.
    #
    # Also of a {Variant}, then with its settings. Only in the main Ractor; not in a signal trap. Blocks: no; a first use makes
    # the threads of its client, which takes some ms.
    #
    # @return [ShareableProducer] frozen, and shareable
    # @raise [NotShareableError] naming what cannot go along
    # @raise [ProducerNotConfiguredError, ProducerClosedError, SignalTrapError]
    def shareable = @internals.ractor_handles.make

    # ---- what is in flight ----

    # Waits until no message is in flight any more, sending at once what `linger.ms` would hold back. What is in the
    # buffer stays there.
    #
    # Blocks: this thread, until then or until the timeout, without the GVL; interruptible at once.
    #
    # @param timeout [Numeric, nil] seconds, as a Float if it is more than an hour; nil: without limit; default:
    #   `config.max_wait_timeout`
    # @return [true]
    # @raise [WaitTimeoutError] the time was up first; the messages stay on their way
    # @raise [BrokerRejectedError, BrokersUnreachableError] messages failed for that meanwhile; nothing is in flight any more
    # @raise [ArgumentError] the timeout is none; or an Integer above an hour, which looks like milliseconds
    # @overload flush(timeout: config.max_wait_timeout / 1000.0)
    def flush(*more, timeout: @internals.default_flush_timeout, **wrong)
      Keywords.check("flush(timeout: 5)", %i[timeout], more, wrong)
      @internals.flush(timeout)
    end

    # Drops what is in the buffer and in flight: messages that no broker has get the verdict purge_queue and are not
    # sent, those on their way to one get purge_inflight and may be in the topic. The producer goes on.
    #
    # Blocks: for the fraction of a ms that librdkafka's threads take to let go of the messages, without the GVL; while one
    # of them is looking up its broker's name, for a second at most, and what is produced until that is done may be dropped
    # as well. Yields to fibers; a signal trap may call it.
    # @return [Integer] messages that were in flight
    def purge = @internals.purge

    # @return [Integer] messages that were taken and have no verdict yet, without the buffer's; never blocks
    def queue_size = @internals.queue_size

    alias queue_length queue_size

    # Numbers that are kept anyway, without librdkafka's statistics; see docs/events.md. Those of messages and requests
    # count from when the connection was made that is in use now. `retries` are requests, each with messages of one
    # partition, that have settled nothing, so that librdkafka sends their messages again.
    #
    # Blocks: no.
    # @return [Hash{Symbol => Integer, Hash}]
    def metrics = @internals.metrics.to_h

    # How many partitions a topic has. Remembered for 30 seconds, so a topic that grows or is made again is seen then;
    # that there is no such topic is not remembered. On clusters that create topics on demand, asking creates the topic.
    #
    # Keys go by the number that librdkafka knows, which asks every `topic.metadata.refresh.interval.ms`, 5 minutes, and
    # learns it from this method too. A partition that is named may be used as soon as it is there. What is on its way to
    # a partition that has gone gets the verdict unknown_partition, and can be sent again.
    #
    # Blocks: this thread, for a round trip if the answer is not known, without the GVL; interruptible at once.
    #
    # @param topic [String, Symbol]
    # @return [Integer, nil] nil if the cluster does not know the topic
    # @raise [Error] the cluster did not answer within 5 seconds
    def partition_count(topic) = @internals.partition_count(topic)

    # ---- the connection ----

    # Logs in with these from now on: what is connected stays so, until the broker ends it (`connections.max.reauth.ms`), and
    # a producer that is refused tries again at once. Also for clients to come, after a {#disconnect} or a reload.
    #
    # Blocks: no.
    # @param username [String]
    # @param password [String, Secret]
    # @return [nil]
    # @raise [ConfigurationInvalidError] the producer does not log in with a password
    def set_credentials(username, password) = @internals.credentials.set(username, password)

    # Gives up the connection and its threads until the next message, which connects anew. Delivers what is in flight
    # first.
    #
    # Blocks: this thread, for at most `config.close_timeout`, without the GVL; interruptible at once.
    # @return [Boolean] false, and nothing was done, unless {#disconnectable?}
    # @raise [SignalTrapError] this is a signal trap
    def disconnect = @internals.closer.disconnect

    # @return [Boolean] whether it is connected, and neither in a transaction nor with messages in its buffer
    def disconnectable? = @internals.closer.disconnectable?

    # Flushes the buffer, refuses new messages, delivers those in flight, gives up (purges) what the time does not
    # suffice for, and frees everything. Every handle has its verdict afterwards; what was left in the buffer is still in
    # {#messages}. Closing again does nothing and reports the same; closing from several threads at once closes
    # once, and all wait for it. A transaction of another fiber is waited for.
    #
    # Blocks: this thread, until then, at most a tenth and a second longer than the timeout; interruptible at once, and
    # closing then goes on by itself, on a thread of its own. When the process ends meanwhile, it gets `config.close_timeout`
    # from then on, and what was not delivered is logged. May be called from a signal trap, an `at_exit` block and a forked
    # child. A transaction or flush that cannot go on before close returns is given up: one that the trap has interrupted,
    # or that is in another fiber of the same thread without a scheduler. Listeners that cannot go on then, as they need a
    # lock that the interrupted thread has (a logger's), are waited for as long as `config.listener_budget`, and told when the
    # trap has ended.
    #
    # @param timeout [Numeric, nil] seconds to go on delivering, as a Float if it is more than an hour; nil: without limit;
    #   default: `config.close_timeout`
    # @param force [Boolean] changes nothing: what is left when the time is up is always purged
    # @return [CloseReport] what became of the messages in flight
    # @raise [ArgumentError] the timeout is none; or an Integer above an hour, which looks like milliseconds
    # @raise [ProducerTransactionalCloseAttemptError] this fiber is inside a transaction: nothing was closed
    # @overload close(timeout: config.close_timeout / 1000.0, force: false)
    def close(*more, timeout: @internals.closer.default_timeout, force: false, **wrong) # rubocop:disable Lint/UnusedMethodArgument
      Keywords.check("close(timeout: 30)", %i[timeout force], more, wrong)
      @internals.closer.close(timeout)
    end

    # {#close}.
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
    def as_json(_options = nil) = json(id:, status: status.to_s)

    private

    # @see RequiresSuper
    def initialized? = !@internals.nil?
  end

  private_constant :ProducerRegistry, :Resending, :Tombstones, :Serializer
end

# frozen_string_literal: true

require_relative "native"
require_relative "consumer/batch"
require_relative "consumer/callbacks"
require_relative "consumer/close_report"
require_relative "consumer/closer"
require_relative "consumer/commits"
require_relative "consumer/fetch_limits"
require_relative "consumer/keep_alive"
require_relative "consumer/config"
require_relative "consumer/consumer_set"
require_relative "consumer/deserializer"
require_relative "consumer/membership"
require_relative "consumer/message"
require_relative "consumer/message_loop"
require_relative "consumer/metrics"
require_relative "consumer/notifier"
require_relative "consumer/offset"
require_relative "consumer/places"
require_relative "consumer/offsets"
require_relative "consumer/positions"
require_relative "consumer/reader"
require_relative "consumer/rebalance"
require_relative "consumer/rebalances"
require_relative "consumer/statistics"
require_relative "consumer/status"
require_relative "consumer/stuck_watch"
require_relative "consumer/subscription"
require_relative "consumer/topic_pattern"
require_relative "consumer/internals"

module Penstock
  # Reads messages from Kafka, as a member of a group ({#subscribe}) or from chosen partitions ({#assign}).
  #
  #     consumer = Penstock::Consumer.new do |config|
  #       config.kafka = { "bootstrap.servers": "localhost:9092", "group.id": "billing", "auto.offset.reset": "earliest" }
  #     end
  #     consumer.subscribe("events")
  #     consumer.each { |message| puts message.payload }
  #     consumer.close
  #
  # `new` checks the configuration and does not connect. The consumer connects at its first use. Only the thread that polls
  # takes messages, so `max.poll.interval.ms` measures the program: a member that does not poll for that long loses its
  # partitions. The time inside {#poll} counts as polling, however long it waits.
  #
  # A message counts as processed when the thread or fiber that polled it polls again ({ConsumerConfig#mark}). The consumer
  # commits what is processed every `auto.commit.interval.ms`, when partitions are taken away, and when the consumer closes. So a
  # process that crashes loses no message, and some messages are processed twice. What a thread polled last is not processed
  # before it polls again, or calls {#mark}, {#commit} or {#close}. If `enable.auto.commit` is false, only {#commit} commits.
  #
  # Any number of threads may use a consumer at once. Each message goes to one of the polling threads. "Blocks: this thread"
  # blocks only the fiber if it has a scheduler. Any Ractor may make a consumer of its own, without logger and token
  # provider. In a fork child a consumer that the parent process used raises {ForkedError}. One that was made but not used
  # works there.
  #
  # If the `initialize` of a subclass does not call super, `new` raises a TypeError.
  #
  # {#poll} raises an error once, if the caller has to know it: the topic is unknown or may not be read, an offset is out of
  # range, the consumer did not poll in time. Polling can continue after it, unless it is `fatal?`: each poll raises a fatal
  # error, after up to a second. Temporary problems with brokers are logged, and librdkafka retries. {Batch#ends} names the
  # partitions that have no more messages, if `enable.partition.eof` is true.
  #
  # A message of another client may have headers that cannot be read. Reading them raises ({Message#error}, {Batch#errors}).
  #
  # If brokers can be reached but reject this client (certificate, password, protocol), {#poll}, {#commit}, {#committed} and
  # {#watermarks} raise {BrokerRejectedError} within `config.rejection_timeout`. {#subscribe} and {#assign} do not wait for
  # brokers. See docs/security.md.
  class Consumer
    extend RequiresSuper
    include Uncopyable
    include AsJson

    TIMEOUT = %i[timeout].freeze
    private_constant :TIMEOUT, :Callbacks, :Closer, :Commits, :Internals, :MessageLoop, :Notifier, :Offsets, :Positions,
                     :Rebalances, :Subscription

    # Waits once until one of these consumers should be polled. A loop had better keep a {ConsumerSet}: its waits cost nothing for
    # idle consumers.
    #
    # Blocks: like {ConsumerSet#wait}.
    #
    # @overload select(consumers, timeout: 1)
    #   @param consumers [Array<Consumer>] in no {ConsumerSet}, and in no other call of this method at the same time
    #   @param timeout [Numeric, nil] seconds to wait; see {ConsumerSet#wait}
    #   @return [Array<Consumer>] see {ConsumerSet#wait}
    #   @raise [ArgumentError] when the timeout is invalid, or a set has one of the consumers
    #   @raise [ConsumerClosedError, ForkedError, TypeError] see {ConsumerSet#add}
    def self.select(consumers, *more, timeout: 1, **wrong)
      Keywords.check("select(consumers, timeout: 1)", TIMEOUT, more, wrong)
      timeout = Seconds.of(timeout)
      set = ConsumerSet.new(*consumers)
      set.wait(timeout:)
    ensure
      set&.clear
    end

    # @return [ConsumerConfig] frozen
    def config = @internals.config

    # What replaces librdkafka ({ConsumerConfig#client_class}), for tests. nil: nothing does.
    # @return [Clients::InMemoryConsumer, nil]
    def client = @internals.replacement

    # @return [ConsumerStatus] its present state, whenever it is asked. Never blocks
    def status = @internals.status

    # @return [Tags] labels for logs and metrics. Never blocks
    def tags = @internals.tags

    # Librdkafka's settings are keywords. The block sets everything else, and may change {ConsumerConfig#kafka}, which
    # contains the keywords.
    #
    #     Penstock::Consumer.new("bootstrap.servers": "localhost:9092", "group.id": "billing")
    #
    # @overload initialize(**kafka)
    #   @param kafka [Hash] librdkafka's settings; see {ConsumerConfig#kafka}
    #   @yieldparam config [ConsumerConfig]
    #   @raise [ConfigurationInvalidError] when a setting is invalid; the message names the setting
    def initialize(*more, **kafka)
      Keywords.check("new(\"bootstrap.servers\": \"localhost:9092\", \"group.id\": \"billing\")", [], more, {})
      config = ConsumerConfig.new
      config.__send__(:begin_with, kafka)
      yield config if block_given?
      config.__send__(:finish)
      @internals = Internals.new(self, config)
      @internals.announce
    end

    # @return [String] `config.id`
    def id = @internals.id

    # Publishes the consumer's events to listeners, and passes them on to {Penstock.monitor}. See docs/events.md. Listeners run on
    # the threads that call the consumer, most on the thread that polls. In another Ractor, a consumer's events reach only the
    # listeners of that Ractor. Never blocks.
    #
    # @return [Monitor] `config.monitor`, or a monitor of its own
    def monitor = @internals.notifier.monitor

    # The consumer's counters, since it was opened. They cost no statistics. Never blocks. In a fork child they are 0.
    #
    # @return [ConsumerMetrics] frozen
    def metrics = @internals.metrics

    # librdkafka's latest statistics. It collects them every `statistics.interval.ms`, and polls read them. If the setting is not
    # given, it is 5,000 if "statistics.emitted" has a listener at the consumer's first use, and 0 otherwise. Never blocks; parses
    # some 10 KB at each call. They have only the partitions that are assigned now, and nil for what librdkafka does not know of
    # them.
    #
    # @return [Hash{String=>Object}, nil] frozen; nil: there were none, or they are turned off
    def statistics = @internals.notifier.statistics

    # Joins the group of `group.id` and reads the partitions that the group assigns. Replaces an earlier subscription. The
    # consumer joins while it is polled.
    #
    # Blocks: this thread, for about a ms, without the GVL; interruptible at once.
    #
    # A Regexp matches whole names, with both protocols: `/orders/` is the topic "orders" only, `/orders.*/` also "orders.eu". New
    # topics are found every `topic.metadata.refresh.interval.ms`. A String that begins with "^" is a pattern too.
    #
    # @param topics [Array<String, Symbol, Regexp>] names and patterns
    # @return [self]
    # @raise [ArgumentError] when a pattern has what brokers and librdkafka do not know: look-arounds, backreferences, word
    #   boundaries, atomic groups, inline flags without a group, counts above 255
    # @raise [ConfigurationInvalidError] when "group.id" is missing
    # @raise [ConsumerClosedError] when the consumer is closed
    # @raise [ForkedError] when the parent process used the consumer before the fork
    def subscribe(*topics)
      @internals.subscription.subscribe(topics.flatten)
      self
    end

    # Leaves the group, while the consumer is polled or closed.
    #
    # Blocks: like {#subscribe}.
    #
    # @return [self]
    # @raise [ConsumerClosedError] when the consumer is closed
    # @raise [ForkedError] when the parent process used the consumer before the fork
    def unsubscribe
      @internals.subscription.unsubscribe
      self
    end

    # Reads these partitions without joining a group. Replaces an earlier assignment. Do not assign partitions to a consumer
    # that is subscribed: call {#unsubscribe} before. If the group has assigned partitions that no poll has given up since then,
    # `assign` gives them up first, as a poll does.
    #
    #     consumer.assign("events" => [0, 1])
    #     consumer.assign("events" => { 0 => 1_000, 1 => :beginning, 2 => Time.now - 3600, 3 => [:last, 10] })
    #
    # Blocks: this thread, for about a ms, or for some 10 ms if librdkafka has to stop an earlier assignment. If not all starts
    # are Integers or {Offset}s, also until brokers have answered where to begin: with a Time or `[:last, n]` up to `timeout`,
    # otherwise up to 2 s, and librdkafka asks on then. And until earlier commits are answered, up to 5 s. After {#unsubscribe}
    # also while {ConsumerConfig#rebalance_listener} runs, and while {ConsumerConfig#hold_rebalances} delays the revocation.
    # Without the GVL, interruptible at once. Concurrent calls run one after the other.
    #
    # @overload assign(partitions, timeout: 5)
    #   @param partitions [Hash{String, Symbol => Array<Integer>, Hash{Integer => Integer, Symbol, Time, Array, Offset}}] by topic
    #     and partition. An Array of partitions starts at the committed offsets if there is a group, otherwise as
    #     `auto.offset.reset` says. A Hash has a start for each partition. Empty: reads nothing. The starts:
    #
    #     - an Integer or {Offset};
    #     - `:beginning`, `:end`, or `:stored`, the committed offset;
    #     - a Time: the first message with this timestamp or a later one (see {#offsets_for_times}), or `:end` if there is none;
    #     - `[:last, 10]`: the last 10 offsets, not before the beginning. Offsets that hold no message, such as those of aborted
    #       transactions, count too
    #   @param timeout [Numeric, nil] seconds to wait for the leaders, if there is a Time or `[:last, n]`; see {#commit}
    #   @return [self]
    #   @raise [ConsumeError, ConsumeTimeoutError, BrokerRejectedError] when a leader does not answer; nothing is assigned then
    #   @raise [ConsumeError] when the consumer was subscribed with "cooperative-sticky", or with the `group.protocol` "consumer".
    #     librdkafka then allows no assignment of your own: make another consumer
    #   @raise [ListenerDeadlockError] in the rebalance listener of this consumer, whose answer would end the assignment
    #   @raise [StandardError] what the rebalance listener has raised meanwhile; nothing is assigned then
    #   @raise [ConfigurationInvalidError] when :stored is given and "group.id" is missing
    #   @raise [ConsumerClosedError] when the consumer is closed
    #   @raise [ForkedError] when the parent process used the consumer before the fork
    #   @raise [ArgumentError] when a partition is given twice, or an argument is invalid
    def assign(*given, timeout: 5, **braceless)
      topics = ConsumerPlaces.topics_given("assign({ \"topic\" => [0] }, timeout: 5)", TIMEOUT, given, braceless, 1..1)
      @internals.subscription.assign(topics || given.first, timeout)
      self
    end

    # The partitions that are assigned now, by the group or by {#assign}.
    #
    # Blocks: like {#subscribe}.
    #
    # @return [Hash{String=>Array<Integer>}] partitions by topic
    # @raise [ConsumerClosedError] when the consumer is closed
    # @raise [ForkedError] when the parent process used the consumer before the fork
    def assignment = @internals.subscription.assignment

    # What the consumer is in its group: its state, member id and generation.
    #
    # Asks librdkafka's main thread, which answers in less than a ms. Does not wait for brokers.
    #
    # @return [Membership] frozen
    # @raise [ConfigurationInvalidError] when "group.id" is missing
    # @raise [ConsumerClosedError] when the consumer is closed
    # @raise [ForkedError] when the parent process used the consumer before the fork
    def membership = @internals.subscription.membership

    # @!method poll(timeout: 1)
    #   Returns the next message. It also handles the requests of the group, so poll regularly even if no messages are
    #   expected.
    #
    #   Blocks: this thread, until there is a message or the time is up, without the GVL. `Thread#raise`, `Timeout` and
    #   Ctrl-C interrupt it at once. If messages were taken before, the next poll of the thread or fiber returns them.
    #   @param timeout [Numeric, nil] seconds to wait; more than an hour must be a Float; 0: does not wait; nil: no limit
    #   @return [Message, nil] nil: no message in time, or another thread closed the consumer during the wait
    #   @raise [ConsumeError] see {Consumer}
    #   @raise [BrokerRejectedError] when brokers reject this client; see {ConsumerConfig#rejection_timeout}
    #   @raise [ConsumerClosedError] when the consumer was closed before the call
    #   @raise [ForkedError] when the parent process used the consumer before the fork
    #   @raise [ArgumentError] when the timeout is invalid, or an Integer above an hour, which looks like milliseconds

    # @!method poll_batch(max: 100, timeout: 1)
    #   Waits for a message, then adds the messages that are available without waiting. A batch ends before a change of the
    #   assignment and before an error; these come with the next call. It also ends with the message that brings it to
    #   100,000 headers.
    #
    #   Blocks: like {#poll}.
    #   @param max [Integer] maximum number of messages; at least 1
    #   @param timeout [Numeric, nil] seconds; see {#poll}
    #   @return [Batch] messages in order within a partition; empty where {#poll} returns nil
    #   @raise [ConsumeError, ConsumerClosedError, ForkedError, ArgumentError] see {#poll}

    # Polls and yields each message until the block or another thread closes the consumer. Without a block, returns an
    # Enumerator. A Consumer is no Enumerable: most of its methods, such as `count` and `to_a`, would never return.
    #
    # A message of an Enumerator counts as processed when the Enumerator fetches the next one. So of `each.each_slice(10)` nine
    # count before your block gets them: use {#poll_batch}, or `config.mark = :manual`.
    #
    # Blocks: like {#poll}, repeatedly.
    #
    # @overload each(timeout: 1)
    #   @param timeout [Numeric, nil] seconds for each poll; see {#poll}
    #   @yieldparam message [Message]
    #   @return [self, Enumerator] self when the consumer is closed; an Enumerator without a block
    #   @raise [ConsumeError, ForkedError, ArgumentError] see {#poll}; call it again to continue with the next message
    def each(*more, timeout: 1, **wrong, &block)
      Keywords.check("each(timeout: 1) { |message| ... }", TIMEOUT, more, wrong)
      return to_enum(:each, timeout:) unless block

      return self if %i[closing closed].include?(@internals.client.state) # in a fork child the poll raises

      MessageLoop.new(@internals, timeout).run(&block)
      self
    end

    # @!method mark(what)
    #   Says that a message, or each message of a batch, is processed, as are the earlier ones of its partition. (More exactly:
    #   those that the same thread or fiber polled.) The offset after it is committed with the next commit, of this process or of
    #   the periodic one (`auto.commit.interval.ms`). Only needed where {ConsumerConfig#mark} is `:manual`, or where one thread
    #   polls and another processes. Never blocks.
    #
    #   A message can be marked if and only if it does not come again. So false means that somebody reads it again.
    #
    #   @param what [Message, Batch]
    #   @return [Boolean] false: the partition was taken away after the message was polled, so another member reads it again;
    #     or this consumer does, after a {#rewind} or {#seek}. For a batch: this is so for one of its partitions or more; the
    #     others are marked
    #   @raise [ConsumerClosedError] when the consumer is closed
    #   @raise [ForkedError] when the parent process used the consumer before the fork
    #   @raise [TypeError] when it is something else

    # @!method revoked?(what)
    #   Whether a message's partition was taken away after the message was polled, or one of a batch's partitions. Then another
    #   member reads the message again, and {#mark} and {#commit} return false. It changes while a thread polls,
    #   in {#keep_alive}, and when the group has removed this member. Never blocks.
    #
    #   @param what [Message, Batch]
    #   @return [Boolean]
    #   @raise [ConsumerClosedError] when the consumer is closed
    #   @raise [ForkedError] when the parent process used the consumer before the fork
    #   @raise [TypeError] when it is something else

    # Keeps the consumer in its group while the block runs, however long it takes. Without this, a member that does not poll for
    # `max.poll.interval.ms` loses its partitions. Meanwhile a thread answers the group's requests and calls the rebalance
    # listener. It takes no message, and messages that were fetched ahead are kept. Partitions may be revoked: see {#revoked?}
    # and {ConsumerConfig#hold_rebalances}.
    #
    #     batch = consumer.poll_batch
    #     consumer.keep_alive { batch.each { |message| render(message) unless consumer.revoked?(message) } }
    #
    # A block that never ends would keep its partitions for ever. After `limit` seconds the consumer counts as not polling.
    #
    # Waits for nothing but the block, and for a listener that is still running when the block ends.
    #
    # @overload keep_alive(limit: nil)
    #   @param limit [Numeric, nil] seconds; nil: no limit
    # @return [Object] the block's value
    # @raise [ArgumentError] without a block, or when the limit is invalid
    # @raise [ConsumerClosedError] when the consumer is closed before the block begins
    # @raise [ForkedError] when the parent process used the consumer before the fork
    # @raise [StandardError] what the rebalance listener has raised meanwhile, after the block
    def keep_alive(*more, limit: nil, **wrong, &block)
      Keywords.check("keep_alive(limit: nil) { ... }", %i[limit], more, wrong)
      raise ArgumentError, "keep_alive requires a block" unless block

      @internals.keep_alive(limit, &block)
    end

    # Commits offsets: where the group continues after a restart or rebalance.
    #
    # Blocks: this thread, until the group's coordinator has answered, without the GVL; interruptible at once, though the
    # offsets may be committed after an interrupt.
    #
    # While the member joins its group again ("cooperative-sticky"), no commit would be accepted. So it waits until that is over.
    #
    # With `async: true` it does not block, and errors are logged. One request at most is on its way. What is committed meanwhile
    # goes with the next one, only the latest offset of each partition. What waits is sent before partitions are taken away, and
    # when the consumer closes.
    #
    # Commits take turns. What is processed is read when the turn has come, so no committed offset falls, however many threads
    # commit.
    #
    # @overload commit(what = nil, async: false, timeout: 30)
    #   @param what [Message, Batch, Hash{String, Symbol => Hash{Integer => Integer, Offset}}, nil] a message or batch: marks it
    #     ({#mark}), then commits what is processed, of all partitions. So never behind a message on which another thread works.
    #     A Hash, in braces: the next offset to read, by topic and partition, or an {Offset} with it and a text of your
    #     own, even if that is lower. nil: everything that was polled so far from the assigned partitions, by any thread; if
    #     {ConsumerConfig#mark} is `:manual`, everything that was marked
    #   @param async [Boolean]
    #   @param timeout [Numeric, nil] seconds to wait for the answer; more than an hour must be a Float; nil: no limit
    #   @return [Boolean] false: the partition, or the membership in the group, was lost, so other members read the messages
    #     again; or they come again after a rewind. They are not committed: if another thread or a rebalance listener has
    #     committed them before the loss, this is true. If only some partitions of a batch were lost, the messages of the others
    #     are marked, and the next commit includes them. With `async`, a loss that only the broker knows is logged
    #   @raise [CommitError] when the offsets were not committed for another reason
    #   @raise [ConsumeTimeoutError] when the answer did not come in time; the offsets may still be committed
    #   @raise [BrokerRejectedError] when brokers reject this client; see {ConsumerConfig#rejection_timeout}
    #   @raise [ConfigurationInvalidError] when "group.id" is missing
    #   @raise [ConsumerClosedError] when the consumer is closed
    #   @raise [ForkedError] when the parent process used the consumer before the fork
    #   @raise [ArgumentError] when the timeout is invalid, or an Integer above an hour, which looks like milliseconds
    def commit(what = nil, *more, async: false, timeout: 30, **wrong)
      offsets = "{ \"topic\" => { 0 => 5 } }" if wrong.keys.first.is_a?(String)
      Keywords.check("commit(#{offsets || "message"}, async: false, timeout: 30)", %i[async timeout], more, wrong)
      @internals.commits.commit(what, async, timeout)
    end

    # The group's committed offsets.
    #
    #     consumer.committed("orders", [0, 1])    # => { 0 => 17, 1 => nil }
    #     consumer.committed("orders" => [0, 1])  # => { "orders" => { 0 => 17, 1 => nil } }
    #
    # Blocks: this thread, until the coordinator has answered, without the GVL; interruptible at once.
    #
    # @overload committed(topic, partitions, metadata: false, timeout: 5)
    #   @param topic [String, Symbol]
    #   @param partitions [Array<Integer>, Integer]
    #   @param metadata [Boolean] returns {Offset}s, with the text that was committed beside them
    #   @param timeout [Numeric, nil] seconds to wait for the answer; see {#commit}
    #   @return [Hash{Integer=>Integer, Offset, nil}] by partition: the next offset that the group reads; nil: none was committed
    #   @raise [ConsumeError, ConsumeTimeoutError, ConfigurationInvalidError, ConsumerClosedError, ForkedError] see {#commit}
    # @overload committed(partitions, metadata: false, timeout: 5)
    #   @param partitions [Hash{String, Symbol => Array<Integer>}] by topic
    #   @return [Hash{String => Hash{Integer=>Integer, Offset, nil}}] by topic and partition
    def committed(*given, metadata: false, timeout: 5, **braceless)
      @internals.offsets.committed(given, braceless, metadata, timeout)
    end

    # Never blocks.
    #
    # @param topic [String, Symbol]
    # @param partition [Integer]
    # @return [Integer, nil] the offset after the latest message that was polled from this partition; nil: none was polled
    # @raise [ConsumerClosedError] when the consumer is closed
    # @raise [ForkedError] when the parent process used the consumer before the fork
    def position(topic, partition) = @internals.positions.position(topic, partition)

    # The first and the next offset of partitions, from their leaders. With `isolation.level` read_committed (librdkafka's
    # default) the next offset is that of the first message of an open transaction.
    #
    #     consumer.watermarks("orders", 0)        # => [0, 17]
    #     consumer.watermarks("orders" => [0, 1]) # => { "orders" => { 0 => [0, 17], 1 => [5, 5] } }
    #
    # Blocks: like {#committed}. Never with `cached: true`.
    #
    # @overload watermarks(topic, partition, cached: false, timeout: 5)
    #   @param topic [String, Symbol]
    #   @param partition [Integer]
    #   @param cached [Boolean] asks nobody: what librdkafka knows from the messages that it has fetched. It knows the next offset
    #     as of its latest request, including open transactions, and the first only with `statistics.interval.ms`; else nil
    #   @param timeout [Numeric, nil] seconds to wait for the answer; see {#commit}
    #   @return [Array(Integer, Integer)] the offset of its first message, and the offset that its next message will have; nil in
    #     their place only if `cached`
    #   @raise [ConsumeError, ConsumeTimeoutError, ConsumerClosedError, ForkedError] see {#commit}
    # @overload watermarks(partitions, cached: false, timeout: 5)
    #   @param partitions [Hash{String, Symbol => Array<Integer>}] by topic; all are asked for at once
    #   @return [Hash{String => Hash{Integer => Array(Integer, Integer)}}] by topic and partition
    def watermarks(*given, cached: false, timeout: 5, **braceless)
      @internals.offsets.watermarks(given, braceless, cached, timeout)
    end

    # How many offsets each partition is behind: from the next offset that this consumer reads to the partition's end. If nothing
    # was polled yet, from the place that {#assign} or {#seek} got, or from the committed offset. Offsets that hold no message
    # count too, such as those of aborted transactions, until a poll has passed them: at the end of the partition it is 0.
    # With `isolation.level` read_committed (librdkafka's default) the end is the first message of an open transaction.
    #
    #     consumer.lag # => { "orders" => { 0 => 120, 1 => 0 } }
    #
    # Blocks: like {#committed}: it asks the leaders, and the group's coordinator if a partition was not polled yet. With
    # `estimate: true` like {#subscribe}; with `partitions` for up to 10 ms for each, while another thread takes messages.
    #
    # @overload lag(partitions = nil, estimate: false, timeout: 5)
    #   @param partitions [Hash{String, Symbol => Array<Integer>}, nil] by topic; nil: all that are assigned
    #   @param estimate [Boolean] asks nobody. librdkafka knows the end as of its latest request for messages of the partition,
    #     and includes open transactions. Paused partitions keep their earlier ends
    #   @param timeout [Numeric, nil] seconds to wait for the answers; see {#commit}
    #   @return [Hash{String => Hash{Integer => Integer, nil}}] by topic and partition; nil: unknown, as nothing was polled or
    #     committed, no leader has said yet where the end is at which it begins, or, for an estimate, nothing was fetched
    #   @raise [ConsumeError, ConsumeTimeoutError, BrokerRejectedError, ConsumerClosedError, ForkedError] see {#commit}
    def lag(*given, estimate: false, timeout: 5, **braceless)
      form = "lag({ \"topic\" => [0] }, estimate: false, timeout: 5)"
      topics = ConsumerPlaces.topics_given(form, %i[estimate timeout], given, braceless, 0..1)
      @internals.offsets.lag(topics || given.first, estimate, timeout)
    end

    # Where to begin reading, to get the messages of a time and later. The consumer need not read these partitions. ({#assign} and
    # {#seek} accept times, too.)
    #
    #     consumer.offsets_for_times("events", [0, 1], Time.now - 3600)           # => { 0 => 17, 1 => nil }
    #     consumer.offsets_for_times({ "events" => [0, 1] }, Time.now - 3600)     # => { "events" => { 0 => 17, 1 => nil } }
    #     consumer.offsets_for_times("events" => { 0 => Time.now - 3600, 1 => 0 }) # each with a time of its own
    #
    # Kafka compares the messages' timestamps, which producers may set, so earlier messages may follow.
    #
    # Blocks: like {#committed}.
    #
    # @overload offsets_for_times(topic, partitions, time, timeout: 5)
    #   @param topic [String, Symbol]
    #   @param partitions [Array<Integer>, Integer]
    #   @param time [Time, Integer] an Integer is ms since the epoch
    #   @param timeout [Numeric, nil] seconds to wait for the answer; see {#commit}
    #   @return [Hash{Integer=>Integer, nil}] by partition: the offset of its first message with this timestamp or a later one;
    #     nil: it has none. From an {EmbeddedCluster} always nil: librdkafka's does not search by time
    #   @raise [ConsumeError, ConsumeTimeoutError, ConsumerClosedError, ForkedError] see {#commit}
    # @overload offsets_for_times(partitions, time = nil, timeout: 5)
    #   @param partitions [Hash{String, Symbol => Array<Integer>, Hash{Integer => Time, Integer}}] by topic
    #   @param time [Time, Integer, nil] for the partitions that are given in Arrays
    #   @return [Hash{String => Hash{Integer=>Integer, nil}}] by topic and partition
    def offsets_for_times(*given, timeout: 5, **braceless)
      @internals.offsets.for_times(given, braceless, timeout)
    end

    # Continues reading assigned partitions at other offsets. Earlier fetched messages of these partitions are not polled any
    # more. Messages that were polled and do not come again can still be marked, and hold back commits until then.
    #
    #     consumer.seek("orders", 0, 5)
    #     consumer.seek("orders" => { 0 => :beginning, 1 => Time.now - 3600 })
    #
    # The committed offset stays, and librdkafka commits only later offsets: until the consumer has read on behind the committed
    # offset, a member that gets the partition begins there. (A {#commit} of your own writes any offset.) To go back for good, for
    # all members, use `commit: true`.
    #
    # Blocks: like {#subscribe}. With a Time, `[:last, n]`, :stored or `commit: true` like {#commit}; with :beginning or :end
    # until the leaders have answered, but not longer than 2 s or half of `timeout`.
    #
    # @overload seek(topic, partition, offset, commit: false, timeout: 5)
    #   @param topic [String, Symbol]
    #   @param partition [Integer]
    #   @param offset [Integer, :beginning, :end, :stored, Time, Array(Symbol, Integer), Offset] see {#assign}. `:stored` without
    #     a committed offset: as `auto.offset.reset` says
    #   @param commit [Boolean] also commits the offset, after the seek. If that fails, the position is changed all the same
    #   @param timeout [Numeric, nil] seconds to wait until it is done; see {#commit}
    #   @return [self]
    #   @raise [ConsumeError] when it is not possible, for example with the code :state when the partition is not assigned. Its
    #     `topic` and `partition` name the first one that failed; other partitions are changed
    #   @raise [CommitError] when the offset was not committed
    #   @raise [ConfigurationInvalidError] when :stored or `commit` is given and "group.id" is missing
    #   @raise [ConsumeTimeoutError, ConsumerClosedError, ForkedError] see {#commit}
    # @overload seek(partitions, commit: false, timeout: 5)
    #   @param partitions [Hash{String, Symbol => Hash{Integer => Object}}] offsets by topic and partition; all at once
    def seek(*given, commit: false, timeout: 5, **braceless)
      form = "seek(topic, partition, offset, timeout: 5)"
      topics = ConsumerPlaces.topics_given(form, %i[commit timeout], given, braceless, 3..3)
      @internals.positions.seek(topics || { given[0] => { given[1] => given[2] } }, commit, timeout)
      self
    end

    # Goes back to the first message of each partition of a batch, or to a message, so that it comes again with what was polled
    # after it in its partition. For work that failed. Partitions that were taken away since are left alone: their new members
    # read the messages. Until a message has come again, {#mark} of it returns false.
    #
    #     batch = consumer.poll_batch
    #     begin
    #       process(batch)
    #     rescue DatabaseUnavailable
    #       consumer.rewind(batch)
    #       sleep 1
    #     end
    #
    # It changes no committed offset: rewind before the next poll, while the messages are not yet marked. {Producer#transaction}
    # rewinds by itself.
    #
    # Blocks: like {#subscribe}. After an interrupt, it is still done.
    #
    # @overload rewind(what, timeout: 5)
    #   @param what [Batch, Message]
    #   @param timeout [Numeric, nil] seconds to wait until it is done; see {#commit}
    #   @return [Boolean] false: one of the partitions or more were taken away, or rewound to an earlier message
    #   @raise [ConsumeError] when it is not possible
    #   @raise [ConsumeTimeoutError, ConsumerClosedError, ForkedError] see {#commit}
    #   @raise [TypeError] when it is something else
    def rewind(what = nil, *more, timeout: 5, **wrong)
      Keywords.check("rewind(batch, timeout: 5)", TIMEOUT, more, wrong)
      @internals.positions.rewind(what, timeout)
    end

    # Stops reading partitions until {#resume}. Messages that were fetched and not polled are fetched again later. The consumer
    # stays in its group, and other partitions go on. A partition that is revoked is no longer paused. In a rebalance listener's
    # `assigned`, what is paused is not read at all.
    #
    #     consumer.pause("events" => [0, 1])
    #
    # Blocks: like {#subscribe}.
    #
    # @param partitions [Hash{String, Symbol => Array<Integer>}, nil] by topic; nil: all that are assigned
    # @return [Hash{String=>Array<Integer>}] everything that is paused now; see {#paused}
    # @raise [ConsumeError] when a partition is not assigned (:unknown_partition); the others are paused
    # @raise [ConsumerClosedError] when the consumer is closed
    # @raise [ForkedError] when the parent process used the consumer before the fork
    def pause(partitions = nil) = @internals.positions.pause(partitions)

    # Goes on reading partitions that {#pause} has stopped, behind the last message that was polled. Others are left alone.
    # librdkafka fetches messages anew: the first one comes up to a second later.
    #
    # Blocks: like {#subscribe}.
    #
    # @param partitions [Hash{String, Symbol => Array<Integer>}, nil] by topic; nil: all that are paused
    # @return [Hash{String=>Array<Integer>}] everything that is still paused
    # @raise [ConsumerClosedError] when the consumer is closed
    # @raise [ForkedError] when the parent process used the consumer before the fork
    def resume(partitions = nil) = @internals.positions.resume(partitions)

    # Never blocks.
    #
    # @return [Hash{String=>Array<Integer>}] the partitions that {#pause} has stopped, by topic
    # @raise [ConsumerClosedError] when the consumer is closed
    # @raise [ForkedError] when the parent process used the consumer before the fork
    def paused = @internals.positions.paused

    # Sets user name and password for later logins. Existing connections stay until the broker ends them
    # (`connections.max.reauth.ms`). If brokers reject the consumer, it tries again at once. Never blocks.
    #
    # @param username [String]
    # @param password [String, Secret]
    # @return [nil]
    # @raise [ConfigurationInvalidError] when the consumer does not log in with a password
    # @raise [ConsumerClosedError] when the consumer is closed
    # @raise [ForkedError] when the parent process used the consumer before the fork
    def set_credentials(username, password) = @internals.set_credentials(username, password)

    # Wakes every polling thread, commits what is processed, leaves the group and releases all resources. Polled messages stay
    # valid.
    #
    # What the calling thread or fiber polled last counts as processed, as if it polled again. It does not count if an exception
    # was raised in the thread since, also if it was rescued; if the block of {#each} was left by `break` or `throw`; or in a
    # signal trap. What other threads polled last does not count.
    #
    # If the offsets cannot be committed, that is logged, and other members read those messages again. Later calls do nothing. If
    # several threads close at once, one closes and all wait. In a fork child it does nothing.
    #
    # Blocks: this thread, without the GVL; interruptible at once. After an interrupt, closing continues by itself. A signal
    # trap, a block of {#each} and an `at_exit` block may call it.
    #
    # @param timeout [Numeric, nil] seconds for all of it, at least 0.5; nil: no limit; default: `config.close_timeout`. Calls of
    #   the rebalance listener that wait for brokers, such as {#commit}, end 0.5 s earlier. For the last 0.2 to 0.5 s the consumer
    #   no longer tries to leave its group. Then the group notices only after `session.timeout.ms` that its member is gone. If
    #   the last steps take longer, for example because the lookup of a broker's name hangs, the call returns and they continue
    #   on a thread of their own. The code of the rebalance listener itself has no limit.
    # @return [ConsumerCloseReport] frozen: whether closing was complete in time, and whether the consumer left the group
    # @raise [ArgumentError] when the timeout is invalid, or an Integer above an hour, which looks like milliseconds (a
    #   Float is accepted)
    # @raise [Exception] what {ConsumerConfig#rebalance_listener} raises, after the consumer was closed
    # @overload close(timeout: config.close_timeout / 1000.0)
    def close(*more, timeout: @internals.config.close_timeout / 1000.0, **wrong)
      Keywords.check("close(timeout: 10)", TIMEOUT, more, wrong)
      @internals.closer.close(Seconds.of(timeout)&.then { |seconds| (seconds * 1000).to_f })
    end

    # @return [String] librdkafka's bytes for the group membership: a transactional producer commits this consumer's
    #   offsets with them
    def group_metadata = @internals.client.group_metadata

    # @return [Boolean] whether {#close} was called; also true in a fork child of the process that used it. Never blocks.
    def closed? = @internals.closed?

    # Never blocks, never shows settings.
    def inspect = "#<#{self.class} #{Text.printable(@internals.id)} #{@internals.client.state}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = AsJson.of(self, id: @internals.id, state: @internals.client.state.to_s)

    private

    # @see RequiresSuper
    def initialized? = !@internals.nil?
  end
end

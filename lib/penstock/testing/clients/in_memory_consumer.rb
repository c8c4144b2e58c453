# frozen_string_literal: true

module Penstock
  module Clients
    # A consumer's client that never connects: a test feeds it with messages. Everything else of the consumer is real, such as
    # marks, epochs, positions, deserializers and rebalance listeners.
    #
    #     consumer = Penstock::Consumer.new("bootstrap.servers": "kafka:9092", "group.id": "shop") do |config|
    #       config.client_class = Penstock::Clients::InMemoryConsumer
    #     end
    #     consumer.client.feed(topic: "orders", payload: "tea")
    #     consumer.subscribe("orders")
    #     consumer.poll.payload           # "tea"
    #     consumer.commit
    #     consumer.client.committed       # { "orders" => { 0 => 1 } }
    #
    # What is fed forms partitions with offsets from 0, which can be read again after a {Consumer#seek}. Polls never wait: a poll
    # that finds nothing returns at once, whatever its timeout is.
    #
    # A subscribed consumer is the only member of its group. When a poll comes to the first message of a partition, the group
    # assigns all partitions with messages ({ConsumerConfig#rebalance_listener} is called). Reading starts at the committed offset
    # or at the beginning, whatever "auto.offset.reset" is. A Time and `[:last, n]` of {ConsumerConfig#start_at} are respected.
    # {#assign}, {#revoke} and {#lose} make the group do something else.
    # They, {#fail_next}, {#run} and {#close_at_end} take effect when a poll comes to them, after the messages that were fed
    # before. {Consumer#keep_alive} comes to what the group does, if no message or other step is before it.
    #
    # With "enable.auto.commit", what is processed is committed at once, not every 5 s.
    #
    # Any thread and fiber may use it, also in a fork child. Never blocks, with one exception: while a poll of one thread runs the
    # rebalance listener, polls of other threads wait for its end, up to their timeout, as with a real consumer.
    class InMemoryConsumer
      include AsJson
      include InMemoryCalls
      include InMemoryGroup

      # The calls that {#fail_next} can make fail.
      CALLS = %i[poll commit committed watermarks offsets_for_times seek].freeze
      OWN_GROUP = "penstock.in_memory"
      private_constant :CALLS, :OWN_GROUP

      # {Consumer#initialize} makes it.
      def initialize(config, callbacks)
        @callbacks = callbacks
        @config = config
        @deserializer = Deserializer.of(@config.deserializer, @config.key_deserializer, @config.id)
        @commits_itself = @config.group? && setting?("enable.auto.commit", true)
        @tells_ends = setting?("enable.partition.eof", false)
        @lock = Mutex.new
        @changed = ConditionVariable.new
        @bell = Thread::Queue.new # for keep_alive
        reset
      end

      # ---- feeding ----

      # Adds a message to its partition.
      #
      # @overload feed(message)
      #   @param message [Message]
      # @overload feed(**attributes)
      #   @param attributes [Hash] see {Message.new}. The default offset is the partition's next one, the default time is now
      # @return [Message]
      # @raise [ArgumentError] when the partition has this offset, or a later one, already
      def feed(message = nil, **attributes)
        @lock.synchronize do
          message ||= made(attributes)
          place = [message.topic, message.partition]
          message.offset >= next_offset(place) or
            raise ArgumentError, "partition #{place.join("/")} has offset #{message.offset} already: it must be at least " \
                                 "#{next_offset(place)}"
          (@logs[place] ||= []) << message
          @timeline << message
        end
        message
      end

      # Makes a call of the consumer fail once.
      #
      # @param error [Exception, Symbol] a Symbol is the code of a {ConsumeError}, or of a {CommitError} for a commit.
      #   `:illegal_generation` and `:unknown_member_id` make {Consumer#commit} return false, as the group has removed the member
      # @param on [Symbol] the call: :poll (also for poll_batch and each), :commit, :committed, :watermarks, :offsets_for_times or
      #   :seek
      # @return [self]
      # @raise [ArgumentError] when an argument is invalid
      # @overload fail_next(error, on: :poll)
      def fail_next(error, *more, on: :poll, **wrong)
        Keywords.check("fail_next(error, on: :poll)", %i[on], more, wrong)
        error.is_a?(Symbol) || error.is_a?(Exception) or
          raise ArgumentError, "error must be an exception or a code such as :illegal_generation, not #{error.inspect}"
        CALLS.include?(on) or raise ArgumentError, "on must be one of #{CALLS.inspect}, not #{on.inspect}"
        return run { raise failure(error, on) } if on == :poll

        @failures[on] << error
        self
      end

      # The group assigns partitions.
      # @param partitions [Hash{String, Symbol => Array<Integer>}]
      # @return [self]
      def assign(partitions)
        list = places(partitions)
        add(InMemoryGroup::Change.new { gain(list) })
      end

      # The group takes partitions away, in time. They are assigned again only by {#assign}.
      # @param partitions [Hash{String, Symbol => Array<Integer>}, nil] nil: all
      # @return [self]
      def revoke(partitions = nil)
        list = partitions && places(partitions)
        add(InMemoryGroup::Change.new { give_up(:revoked, list || @assigned.keys) })
      end

      # The group has removed the consumer: partitions are taken away too late to commit.
      # @param partitions [Hash{String, Symbol => Array<Integer>}, nil] nil: all
      # @return [self]
      def lose(partitions = nil)
        list = partitions && places(partitions)
        add(InMemoryGroup::Change.new { give_up(:lost, list || @assigned.keys) })
      end

      # Calls the block in the poll that comes to it, for example to set a flag that ends a loop.
      # @return [self]
      def run(&block)
        block or raise ArgumentError, "run requires a block"
        add(block)
      end

      # Closes the consumer when everything before was polled, so that {Consumer#each} returns.
      # @return [self]
      def close_at_end = run { @callbacks.consumer.close }

      # Forgets everything that was fed and committed, and the assignment. A closed consumer is open again.
      # @return [self]
      def reset
        @lock.synchronize do
          @ledger = Native::Ledger.new
          @timeline = [] # messages and blocks, in the order in which polls come to them
          @logs = {} # messages by place: topic and partition
          @committed = {} # offsets by place
          @metadata = {} # texts beside them
          @commits = []
          @failures = Hash.new { |failures, call| failures[call] = [] }
          @assigned = {} # the next offset to read, by place
          @ends = {} # the offsets of the ends that the program knows, by place
          @away = {} # the places that the group assigns only when the test says so
          @topics = nil
          @cursor = 0 # everything before it in the timeline was read, or cannot be read now
          @rewound = false # whether the cursor has to go back
          @changing = [] # the owner whose poll changes the assignment now, once for each change inside a change
          @closed = @opened = @lost = false
        end
        self
      end

      # ---- what was committed ----

      # @return [Hash{String => Hash{Integer => Integer}}] the committed offsets, by topic and partition
      def committed = by_topic(@committed)

      # @return [Array<Hash{String => Hash{Integer => Integer}}>] the offsets of each commit, in order
      def commits = @commits.dup

      # @return [String]
      def inspect = "#<#{self.class} #{state}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(state: state.to_s)

      # ---- what the consumer calls; more is in InMemoryCalls ----

      # @return [Message, nil]
      def poll(*more, timeout: 1, **wrong)
        Keywords.check("poll(timeout: 1)", %i[timeout], more, wrong)
        take(1, Seconds.of(timeout)).first
      end

      # @return [Batch]
      def poll_batch(*more, max: 100, timeout: 1, **wrong)
        Keywords.check("poll_batch(max: 100, timeout: 1)", %i[max timeout], more, wrong)
        Integer(max) >= 1 or raise ArgumentError, "max must be at least 1, not #{max}"
        take(max, Seconds.of(timeout))
      end

      # @return [String]
      def group_metadata = open && OWN_GROUP

      # @return [:configured, :open, :closed]
      def state
        return :closed if @closed

        @opened ? :open : :configured
      end

      private

      def add(step)
        @lock.synchronize { @timeline << step }
        @bell << true
        self
      end

      def open
        raise ErrorFactory.build(ConsumerClosedError, "the consumer is closed", consumer_id: @config.id) if @closed

        @opened = true
      end

      # Each fiber has its own.
      def owner = Fiber.current.object_id

      def made(attributes)
        place = [attributes[:topic].to_s, attributes.fetch(:partition, 0)]
        now = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
        Message.new(offset: next_offset(place), timestamp: now, **attributes)
      end

      def first_offset(place) = @logs[place]&.first&.offset || 0
      def next_offset(place) = (last = @logs[place]&.last) ? last.offset + 1 : 0

      # ---- polling ----

      # @param timeout [Numeric, nil] seconds in which another thread may change the assignment
      # @param bytes [Integer, nil] so many, of one partition; nil: of any
      # @return [Batch]
      def take(max, timeout, bytes: nil)
        open
        begin_poll
        limit = Deadline.new(timeout)
        until @closed
          step = @lock.synchronize { await_change(limit) ? begin_step(next_step(max, bytes)) : hand_out([]) }
          return published(step) if step.is_a?(Batch)

          run_step(step)
        end
        @ledger.hand_out([], [], owner, nil)
      end

      def published(batch)
        @callbacks.polled(batch) unless batch.empty?
        @callbacks.ended(batch)
        batch
      end

      # What the fiber polled last is processed.
      def begin_poll
        finish
        @left = false
        commit_by_itself
      end

      # @return [Batch, Proc] messages, perhaps none, or what comes before the next message
      def next_step(max, bytes)
        go_back
        messages = []
        @read_bytes = 0
        while messages.size < max && (entry = @timeline[@cursor])
          break if bytes && messages.any? && run_ends?(bytes, messages.last, entry)

          change = entry.is_a?(Proc) ? entry : assignment_before(entry)
          if change
            return done(change) if messages.empty?

            break # the program gets its messages first
          end
          @cursor += 1
          messages << entry if read?(entry)
        end
        hand_out(messages)
      end

      def run_ends?(bytes, last, entry)
        @read_bytes >= bytes || !entry.is_a?(Message) || entry.partition != last.partition || entry.topic != last.topic
      end

      def done(change)
        @timeline.delete_at(@cursor) if change.equal?(@timeline[@cursor])
        change
      end

      def hand_out(messages)
        batch = @ledger.hand_out(messages, new_ends, owner, @deserializer)
        @ledger.finish(owner) if @config.mark == :at_once
        batch
      end

      def new_ends
        return [] unless @tells_ends

        ends = @assigned.select { |place, offset| offset >= next_offset(place) && @ends[place] != offset }
        @ends.update(ends)
        ends.map { |place, offset| [*place, offset] }
      end

      def read?(message)
        place = [message.topic, message.partition]
        return false unless @assigned.key?(place) && message.offset >= @assigned[place] && !paused?(place)

        @assigned[place] = message.offset + 1
        @read_bytes += message.payload.to_s.bytesize
        true
      end

      def paused?(place) = @ledger.paused.any? { |topic, partition, *| place == [topic, partition] }

      # ---- offsets ----

      def commit_by_itself
        store(@ledger.processed) if @commits_itself
      end

      def store(places)
        offsets = places.to_h { |topic, partition, offset| [[topic, partition], offset] }
        places.each { |topic, partition, _, _, metadata| @metadata[[topic, partition]] = metadata }
        offsets.reject! { |place, offset| @committed[place] == offset }
        return if offsets.empty?

        @committed.update(offsets)
        offsets.each { |(topic, partition), offset| @ledger.committed(topic, partition, offset) }
        @commits << by_topic(offsets)
        nil
      end

      def by_topic(offsets)
        offsets.sort.each_with_object({}) do |((topic, partition), offset), topics|
          (topics[topic] ||= {})[partition] = offset
        end
      end

      def places(partitions) = ConsumerPlaces.places(partitions, 0).map { |place| place.first(2) }

      def setting?(name, default)
        given = @config.kafka[name.to_sym]
        Settings.read(name, given.nil? ? default : given) == "true"
      end
    end
  end
end

# frozen_string_literal: true

require_relative "native"
require_relative "consumer/close_report"
require_relative "consumer/config"
require_relative "consumer/message"

module Penstock
  # Reads messages from Kafka, as a member of a group ({#subscribe}) or from partitions of its own choice ({#assign}).
  #
  #     consumer = Penstock::Consumer.new do |config|
  #       config.kafka = { "bootstrap.servers": "localhost:9092", "group.id": "billing", "auto.offset.reset": "earliest" }
  #     end
  #     consumer.subscribe("events")
  #     consumer.each { |message| puts message.payload }
  #     consumer.close
  #
  # Making a consumer checks its configuration and connects nothing; the first use does. Only the thread that polls takes
  # messages, so librdkafka's `max.poll.interval.ms` means what it says: a member that does not poll for that long loses
  # its partitions. A wait within {#poll}, however long, counts as polling.
  #
  # librdkafka commits the offsets of messages that were polled every `auto.commit.interval.ms`, unless
  # `enable.auto.commit` is false; then {#commit} does. Polling a message marks it: what a process that crashes had polled
  # but not dealt with may be committed. To be sure, set `enable.auto.commit` to false and commit what was dealt with.
  #
  # Any thread may use a consumer, several at once; each message goes to one of those that poll. What "blocks this thread"
  # blocks only the fiber where it has a scheduler. Any Ractor may make a consumer of its own, without logger and token
  # provider. In a forked child a consumer that the parent had used raises {ForkedError}; one that was only made works there.
  #
  # A subclass whose initialize does not call super is refused with a TypeError when one is made.
  #
  # An error of {#poll} is raised once, when it concerns the caller: the topic is unknown or may not be read, an offset is
  # out of range, the consumer did not poll in time. Polling can go on after it, unless it is `fatal?`. What comes and
  # goes with brokers is logged, and librdkafka goes on trying. Ends of partitions (`enable.partition.eof`) are not told.
  #
  # A message that another client wrote with headers that cannot be read is an error in its place (`:bad_msg`, with `topic`,
  # `partition` and `offset`), after all that is before it in its partition. It is passed over then, but not committed by
  # librdkafka until a later message of its partition is polled; a {#commit} after it does.
  #
  # Brokers that can be reached and do not want this client (certificate, password, protocol) are a {BrokerRejectedError}, of
  # {#poll} and of what waits for their answers ({#commit}, {#committed}, {#watermarks}), within `config.rejection_timeout`;
  # {#subscribe} and {#assign} ask nobody. See docs/security.md.
  class Consumer
    extend RequiresSuper
    include Uncopyable
    include CredentialChecks
    include AsJson

    # Where to begin reading, for {#assign} and {#seek}: librdkafka's numbers.
    OFFSETS = { beginning: -2, end: -1, stored: -1000 }.freeze
    INVALID_OFFSET = -1001
    TIMEOUT = %i[timeout].freeze
    private_constant :OFFSETS, :INVALID_OFFSET, :TIMEOUT

    # @return [ConsumerConfig] frozen
    attr_reader :config

    # Librdkafka's settings are keywords, or the block sets them with everything else; with both, the block finds in
    # {ConsumerConfig#kafka} what was given, and may change it.
    #
    #     Penstock::Consumer.new("bootstrap.servers": "localhost:9092", "group.id": "billing")
    #
    # @overload initialize(**kafka)
    #   @param kafka [Hash] librdkafka's settings; see {ConsumerConfig#kafka}
    #   @yieldparam config [ConsumerConfig]
    #   @raise [ConfigurationInvalidError] naming the setting that is wrong
    def initialize(*more, **kafka)
      Keywords.check("new(\"bootstrap.servers\": \"localhost:9092\", \"group.id\": \"billing\")", [], more, {})
      @subscribed = false
      @config = ConsumerConfig.new
      @config.__send__(:begin_with, kafka)
      yield @config if block_given?
      @config.__send__(:finish)
      raise_in_other_ractors
      refresher = Native::TokenRefresher.new(self, :consumer_id) if config.oauth.token_provider_listener
      call_configure(id, config.kafka, config.logger, config.close_timeout, config.group?, config.rejection_timeout, refresher)
    end

    # @return [String] the name given as `config.id`
    def id = config.id

    # Joins the group of `group.id` and reads what it assigns, in place of what was subscribed to before. Joining happens
    # while the consumer is polled.
    #
    # Blocks: this thread, for a ms or so, without the GVL; interruptible at once.
    #
    # @param topics [Array<String, Symbol>] names, or regular expressions that begin with "^"
    # @return [self]
    # @raise [ConfigurationInvalidError] there is no "group.id"
    # @raise [ConsumerClosedError, ForkedError]
    def subscribe(*topics)
      need_group("subscribe")
      topics = topics.flatten
      raise ArgumentError, "subscribe takes at least one topic" if topics.empty?

      call_subscribe(topics.map { |topic| [topic_name(topic), -1, INVALID_OFFSET] })
      @subscribed = true
      self
    end

    # Leaves the group; while the consumer is polled, or closed.
    #
    # Blocks: like {#subscribe}.
    #
    # @return [self]
    # @raise [ConsumerClosedError, ForkedError]
    def unsubscribe
      call_subscribe(nil)
      @subscribed = false
      self
    end

    # Reads these partitions, without a group, in place of what was assigned before. A consumer that is subscribed must
    # not be assigned by hand.
    #
    #     consumer.assign("events" => [0, 1])
    #     consumer.assign("events" => { 0 => 1_000, 1 => :beginning })
    #
    # Blocks: this thread, for some 10 ms, in which librdkafka stops what was assigned before; without the GVL, interruptible
    # at once. One who assigns waits for another.
    #
    # @param partitions [Hash{String, Symbol => Array<Integer>, Hash{Integer => Integer, Symbol}}] by topic; a list is read
    #   from the committed offsets if there is a group, and else as `auto.offset.reset` says; an offset is a number,
    #   :beginning, :end or :stored (the committed one). Empty: reads nothing.
    # @return [self]
    # @raise [ConfigurationInvalidError] :stored without a "group.id"
    # @raise [ConsumerClosedError, ForkedError]
    def assign(partitions)
      call_assign(places(partitions, INVALID_OFFSET))
      self
    end

    # What is read at the moment: assigned by the group or by hand.
    #
    # Blocks: like {#subscribe}.
    #
    # @return [Hash{String=>Array<Integer>}] partitions by topic
    # @raise [ConsumerClosedError, ForkedError]
    def assignment
      call_assignment.group_by(&:first).transform_values { |places| places.map { |place| place[1] }.sort }
    end

    # @!method poll(timeout: 1)
    #   The next message. Also does what the group asks for, so a consumer has to be polled even if nothing is expected.
    #
    #   Blocks: this thread, until there is a message or the time is up, without the GVL. `Thread#raise`, `Timeout` and
    #   Ctrl-C interrupt it at once.
    #   @param timeout [Numeric, nil] seconds to wait, as a Float if it is more than an hour; 0: takes only what is there;
    #     nil: without limit
    #   @return [Message, nil] nil: nothing came in time, or another thread closed the consumer meanwhile
    #   @raise [ConsumeError] see {Consumer}
    #   @raise [BrokerRejectedError] brokers do not want this client; see {ConsumerConfig#rejection_timeout}
    #   @raise [ConsumerClosedError] it was closed before
    #   @raise [ForkedError] it is the parent process's
    #   @raise [ArgumentError] the timeout is none; or an Integer above an hour, which looks like milliseconds

    # @!method poll_batch(max: 100, timeout: 1)
    #   Waits for a message, then takes what else is there without waiting. A batch ends before a change of the assignment
    #   and before an error, which come with the next call. It also ends with the message that brings it to 100,000 headers.
    #
    #   Blocks: like {#poll}.
    #   @param max [Integer] messages at most; at least 1
    #   @param timeout [Numeric, nil] seconds; see {#poll}
    #   @return [Array<Message>] in order within a partition; empty: nothing came in time, or see {#poll}
    #   @raise [ConsumeError, ConsumerClosedError, ForkedError, ArgumentError] see {#poll}

    # Polls until the consumer is closed, by the block or by another thread, and yields each message. Without a block, an
    # Enumerator. A consumer itself is no Enumerable: most of its methods, such as `count` and `to_a`, would never end.
    #
    # Blocks: like {#poll}, again and again.
    #
    # @overload each(timeout: 1)
    #   @param timeout [Numeric, nil] seconds that each of its polls waits at most; see {#poll}
    #   @yieldparam message [Message]
    #   @return [self] when the consumer is closed
    #   @raise [ConsumeError, ForkedError, ArgumentError] see {#poll}; calling it again goes on with the next message
    def each(*more, timeout: 1, **wrong)
      Keywords.check("each(timeout: 1) { |message| ... }", TIMEOUT, more, wrong)
      return to_enum(:each, timeout:) unless block_given?

      until closed?
        message = poll_unless_closed(timeout)
        yield message if message
      end
      self
    end

    # Commits offsets: where the group goes on reading after a restart or rebalance.
    #
    # Blocks: this thread, until the group's coordinator has answered, without the GVL; interruptible at once, and the
    # offsets may be committed all the same. With `async`, not at all: what goes wrong is logged.
    #
    # @overload commit(what = nil, async: false, timeout: 30)
    #   @param what [Message, Hash{String => Hash{Integer => Integer}}, nil] a message: it and all before it in its
    #     partition were dealt with; a Hash, in braces: the offset to go on with, by topic and partition; nil: everything
    #     polled so far from the partitions that are assigned
    #   @param async [Boolean]
    #   @param timeout [Numeric, nil] seconds to wait for the answer, as a Float if it is more than an hour; nil: without limit
    #   @return [nil]
    #   @raise [CommitError] they were not committed, such as because the partition is another member's now
    #   @raise [ConsumeTimeoutError] no answer in time; they may still be committed
    #   @raise [BrokerRejectedError] brokers do not want this client; see {ConsumerConfig#rejection_timeout}
    #   @raise [ConfigurationInvalidError] there is no "group.id"
    #   @raise [ConsumerClosedError, ForkedError]
    #   @raise [ArgumentError] the timeout is none; or an Integer above an hour, which looks like milliseconds
    def commit(what = nil, *more, async: false, timeout: 30, **wrong)
      offsets = "{ \"topic\" => { 0 => 5 } }" if wrong.keys.first.is_a?(String)
      Keywords.check("commit(#{offsets || "message"}, async: false, timeout: 30)", %i[async timeout], more, wrong)
      need_group("commit")
      offsets = offsets_to_commit(what)
      return if offsets.empty?

      async ? call_commit_async(offsets) : call_commit(offsets, timeout)
    end

    # The group's committed offsets.
    #
    # Blocks: this thread, until the coordinator has answered, without the GVL; interruptible at once.
    #
    # @overload committed(topic, partitions, timeout: 5)
    #   @param topic [String, Symbol]
    #   @param partitions [Array<Integer>, Integer]
    #   @param timeout [Numeric, nil] seconds to wait for the answer; see {#commit}
    #   @return [Hash{Integer=>Integer, nil}] by partition: the offset the group goes on with; nil: none was committed
    #   @raise [ConsumeError, ConsumeTimeoutError, ConfigurationInvalidError, ConsumerClosedError, ForkedError] see {#commit}
    def committed(topic, partitions, *more, timeout: 5, **wrong)
      Keywords.check("committed(topic, partitions, timeout: 5)", TIMEOUT, more, wrong)
      need_group("committed")
      name = topic_name(topic)
      asked = Array(partitions).map { |partition| [name, partition_number(partition), INVALID_OFFSET] }
      return {} if asked.empty?

      call_committed(asked, timeout).to_h { |_, partition, offset| [partition, offset] }
    end

    # Never blocks.
    #
    # @param topic [String, Symbol]
    # @param partition [Integer]
    # @return [Integer, nil] the offset after the latest message polled from this partition; nil: none was
    # @raise [ConsumerClosedError, ForkedError]
    def position(topic, partition)
      call_positions([[topic_name(topic), partition_number(partition), INVALID_OFFSET]]).first
    end

    # Where a partition begins and ends, as its leader says.
    #
    # Blocks: like {#committed}.
    #
    # @overload watermarks(topic, partition, timeout: 5)
    #   @param topic [String, Symbol]
    #   @param partition [Integer]
    #   @param timeout [Numeric, nil] seconds to wait for the answer; see {#commit}
    #   @return [Array(Integer, Integer)] the offset of its first message, and the one its next message will have
    #   @raise [ConsumeError, ConsumeTimeoutError, ConsumerClosedError, ForkedError]
    def watermarks(topic, partition, *more, timeout: 5, **wrong)
      Keywords.check("watermarks(topic, partition, timeout: 5)", TIMEOUT, more, wrong)
      call_watermarks([[topic_name(topic), partition_number(partition), INVALID_OFFSET]], timeout)
    end

    # Goes on reading a partition that is assigned somewhere else. Messages from before are not polled any more.
    #
    # Blocks: like {#subscribe}.
    #
    # @overload seek(topic, partition, offset, timeout: 5)
    #   @param topic [String, Symbol]
    #   @param partition [Integer]
    #   @param offset [Integer, Symbol] a number, :beginning or :end
    #   @param timeout [Numeric, nil] seconds to wait until it is done; see {#commit}
    #   @return [self]
    #   @raise [ConsumeError] such as with the code :state, when the partition is not assigned
    #   @raise [ConsumeTimeoutError, ConsumerClosedError, ForkedError]
    def seek(topic, partition, offset, *more, timeout: 5, **wrong)
      Keywords.check("seek(topic, partition, offset, timeout: 5)", TIMEOUT, more, wrong)
      call_seek([[topic_name(topic), partition_number(partition), offset_number(offset)]], timeout)
      self
    end

    # Logs in with these from now on: what is connected stays so, until the broker ends it (`connections.max.reauth.ms`), and
    # a consumer that is refused tries again at once. Never blocks.
    #
    # @param username [String]
    # @param password [String, Secret]
    # @return [nil]
    # @raise [ConfigurationInvalidError] the consumer does not log in with a password
    # @raise [ConsumerClosedError, ForkedError]
    def set_credentials(username, password)
      closed = %i[closing closed].include?(state)
      raise ErrorFactory.build(ConsumerClosedError, "the consumer is closed", consumer_id: id) if closed

      check_credentials(username, password, consumer_id: id)
      call_set_credentials(username, password)
    end

    # Wakes every thread that polls, commits what librdkafka would have committed, leaves the group and frees everything.
    # Messages that were polled stay good. While the group is rebalancing, its coordinator may refuse the offsets of one who
    # leaves; that is logged, and others poll those messages again. Closing again does nothing; closing from several threads
    # at once closes once, and all wait for it. In a forked child it does nothing.
    #
    # Blocks: this thread, until then, without the GVL; interruptible at once, and closing then goes on by itself. May be
    # called from a signal trap, from a block of {#each}, and from an `at_exit` block.
    #
    # @param timeout [Numeric, nil] seconds to leave the group in; nil: without limit; default: `config.close_timeout`. When
    #   it is up, the group has to notice by itself (`session.timeout.ms`) that its member is gone.
    # @return [ConsumerCloseReport] frozen: whether it was done in the time, and the group left
    # @raise [ArgumentError] the timeout is none; or an Integer above an hour, which looks like milliseconds (a Float is taken)
    # @overload close(timeout: config.close_timeout / 1000.0)
    def close(*more, timeout: config.close_timeout / 1000.0, **wrong)
      Keywords.check("close(timeout: 10)", TIMEOUT, more, wrong)
      timeout = Seconds.of(timeout)
      in_time = call_close(timeout && (timeout * 1000).to_f)
      ConsumerCloseReport.new(in_time, in_group? ? in_time : nil).freeze
    end

    # @return [Boolean] whether {#close} was called; also true in a forked child of the process that used it. Never blocks.
    def closed? = %i[closing closed inherited].include?(state)

    # Never blocks, never shows settings.
    def inspect = "#<#{self.class} #{Text.printable(id)} #{state}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(id:, state: state.to_s)

    # @!method group_metadata
    #   @return [String] librdkafka's bytes for it: what a transactional producer commits this consumer's offsets with

    private

    # @see RequiresSuper
    def initialized? = !@config.nil?

    # A forked child is in no group: its parent is.
    def in_group? = @subscribed && state != :inherited

    # What would run on a thread of the main Ractor.
    def raise_in_other_ractors
      return if Ractor.current == Ractor.main || (config.logger.nil? && config.oauth.token_provider_listener.nil?)

      raise ErrorFactory.build(NotShareableError, "a consumer of another Ractor cannot have config.logger or config.oauth",
                               consumer_id: id)
    end

    def poll_unless_closed(timeout)
      poll(timeout:)
    rescue ConsumerClosedError
      nil
    end

    def need_group(method)
      config.group? or raise ErrorFactory.build(ConfigurationInvalidError, "#{method} needs config.kafka[\"group.id\"]")
    end

    def offsets_to_commit(what)
      case what
      when nil then positions
      when Hash then places(what, nil)
      else
        topic, partition, offset = Consumer.place_of(what)
        [[topic, partition, offset + 1]]
      end
    end

    def positions
      assigned = call_assignment.map { |topic, partition, _| [topic, partition, INVALID_OFFSET] }
      assigned.zip(call_positions(assigned)).filter_map { |(topic, partition, _), offset| offset && [topic, partition, offset] }
    end

    # @param default [Integer, nil] the offset of partitions given without one; nil: there has to be one, and a number
    # @return [Array<Array(String, Integer, Integer)>]
    def places(partitions, default)
      partitions.is_a?(Hash) or raise ArgumentError, "expected a Hash of topics to partitions, not #{partitions.class}"
      partitions.flat_map do |topic, list|
        name = topic_name(topic)
        unless list.is_a?(Hash) || (default && list.is_a?(Array))
          raise ArgumentError, "expected the partitions of #{Text.printable(name)} as a Hash#{" or Array" if default}, " \
                               "not #{list.inspect}"
        end

        list.map { |partition, offset| place(name, partition, offset || default, default) }
      end
    end

    def place(name, partition, offset, default)
      offset = offset == default && default ? default : offset_number(offset, symbols: default)
      need_group("assigning from :stored") if offset == OFFSETS[:stored]
      [name, partition_number(partition), offset]
    end

    def topic_name(topic)
      name = topic.is_a?(Symbol) ? topic.name : topic
      return name if name.is_a?(String) && !name.empty? && !name.b.include?("\0") # UTF-16 has some

      raise ArgumentError, "a topic is a String or Symbol, not #{topic.inspect}"
    end

    def partition_number(partition)
      return partition if partition.is_a?(Integer) && partition.between?(0, (2**31) - 1)

      raise ArgumentError, "a partition is an Integer from 0, not #{partition.inspect}"
    end

    def offset_number(offset, symbols: true)
      return offset if offset.is_a?(Integer) && offset.between?(0, (2**63) - 1)
      return OFFSETS.fetch(offset) if symbols && OFFSETS.key?(offset)

      raise ArgumentError, "an offset is an Integer from 0#{", :beginning, :end or :stored" if symbols}, not #{offset.inspect}"
    end
  end
end

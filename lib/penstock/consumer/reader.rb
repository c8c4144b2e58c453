# frozen_string_literal: true

# Reading for scripts is at the end.
module Penstock
  # Reads topics from one place to another without a group, then ends. For scripts, reports and repairs.
  #
  #     Penstock.read("events", from: Time.now - 3600, "bootstrap.servers": "localhost:9092") { |message| puts message.payload }
  #
  #     reader = Penstock::Reader.new({ "events" => [0, 1] }, from: [:last, 100], "bootstrap.servers": "localhost:9092")
  #     reader.each { |message| puts message.payload if reader.progress.messages < 10 }
  #     reader.map(&:key).uniq
  #
  # Each call of {#each} connects a {Consumer} of its own, finds out the partitions and where they end now, reads them all, and
  # closes the consumer, also after `break` or an exception. So it ends even while producers write. Messages are in order within
  # a partition. Nothing is committed, and no group is joined. Enumerable's methods call {#each}.
  #
  # It reads with read_committed, librdkafka's default, up to the first open transaction. Offsets without a message are no
  # obstacle: those of aborted or compacted messages.
  #
  # One thread at a time may call {#each}. Any thread may call {#progress}.
  class Reader
    include Enumerable
    include AsJson

    # How much of a range is read. Offsets are counted, as some of them have no message.
    #
    # - `read`, `total`: offsets that were read, and all of them; 0 before partitions are known
    # - `messages`: how many were yielded
    # - `partitions`: { topic => { partition => [read, total] } }
    Progress = Struct.new(:read, :total, :messages, :partitions) do
      include AsJson

      # @return [Boolean]
      def done? = read == total

      # @return [Float] from 0.0 to 1.0
      def ratio = total.zero? ? 1.0 : read.fdiv(total)

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(read:, total:, messages:)
    end

    # What the consumer of a reader needs.
    FORCED = { "enable.partition.eof": true, "enable.auto.commit": false }.freeze
    # If messages at the position are deleted meanwhile, the next ones are read. Brokers report the end of a partition only when
    # they have waited for messages.
    DEFAULTS = { "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50 }.freeze
    BATCH = 1_000
    # How long a poll waits, before the reader looks whether the partitions have ended.
    WAIT = 0.1
    private_constant :FORCED, :DEFAULTS, :BATCH, :WAIT

    # One partition, and how much of it is read.
    class Range
      attr_reader :topic, :number, :begin, :end

      def initialize(topic, number, first, last)
        @topic = topic
        @number = number
        @begin = @next = first
        @end = last
      end

      # @return [Integer] offsets
      def total = @end - @begin
      # @return [Integer] offsets
      def read = @next - @begin
      # @return [Boolean]
      def read? = @next >= @end

      # @param offset [Integer] the next one
      def reach(offset) = @next = offset.clamp(@next, @end)
    end
    private_constant :Range

    # Never blocks.
    #
    # @overload initialize(topics, from: :beginning, to: :end, timeout: 30, progress: nil, consumer: nil, **kafka)
    #   @param topics [String, Symbol, Array<String, Symbol>, Hash{String, Symbol => Array<Integer>, Hash{Integer => Object}}] all
    #     partitions of topics; or a Hash of topics to partitions, or to partitions and where each begins
    #   @param from [Integer, :beginning, :end, :stored, Time, Array(Symbol, Integer), Offset] where partitions begin; see
    #     {Consumer#assign}. What is before the first message or behind the end is moved there. :stored: what is committed for
    #     the "group.id" in the settings, else the beginning
    #   @param to [Integer, :end, Time] where they end: before this offset, or before the first message with this timestamp or a
    #     later one. Never later than the end at the beginning of {#each}
    #   @param timeout [Numeric, nil] seconds to find out the partitions and offsets; nil: no limit
    #   @param progress [#call, nil] gets a {Progress} before the first message, after every 1,000 or fewer, and at the end
    #   @param consumer [#call, nil] gets the {ConsumerConfig}, like the block of {Consumer#initialize}: for a logger, OAuth,
    #     limits
    #   @param kafka [Hash] librdkafka's settings; see {ConsumerConfig#kafka}
    # @raise [ArgumentError] when an argument is invalid; {#each} checks the settings
    def initialize(topics, *more, from: :beginning, to: :end, timeout: 30, progress: nil, consumer: nil, **kafka)
      Keywords.check("read(topics, from: :beginning, to: :end, \"bootstrap.servers\": \"localhost:9092\")", [], more, {})
      @topics = ReaderTopics.new(topics, from, to)
      @timeout = Seconds.of(timeout)
      @on_progress = callable(:progress, progress)
      @configure = callable(:consumer, consumer)
      @kafka = kafka
      @ranges = []
      @messages = 0
    end

    # Reads from the beginning of the range to its end. Without a block, returns an Enumerator, which does the same.
    #
    # Blocks: like {Consumer#poll}, repeatedly; in the end like {Consumer#close}.
    #
    # @yieldparam message [Message]
    # @return [self, Enumerator]
    # @raise [ConfigurationInvalidError] when a setting is invalid
    # @raise [ConsumeTimeoutError] when brokers do not tell the partitions and offsets in time
    # @raise [ConsumeError] when a topic is unknown, or reading fails; see {Consumer}
    # @raise [BrokerRejectedError] when brokers reject this client
    def each(&block)
      return to_enum(:each) unless block

      consumer = connect
      begin
        read(consumer, &block)
      ensure
        consumer.close
      end
      self
    end

    # Never blocks.
    # @return [Progress] of the latest {#each}; frozen
    def progress
      ranges = @ranges
      partitions = ranges.group_by(&:topic).transform_values do |found|
        found.to_h { |range| [range.number, [range.read, range.total].freeze] }.freeze
      end
      Progress.new(ranges.sum(&:read), ranges.sum(&:total), @messages, partitions.freeze).freeze
    end

    # @return [String]
    def inspect = "#<#{self.class} #{@topics.names.map { |name| Text.printable(name) }.join(", ")}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(topics: @topics.names, progress: progress.as_json)

    private

    def callable(name, given)
      return given if given.nil? || given.respond_to?(:call)

      raise ArgumentError, ":#{name} must have a method call, or be nil, not #{given.inspect}"
    end

    # The advice to set it "in the block" would be wrong here: the block gets messages.
    def check_own_settings
      own = @kafka.each_key.find { |name| name != :kafka && ConsumerConfig.method_defined?("#{name}=") } or return

      raise ErrorFactory.build(ConfigurationInvalidError, "config.#{own} is not a setting of librdkafka: " \
                                                          "write consumer: ->(config) { config.#{own} = ... }")
    end

    def connect
      check_own_settings
      Consumer.new(**@kafka) do |config|
        @configure&.call(config)
        config.mark = :manual
        given = config.kafka.transform_keys(&:to_sym)
        config.kafka = DEFAULTS.merge(given).merge(FORCED)
      end
    end

    def read(consumer, &block)
      @ranges = []
      @messages = 0
      parts = ConsumerRegistry.of(consumer)
      @ranges = parts.offsets.ranges(@topics, Deadline.new(@timeout)).map { |range| Range.new(*range) }
      @on_progress&.call(progress)
      open = @ranges.reject(&:read?)
      consumer.assign(starts(open)) unless open.empty?
      open = read_batch(consumer, open, &block) until open.empty?
    end

    # @return [Hash{String => Hash{Integer => Integer}}]
    def starts(ranges) = grouped(ranges) { |range| [range.number, range.begin] }.transform_values(&:to_h)

    def grouped(ranges, &value) = ranges.group_by(&:topic).transform_values { |found| found.map(&value) }

    # @return [Array<Range>] those that have not ended
    def read_batch(consumer, open, &block)
      batch = consumer.poll_batch(max: BATCH, timeout: WAIT)
      limits = grouped(open) { |range| [range.number, range] }.transform_values(&:to_h)
      batch.each { |message| yield_message(message, limits.dig(message.topic, message.partition), &block) }
      client = ConsumerRegistry.of(consumer).client
      open.each { |range| range.reach(client.reached(range.topic, range.number) || 0) }
      ended, open = open.partition(&:read?)
      @on_progress&.call(progress) unless batch.empty? && ended.empty?
      stop_fetching(consumer, ended) unless open.empty?
      open
    end

    def stop_fetching(consumer, ended)
      consumer.pause(grouped(ended, &:number)) unless ended.empty?
    end

    def yield_message(message, range)
      return if range.nil? || message.offset >= range.end

      @messages += 1
      range.reach(message.offset + 1)
      yield message
    end
  end

  # What {Reader} was told to read, checked.
  # @api private
  class ReaderTopics
    include ConsumerPlaces

    # @return [Array<String>]
    attr_reader :names

    def initialize(topics, from, to)
      @from = checked_offset(from, true)
      @to = to
      @to = checked_offset(to, true) unless to == :end
      raise ArgumentError, ":to must be an Integer, :end or a Time, not #{to.inspect}" unless valid_end?

      @chosen = topics.is_a?(Hash) ? places(topics, nil_start) : nil
      @names = @chosen ? @chosen.map(&:first).uniq : Array(topics).map { |topic| topic_name(topic) }.uniq
      raise ArgumentError, "expected a topic" if @names.empty? && (@chosen.nil? || topics.empty?)
    end

    # @yieldparam names [Array<String>] whose partitions are wanted
    # @return [Array<Array>] topic, partition, start
    def starts
      chosen = @chosen || (yield names).map { |topic, partition| [topic, partition, nil_start] }
      chosen.map { |place| place[2] == nil_start ? [*place.first(2), from] : place }
    end

    # @return [Array<Array>, nil] topic, partition, end; nil: the ends of the partitions
    def ends(places) = @to == :end ? nil : places.map { |place| [*place.first(2), @to] }

    private

    def nil_start = INVALID_OFFSET
    def from = @from.is_a?(Offset) ? @from.offset : @from
    def valid_end? = @to == :end || @to.is_a?(Time) || (@to.is_a?(Integer) && @to >= 0)
  end
  private_constant :ReaderTopics

  # Reads messages of topics, from one place to another, then ends; see {Reader}. For scripts.
  #
  #     Penstock.read("events", from: Time.now - 3600, "bootstrap.servers": "localhost:9092") { |message| puts message.payload }
  #
  # Blocks: like {Reader#each}. `break` ends it.
  #
  # @param topics [String, Symbol, Array, Hash] see {Reader#initialize}
  # @param options [Hash] see {Reader#initialize}
  # @yieldparam message [Message]
  # @return [Reader, Enumerator] an Enumerator without a block: nothing is read before it is used
  # @raise [ArgumentError] when an argument is invalid
  # @raise [ConfigurationInvalidError, ConsumeError, ConsumeTimeoutError, BrokerRejectedError] see {Reader#each}
  # @overload read(topics, from: :beginning, to: :end, timeout: 30, progress: nil, consumer: nil, **kafka)
  def self.read(topics, *more, **options, &block)
    Reader.new(topics, *more, **options).each(&block)
  end
end

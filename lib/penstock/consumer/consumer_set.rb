# frozen_string_literal: true

module Penstock
  # Waits for any number of consumers at once, of any groups and clusters. One thread, or one fiber, then serves all of them.
  # An idle consumer costs it nothing.
  #
  #     set = Penstock::ConsumerSet.new(orders, payments)
  #     until stopping
  #       set.wait(timeout: 1).each do |consumer|
  #         consumer.poll_batch(timeout: 0).each { |message| process(message) }
  #       end
  #     end
  #
  # A set belongs to its Ractor. Any thread and fiber of it may use the set, also several at once: each message then goes to one
  # of the threads that poll its consumer. In a fork child, a set of the parent process raises {ForkedError}.
  #
  # A consumer can be in one set. The set keeps it alive, and does not close it. A consumer that is closed leaves the set.
  class ConsumerSet
    include Uncopyable
    include AsJson

    EACH_BATCH = %i[max].freeze
    private_constant :EACH_BATCH

    # @param consumers [Array<Consumer>]
    # @raise [ArgumentError, ConsumerClosedError, ForkedError, TypeError] see {#add}; then it holds none of them
    def initialize(*consumers)
      raise TypeError, "expected consumers, not an Array: ConsumerSet.new(*consumers)" if consumers.first.is_a?(Array)

      consumers.each { |consumer| add(consumer) }
    rescue StandardError
      clear
      raise
    end

    # @!method add(consumer)
    #   Adds a consumer, subscribed or not. A thread in {#wait} waits for it too. Never blocks.
    #   @param consumer [Consumer] nothing changes if the set has it
    #   @return [self]
    #   @raise [ArgumentError] when another set has it
    #   @raise [ConsumerClosedError] when the consumer is closed
    #   @raise [ForkedError] when the set or the consumer belongs to the parent process
    #   @raise [TypeError] when it is no consumer

    # @!method delete(consumer)
    #   Takes a consumer out of the set. A thread in {#wait} no longer waits for it. Never blocks.
    #   @param consumer [Consumer] nothing changes if the set does not have it
    #   @return [self]
    #   @raise [ForkedError, TypeError] see {#add}

    # Takes all consumers out of the set. Never blocks.
    # @return [self]
    # @raise [ForkedError] when the set belongs to the parent process
    def clear
      consumers.each { |consumer| delete(consumer) }
      self
    end

    # @!method include?(consumer)
    #   Never blocks.
    #   @param consumer [Consumer]
    #   @return [Boolean]
    #   @raise [ForkedError, TypeError] see {#add}

    # @!method consumers
    #   Never blocks.
    #   @return [Array<Consumer>] in no particular order
    #   @raise [ForkedError] when the set belongs to the parent process

    # @!method size
    #   Never blocks.
    #   @return [Integer] how many consumers it has
    #   @raise [ForkedError] when the set belongs to the parent process

    # Never blocks.
    # @return [Boolean] whether it has no consumer
    # @raise [ForkedError] when the set belongs to the parent process
    def empty? = size.zero?

    # @!method wait(timeout: 1)
    #   Waits until a consumer of the set should be polled, and returns all such consumers. They are those
    #
    #   - that may have messages, rebalances or errors. The set returns a consumer again until its polls find no more;
    #   - that have not been returned for half of their `max.poll.interval.ms`: poll them, so that they stay in their groups;
    #   - that brokers reject: their next poll raises {BrokerRejectedError};
    #   - that are closed. Such a consumer leaves the set, and is returned once.
    #
    #   Poll each of them with `timeout: 0`. A poll may still find nothing. If you poll only the first one, the next call puts
    #   another first.
    #
    #   What the calling thread or fiber has polled from these consumers then counts as processed, as if it polled them again
    #   ({ConsumerConfig#mark}).
    #
    #   Blocks: this thread, until there is such a consumer or the time is up, without the GVL. `Thread#raise`, `Timeout` and
    #   Ctrl-C interrupt it at once. An empty set waits too: another thread may add a consumer.
    #   @param timeout [Numeric, nil] seconds to wait; more than an hour must be a Float; 0: does not wait; nil: no limit
    #   @return [Array<Consumer>] each once; empty: none in time, or the last consumer was deleted during the wait
    #   @raise [ForkedError] when the set belongs to the parent process
    #   @raise [ArgumentError] when the timeout is invalid, or an Integer above an hour, which looks like milliseconds

    # Waits, and yields a batch of each consumer that has messages, one after the other, until the set is empty: when all
    # consumers are closed or deleted. A batch counts as processed when the block returns, unless {ConsumerConfig#mark} is
    # `:manual`. Without a block, returns an Enumerator.
    #
    # Every consumer with messages gets one batch before any gets the next one.
    #
    # Blocks: like {#wait}, repeatedly.
    #
    # @overload each_batch(max: 100)
    #   @param max [Integer] maximum number of messages in a batch; at least 1
    #   @yieldparam consumer [Consumer]
    #   @yieldparam batch [Batch] never empty
    #   @return [self, Enumerator] self when the set is empty; an Enumerator without a block
    #   @raise [ConsumeError, BrokerRejectedError] see {Consumer#poll}; `consumer_id` names the consumer. Call each_batch again to
    #     continue
    #   @raise [ForkedError, ArgumentError] see {#wait} and {Consumer#poll_batch}
    def each_batch(*more, max: 100, **wrong, &block)
      Keywords.check("each_batch(max: 100) { |consumer, batch| ... }", EACH_BATCH, more, wrong)
      return to_enum(:each_batch, max:) unless block

      wait(timeout: nil).each { |consumer| yield_batch(consumer, max, &block) if include?(consumer) } until empty?
      self
    end

    # Never blocks.
    def inspect = "#<#{self.class} #{Text.count(size, "consumer")}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(consumers: size)

    private

    def yield_batch(consumer, max)
      batch = poll_unless_closed(consumer, max)
      ConsumerRegistry.of(consumer).closer.processing { yield consumer, batch } unless batch.nil? || batch.empty?
    end

    def poll_unless_closed(consumer, max)
      consumer.poll_batch(max:, timeout: 0)
    rescue ConsumerClosedError
      nil
    end
  end
end

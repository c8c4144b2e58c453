# frozen_string_literal: true

module Penstock
  # What the core calls when something happens that listeners may want to know.
  # @api private
  module ConsumerPublishing
    # How long a poll asks brokers where to start.
    START_TIMEOUT = 5
    # Seconds after a failure: an error may come at once, each time.
    START_PAUSE = 1
    # A variable of the fiber: the consumer whose rebalance listener runs.
    LISTENS = :__penstock_listens__
    private_constant :START_TIMEOUT, :START_PAUSE, :LISTENS

    private

    def publish_connected = notifier.instrument("consumer.connected") { { caller: self } }
    def publish_news = notifier.publish_news
    def publish_polled(messages) = notifier.polled(messages)
    def publish_ends(batch) = notifier.ended(batch)

    def publish_poll_error(error)
      notifier.error("consumer.poll", error, topic: error.topic, partition: error.partition, offset: error.offset)
    end

    # Called by a poll. If it raises, the poll does not answer the group, and the next one calls it again.
    # @return [Array<Array(String, Integer, Integer)>, nil] where config.start_at begins partitions without a committed offset
    def configured_starts(kind, places)
      return unless kind == :assigned && config.__send__(:start_resolved?)

      pause_before_asking_again
      deadline = Deadline.new(START_TIMEOUT)
      committed = committed_offsets(places, deadline)
      open = places.map { |place| place.first(2) }.select { |place| committed[place] == ConsumerPlaces::INVALID_OFFSET }
      resolve(open.map { |place| [*place, config.start_at] }, deadline) unless open.empty?
    rescue Error => e
      @starts_failed_at = now
      notifier.error("consumer.start_at", e, partitions: by_topic(places))
      raise
    end

    def pause_before_asking_again
      left = @starts_failed_at && (@starts_failed_at + START_PAUSE - now)
      sleep(left) if left&.positive?
    end

    # Called by a poll, and by close.
    # @param starts [Array, nil] what {#configured_starts} has returned
    # @return [Array<Array(String, Integer, Integer)>, nil] start offsets
    def rebalanced(kind, places, starts = nil)
      return if places.empty?

      rebalance = Rebalance.new(self, by_topic(places), kind)
      rebalance.__send__(:begin_at, starts) if starts
      tell_listener(kind, rebalance)
      rebalance.__send__(:starts)
    rescue StandardError, ScriptError => e
      notifier.error("rebalance_listener.error", e, partitions: rebalance&.partitions)
      raise
    end

    def tell_listener(kind, rebalance)
      listener = config.rebalance_listener
      method = kind == :lost && !listener.respond_to?(:lost) ? :revoked : kind
      return unless listener.respond_to?(method)

      outer = Thread.current[LISTENS]
      Thread.current[LISTENS] = self
      listener.public_send(method, rebalance)
    ensure
      Thread.current[LISTENS] = outer
    end

    # Before the program assigns partitions itself.
    def settle_subscription
      return call_settle unless equal?(Thread.current[LISTENS])

      raise ErrorFactory.build(ListenerDeadlockError, "assign is not possible in the consumer's rebalance listener",
                               "Nothing was assigned. Use Rebalance#start_at, or call unsubscribe here and assign after the " \
                               "poll.", consumer_id: id)
    end

    # librdkafka's own error for this is about partitions that are not assigned.
    # @return [ConsumeError]
    def cannot_assign
      ErrorFactory.build(ConsumeError, "a consumer that was subscribed with \"cooperative-sticky\" or the protocol " \
                                       "\"consumer\" cannot assign partitions",
                         "Nothing was assigned. Make another consumer for that, or use seek to change positions.",
                         consumer_id: id)
    end
  end
  private_constant :ConsumerPublishing
end

# frozen_string_literal: true

module Penstock
  module Native
    # One librdkafka consumer; see ext/penstock/ruby/consumer_class.c. {Consumer} and its parts are its only users.
    # {Clients::InMemoryConsumer} has the same methods.
    #
    # Places are Arrays of topic, partition, offset, leader epoch, metadata. librdkafka's numbers stand for special offsets, see
    # {ConsumerPlaces::OFFSETS}. Timeouts are seconds, those of closing ms. Methods that ask brokers block without the GVL.
    #
    # @!method initialize(settings)
    #   @param settings [Hash{Symbol => Object}] by name: `id`, `kafka`, `logger`, `token_refresher`, `deserializer`, `mark`;
    #     `grouped`: whether it has a group; `listens`: whether the callbacks get rebalances; `close_timeout`,
    #     `rejection_timeout` and `hold_rebalances` in ms; `callbacks`, a {Consumer::Callbacks}
    #   @raise [ConfigurationInvalidError] when librdkafka rejects a setting
    #   @raise [KeyError] when one is missing
    #
    # = Polling
    #
    # @!method poll(timeout: 1)
    # @!method poll_batch(max: 100, timeout: 1)
    # @!method taker
    #   @return [Object] what this fiber is for {#next_message}
    # @!method next_message(timeout, taker)
    #   Polls like {#poll}. If an interrupt comes before the caller has kept the message, the caller calls {#not_received}.
    # @!method not_received
    #   What this fiber has polled last comes again with its next poll.
    # @!method poll_run(max, bytes)
    #   For applications: messages of one partition, without waiting; nil: there are none.
    # @!method finish
    #   What this fiber has polled counts as processed, if polling again would say so.
    # @!method block_left
    #   The block that processes what this fiber has polled was left early.
    # @!method block_left?
    #   @return [Boolean] whether that is so, or an exception was raised since this fiber has polled
    # @!method answer
    #   Answers the group once. Takes no message.
    # @!method serve
    #   Does the same, and waits until there may be more, or for {#wake}.
    # @!method settle
    #   Answers all rebalances that wait.
    # @!method wake
    # @!method hold_always
    #   Before the first use: a revocation waits for {#end_hold}, for `config.hold_rebalances` at most.
    # @!method end_hold
    #
    # = Marks and commits
    #
    # @!method mark(what)
    #   @return [Boolean, nil] see {Consumer#mark}; nil: a program made the message
    # @!method mark_all
    # @!method owns?(what)
    #   @return [Boolean] the opposite of {Consumer#revoked?}
    # @!method commit(places, timeout)
    # @!method commit_processed(places, epoch, timeout)
    #   Commits what is processed, if these places are held since `epoch`.
    #   @return [Array, nil] the places that were committed; nil: nothing was new
    # @!method commit_async(places)
    #   nil: what is processed
    # @!method keeps?(places, epoch)
    #   @return [Boolean] whether the next commit includes what was marked there, or an earlier one does
    # @!method committed?(places, epoch)
    #   @return [Boolean] whether all before these places, which was taken in that epoch, is known to be committed, and does not
    #     come again; false says nothing
    # @!method committed_offsets(places, timeout)
    #
    # = What is read
    #
    # @!method subscribe(places)
    #   nil: leaves the group
    # @!method assign_places(places)
    # @!method assignment
    # @!method restart(places)
    #   Assigns them again, so that librdkafka fetches anew.
    #   @return [Array] those that librdkafka had not begun
    # @!method seek(places, timeout)
    # @!method seek_back(places, timeout)
    #   Seeks, and lets a commit of an earlier offset follow.
    # @!method rewind(places, epoch, timeout)
    #   @return [Array] the places that the consumer has held since `epoch`
    # @!method pause(places)
    # @!method resume(places)
    # @!method paused
    # @!method epoch
    #   @return [Integer] the number of the latest assignment
    # @!method held(places, epoch)
    # @!method began_itself(topic, partition)
    # @!method open_before(places)
    # @!method position(topic, partition)
    # @!method reached(topic, partition)
    # @!method passed(topic, partition)
    #
    # = Questions to brokers
    #
    # @!method offsets(places, timeout)
    #   The places have times, in ms, as offsets.
    # @!method watermarks(beginnings, ends, timeout)
    # @!method cached_watermarks(topic, partition)
    #   Asks nobody.
    # @!method partitions(places, timeout)
    #
    # = The rest
    #
    # @!method membership
    #   @return [Array] state, generation, member id, and why it could not join
    # @!method group_metadata
    # @!method listen(kinds, interval)
    #   @param kinds [Array<Symbol>] what has listeners: names of PS_NEWS_KINDS in core/consume/consume.h
    #   @param interval [String] `statistics.interval.ms`
    # @!method news
    #   @return [Hash, nil] the next thing that the core reports: `kind`, `places`, `error`, `lost`; nil: there is none
    # @!method statistics
    #   @return [String, nil] JSON
    # @!method counts
    #   @return [Hash{Symbol => Integer}] by the names of {ConsumerMetrics}
    # @!method decode_with(deserializer)
    # @!method set_credentials(user, password)
    # @!method end_within(timeout_ms)
    #   Calls that wait for answers end within this time.
    # @!method close(timeout_ms)
    #   @return [Boolean] false: the time ran out first
    # @!method left_group?
    # @!method state
    #   @return [:configured, :open, :fatal, :closing, :closed, :inherited]
    # @!method self.attach(consumer, client)
    #   Gives a consumer its client.
    # @!method self.place_of(message)
    #   @return [Array] topic, partition, the offset after the message, leader epoch
    # @!method self.places_of(batch)
    #   @return [Array<Array>] topic, partition, first offset, the offset after the last message, its leader epoch
    # @!method self.epoch_of(message)
    # @api private
    class ConsumerClient
      include Uncopyable
      include AsJson

      # For last_poll.c: when a method returns, Ruby handles interrupts.
      def nothing = nil

      # @return [String]
      def inspect = "#<#{self.class} #{state}>"
    end
  end
end

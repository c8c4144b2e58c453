# frozen_string_literal: true

module Penstock
  class Consumer
    # Publishes a consumer's events to its monitor, on the thread that calls the consumer: decision 0021.
    #
    # What the core meets waits in a native list (core/consume/news.c) until a thread polls or closes. One thread at a time
    # publishes it, so the events are in order. Other threads poll on meanwhile.
    # @api private
    class Notifier
      # What the core reports for each event: names of PS_NEWS_KINDS in core/consume/consume.h.
      KINDS = { "error.occurred" => :error, "offsets.committed" => :commit, "offsets.commit_failed" => :commit,
                "rebalance.partitions_assigned" => :assigned, "rebalance.partitions_revoked" => :revoked,
                "statistics.emitted" => :statistics, "messages.polled" => :polled, "rebalance.held_back" => :held_back,
                "consumer.caught_up" => :ends, "partition.reset" => :reset,
                "messages.rewound" => :rewound }.freeze
      # ms between two "statistics.emitted", unless `statistics.interval.ms` is given
      INTERVAL = 5_000
      private_constant :KINDS, :INTERVAL

      # @return [Monitor]
      attr_reader :monitor

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @client = internals.client
        @monitor = internals.config.monitor || own_monitor
        @once = { "consumer.closing" => true, "consumer.closed" => true }
        @publishing = false
        @statistics = nil
        @interval = nil
        @warned = false
      end

      # @param monitor [Monitor]
      # @return [Boolean] whether it gets the events of this consumer
      def heard_by?(monitor) = @monitor.respond_to?(:heard_by?) && @monitor.heard_by?(monitor)

      # Called when a listener was added or removed.
      def listeners_changed
        open = @internals.status.connected? || @internals.status.fatal?
        wanted = KINDS.filter_map { |event, kind| kind if listening?(event) }.uniq
        interval = given_interval || (listening?("statistics.emitted") ? INTERVAL : 0).to_s
        @interval = interval unless open # librdkafka fixes it when the client is made
        @client.listen(wanted, interval)
        warn_of_no_statistics if open
      rescue ForkedError
        nil # the parent process publishes
      end

      # Publishes an event. Calls the block for its payload only if the event has listeners.
      # @param event [String]
      # @yieldreturn [Hash]
      def instrument(event)
        publish_payload(event, { consumer_id: @internals.id, **yield }) if listening?(event)
      end

      # Publishes "error.occurred".
      # @param type [String]
      # @param error [Exception]
      def error(type, error, **about) = instrument("error.occurred") { { type:, error:, caller: @internals.consumer, **about } }

      # Publishes what the core has met since the last call.
      def publish_news
        return if @publishing # another thread, or a listener that polls

        begin
          @publishing = true # no thread runs between the two
          while (news = @client.news)
            publish(**news)
          end
        ensure
          @publishing = false
        end
      end

      # Interrupts wait until the listeners have returned. So a caller that defers interrupts while it polls (:on_blocking) gets
      # its messages, even if a listener blocks; and the monitor takes no interrupt for an error of a listener.
      # @param messages [Batch, Array<Message>]
      def polled(messages)
        # M:polled_message_survives_interrupt
        Thread.handle_interrupt(Object => :never) { instrument("messages.polled") { { messages: } } }
      end

      # As {#polled}.
      # @param batch [Batch]
      def ended(batch)
        Thread.handle_interrupt(Object => :never) do
          batch.ends.each do |topic, ends|
            ends.each { |partition, offset| instrument("consumer.caught_up") { { topic:, partition:, offset: } } }
          end
        end
      end

      # Around a commit for which a thread waits.
      # @param offsets [Array<Array(String, Integer, Integer)>] what it is about
      # @yieldreturn [Array, nil] the same, of what was committed; nil: nothing was new
      def committing(offsets)
        start = now
        committed = yield or return
        instrument("offsets.committed") { { offsets: by_topic(committed), time: now - start } }
      rescue CommitError, ConsumeTimeoutError => e
        instrument("offsets.commit_failed") { { offsets: by_topic(offsets), error: e, time: now - start } }
        raise
      end

      # Around closing. In a signal trap another thread publishes, as the code that the trap interrupted may hold any lock, such
      # as a logger's that a listener needs. The trap does not wait for it.
      # @yieldreturn [ConsumerCloseReport]
      def closing
        return yield if @internals.status.forked?

        in_trap = SignalTrap.here?
        once("consumer.closing") { {} } unless in_trap
        start = now
        report = yield
        time = now - start
        in_trap ? Threads.start("penstock.closing") { publish_closed(report, time) } : publish_closed(report, time)
        report
      end

      # @return [Hash, nil] librdkafka's latest statistics
      def statistics
        json = @client.statistics
        json && ConsumerStatistics.parse(json)
      end

      # @return [String]
      def inspect = "#<#{self.class} #{Text.printable(@internals.id)}>"

      private

      # {Penstock.monitor} belongs to the main Ractor.
      def own_monitor
        monitor = Ractor.current == Ractor.main ? Monitor.new : Monitor.new(above: nil)
        monitor.tap { |made| made.__send__(:owner=, self) }
      end

      # A monitor of the program may have no method but `instrument`. It then gets every event.
      def listening?(event) = !@monitor.respond_to?(:listening?) || @monitor.listening?(event)

      def publish(kind:, places:, error:, lost:)
        case kind
        when :error then error("librdkafka.error", error)
        when :commit then publish_commit(places, error)
        when :assigned
          instrument("rebalance.partitions_assigned") { { partitions: partitions(places), starts: starts(places) } }
        when :held_back
          instrument("rebalance.held_back") { { partitions: partitions(places), time: @internals.config.hold_rebalances.to_f } }
        when :revoked then instrument("rebalance.partitions_revoked") { { partitions: partitions(places), lost: } }
        when :statistics then publish_statistics
        when :reset then publish_reset(*places)
        when :rewound then instrument("messages.rewound") { { offsets: by_topic(places) } }
        end
      end

      # Commits that no caller waits for. librdkafka's results name partitions of which there was nothing to commit too.
      def publish_commit(places, error)
        failed, committed = places.select { |place| place[2] }.partition { |place| error || place[3] }
        instrument("offsets.committed") { { offsets: by_topic(committed) } } unless committed.empty?
        error ||= failed.first&.last
        instrument("offsets.commit_failed") { { offsets: by_topic(failed), error: } } if error
      end

      def publish_reset((topic, partition, offset), (_, _, position))
        instrument("partition.reset") { { topic:, partition:, position:, offset: } }
      end

      def publish_statistics
        json = @client.statistics or return
        @statistics&.previous = nil
        parsed = StatisticsEvent::Parsed.new(json, @statistics) { ConsumerStatistics.parse(json) }
        @statistics = parsed
        event = StatisticsEvent.new(json, parsed, @internals.id, :consumer_id)
        @monitor.is_a?(Monitor) ? @monitor.__send__(:publish, event) : publish_payload(event.id, event.payload)
      end

      # A {Monitor} handles the errors of its listeners. An error of another one must not stop a poll either.
      def publish_payload(event, payload)
        @monitor.instrument(event, payload)
      rescue StandardError, ScriptError, SystemStackError => e
        warn "penstock: config.monitor raised #{Text.describe(e)} (#{e.backtrace&.first}) when it published #{event}"
      end

      def publish_closed(report, time)
        once("consumer.closing") { {} }
        publish_news # also what closing has met
        once("consumer.closed") { { report:, time: } } if report.complete?
      end

      # Of several threads that close at once, one publishes. (Hash#delete is atomic, and a signal trap may call it.)
      def once(event, &block)
        instrument(event, &block) if @once.delete(event)
      end

      # Where each partition begins, and why.
      def starts(places)
        ConsumerPlaces.by_partition(places) { |_, _, offset, reason| { offset:, reason: } }
      end

      def partitions(places) = ConsumerPlaces.by_topic(places)

      def by_topic(places)
        places.each_with_object({}) { |(topic, partition, offset), topics| (topics[topic] ||= {})[partition] = offset }
      end

      def given_interval = @internals.config.kafka[:"statistics.interval.ms"]&.to_s

      # librdkafka cannot change the interval of an open client, and a new client would leave the group.
      def warn_of_no_statistics
        return if @warned || @interval != "0" || !@monitor.respond_to?(:listening?) || !listening?("statistics.emitted")

        @warned = true
        text = "\"statistics.emitted\" has a subscriber but is never published: it was added after the consumer's first use. " \
               "Set statistics.interval.ms, or subscribe earlier."
        @internals.config.__send__(:log_warning, text)
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
    end
  end
end

# frozen_string_literal: true

require_relative "prometheus/page"

module Penstock
  module Listeners
    # Metrics for Prometheus, and the page it scrapes, as a Rack application. See docs/listeners-prometheus.md.
    #
    #     metrics = Penstock::Listeners::Prometheus.new
    #     Penstock.monitor.subscribe(metrics)
    #     # config.ru: map("/metrics") { run metrics }
    #
    # The page reads the native counters when it is requested. Only rare events have listeners, so that a message costs
    # nothing. No thread. Counters never decrease while the process lives: the counts of a closed connection are
    # kept. A fork child begins at zero.
    #
    # Any thread may call it. A signal trap may call the methods for events.
    class Prometheus < MetricsListener
      # Upper ends of the buckets of times, in seconds.
      BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0].freeze

      FAMILIES = {
        "messages_total" => [:counter, "Messages that librdkafka has accepted."],
        "message_bytes_total" => [:counter, "Bytes of the payloads and keys of accepted messages."],
        "messages_delivered_total" => [:counter, "Messages that were delivered."],
        "messages_failed_total" => [:counter, "Messages that were not delivered, without those that were purged."],
        "messages_purged_total" => [:counter, "Messages that were discarded on purpose: by purge, an abort or a close."],
        "requests_total" => [:counter, "Produce requests that were sent."],
        "retries_total" => [:counter, "Produce requests without a delivery result, whose messages are sent again."],
        "messages_by_topic_total" => [:counter, "Messages of calls that succeeded, by topic and mode, sync or async."],
        "errors_total" => [:counter, "Events error.occurred, by type and the error's code."],
        "transactions_total" => [:counter, "Transactions that were committed or aborted."],
        "connections_total" => [:counter, "Times that the producer has connected."],
        "reloads_total" => [:counter, "Clients that were replaced after a fatal error."],
        "slow_listeners_total" => [:counter, "Events listener.slow."],
        "events_dropped_total" => [:counter, "Events that were dropped because too many were waiting."],
        "delivery_seconds" => [:histogram, "From produce to the delivery result of delivered messages."],
        "transaction_seconds" => [:histogram, "Transactions, from beginning to end."],
        "queue_messages" => [:gauge, "Messages without a delivery result."],
        "buffer_messages" => [:gauge, "Messages in the buffer."],
        "events_waiting" => [:gauge, "Events that wait for their listeners."],
        "connected" => [:gauge, "Producers of this id that are connected."],
        "consumer_messages_total" => [:counter, "Messages that polls have returned."],
        "consumer_message_bytes_total" => [:counter, "Bytes of their payloads and keys."],
        "consumer_batches_total" => [:counter, "Polls that returned messages."],
        "consumer_empty_polls_total" => [:counter, "Polls that returned none."],
        "consumer_rebalances_total" => [:counter, "Assignments and revocations by the group."],
        "consumer_commits_total" => [:counter, "Commits of offsets that succeeded."],
        "consumer_failed_commits_total" => [:counter, "Commits that failed for a partition or more."],
        "consumer_errors_total" => [:counter, "Errors of librdkafka, and errors that polls have raised."],
        "consumer_pauses_total" => [:counter, "Partitions that were paused."],
        "consumer_events_dropped_total" => [:counter, "Events that were dropped, as the consumer was not polled."],
        "consumer_queue_messages" => [:gauge, "Messages that were fetched and not polled."],
        "consumer_assigned_partitions" => [:gauge, "Assigned partitions."],
        "consumer_connected" => [:gauge, "Consumers of this id that are connected."],
        **AppNumbers::GAUGES.to_h { |name, help| ["app_#{name}", [:gauge, help]] },
        **AppNumbers::TIMES.to_h { |name, help| ["app_#{name}_seconds", [:gauge, help]] },
        **AppNumbers::COUNTERS.to_h { |name, help| ["app_#{name}_total", [:counter, help]] },
        "info" => [:gauge, "Versions; always 1."]
      }.freeze
      Ractor.make_shareable(FAMILIES)
      # Members of ConsumerMetrics that only grow.
      CONSUMED = { messages: "messages", bytes: "message_bytes", batches: "batches", empty_polls: "empty_polls",
                   rebalances: "rebalances", commits: "commits", failed_commits: "failed_commits", errors: "errors",
                   pauses: "pauses", dropped_events: "events_dropped" }
                 .transform_values { |name| "consumer_#{name}_total".freeze }.freeze
      private_constant :FAMILIES, :CONSUMED

      # @param namespace [String] prefix of all names
      # @param labels [Hash{Symbol, String => Object}] of every metric
      # @param topics [Integer] maximum number of topics by name; later topics are counted together; 0: topics are not
      #   counted, and events of messages have no listener
      # @param max_closed [Integer] maximum number of closed producers on the page; the series of older ones end
      # @raise [ArgumentError] when an argument is invalid
      # @overload initialize(namespace: "penstock", labels: {}, topics: 0, max_closed: 100)
      def initialize(*more, namespace: "penstock", labels: {}, topics: 0, max_closed: 100, **wrong)
        Keywords.check("new(namespace: \"penstock\", labels: {}, topics: 0, max_closed: 100)",
                       %i[namespace labels topics max_closed], more, wrong)
        unless namespace.to_s.match?(/\A[a-zA-Z_:][\w:]*\z/)
          raise ArgumentError, "namespace must be a word of letters, digits and underscores, not #{namespace.inspect}"
        end
        unless labels.is_a?(Hash) && labels.each_key.all? { |name| name.to_s.match?(/\A(?!__)[a-zA-Z_]\w*\z/) }
          raise ArgumentError, "the keys of labels must be words of letters, digits and underscores, not #{labels.inspect}"
        end

        @namespace = namespace.to_s
        @labels = labels.transform_keys(&:to_s)
        @max_closed = max_closed
        @apps = [] # process, and rows by group and topic
        @closed = {} # labels with their ids, the oldest first
        super(topics:)
      end

      # Answers a request with the page, whatever its path.
      #
      # Blocks: never.
      # @param env [Hash{String => Object}] Rack's; only REQUEST_METHOD is looked at
      # @return [Array(Integer, Hash{String => String}, Array<String>)]
      def call(env)
        method = env["REQUEST_METHOD"] || "GET"
        unless %w[GET HEAD].include?(method)
          return [405, { "content-type" => "text/plain", "allow" => "GET, HEAD" }, ["GET it\n"]]
        end

        page = to_s
        [200, { "content-type" => Page::TYPE, "content-length" => page.bytesize.to_s }, method == "HEAD" ? [] : [page]]
      end

      # The page: what is known now, in Prometheus' text format 0.0.4.
      #
      # Blocks: never. Not in a signal trap.
      # @return [String]
      def to_s
        books = self.books
        live = settle(books)
        consumers = settle_consumers(books)
        page = Page.new(@namespace, @labels)
        series = counted(books.counts)
        series["info"] = { { "version" => VERSION, "librdkafka" => Penstock.librdkafka_version } => 1 }
        gauges(live, series)
        consumer_gauges(consumers, series)
        series.merge!(AppNumbers.series(@apps))
        FAMILIES.each { |name, (type, help)| page.family(name, type, help, series.fetch(name, {})) }
        page.to_s
      end

      # Without topics it does not listen to each message.
      def respond_to?(name, *) = @topic_limit.zero? && PRODUCED.include?(name.to_sym) ? false : super

      %w[sync async].each do |mode|
        define_method(:"on_message_produced_#{mode}") do |event|
          by_topic(event, EventFormatter.topic(event.payload[:message]), mode, 1)
        end

        define_method(:"on_messages_produced_#{mode}") do |event|
          EventFormatter.topics(event.payload[:messages]).each { |topic, number| by_topic(event, topic, mode, number) }
        end
      end

      %w[committed aborted].each do |outcome|
        define_method(:"on_transaction_#{outcome}") { |event| add(event, "transactions_total", "outcome" => outcome) }
      end

      # Called by the monitor.
      def on_transaction_finished(event)
        ms = event.payload[:time]
        observe("transaction_seconds", about(event.payload[:producer_id]), ms / 1000.0) if ms
      end

      # Called by the monitor.
      def on_producer_connected(event)
        super
        add(event, "connections_total")
      end

      # Called by the monitor.
      def on_producer_disconnected(_event) = settle(books)

      # Called by the monitor.
      def on_producer_reloaded(event) = add(event, "reloads_total")

      # Called by the monitor.
      def on_producer_closed(_event) = settle(books)

      # Called by the monitor.
      def on_consumer_closed(_event) = settle_consumers(books)

      # Called by the monitor.
      def on_listener_slow(event) = add(event, "slow_listeners_total")

      # Called by the monitor.
      def on_error_occurred(event)
        payload = event.payload
        add(event, "errors_total", "type" => EventFormatter.text(payload[:type]), "code" => EventFormatter.code(payload[:error]))
      end

      # Called by the monitor.
      def on_app_metrics(event) = @apps = AppNumbers.merge(@apps, event)

      # @return [String]
      def inspect = "#<#{self.class} #{@namespace}_*>"

      private

      def about(id) = { "producer_id" => EventFormatter.text(id) }

      def about_consumer(id) = { "consumer_id" => EventFormatter.text(id) }

      def add(event, name, labels = {})
        consumer_id = event.payload[:consumer_id]
        books.add([name, { **(consumer_id ? about_consumer(consumer_id) : about(event.payload[:producer_id])), **labels }])
      end

      def by_topic(event, topic, mode, number)
        books.add(["messages_by_topic_total",
                   { **about(event.payload[:producer_id]), "topic" => topic_label(topic), "mode" => mode }], number)
      end

      def observe(name, labels, seconds, times = 1)
        place = BUCKETS.index { |bucket| seconds <= bucket } || BUCKETS.size
        books.add([name, labels, place], times)
        books.add([name, labels, :sum], seconds * times)
      end

      # Adds what producers have counted since they were last looked at.
      # @return [Array<Producer>]
      def settle(books)
        books.collect.map do |producer, grown|
          labels = about(producer.id)
          { "messages_total" => grown.messages, "message_bytes_total" => grown.bytes,
            "messages_delivered_total" => grown.delivered, "messages_failed_total" => grown.failed,
            "messages_purged_total" => grown.purged, "requests_total" => grown.requests, "retries_total" => grown.retries,
            "events_dropped_total" => grown.events_dropped }.each do |name, number|
            books.add([name, labels], number)
          end
          grown.latencies.each { |us, times| observe("delivery_seconds", labels, us / 1_000_000.0, times) }
          closed(books, labels) if producer.status.closed?
          producer
        end
      end

      # The same for consumers.
      # @return [Array<Consumer>]
      def settle_consumers(books)
        books.collect_consumers.map do |consumer, grown|
          labels = about_consumer(consumer.id)
          CONSUMED.each { |member, name| books.add([name, labels], grown[member]) }
          closed(books, labels) if consumer.status.closed?
          consumer
        end
      end

      def watch(producer)
        super
        @closed.delete(about(producer.id))
      end

      def watch_consumer(consumer)
        super
        @closed.delete(about_consumer(consumer.id))
      end

      def closed(books, owner)
        @closed.delete(owner)
        @closed[owner] = true
        while @closed.size > @max_closed
          gone, = @closed.shift
          books.forget { |_, labels| labels >= gone }
        end
      end

      # @return [Hash{String => Hash{Hash => Numeric, Hash}}] values by name and labels; of histograms, by place too
      def counted(counts)
        counts.each_with_object({}) do |((name, labels, place), number), series|
          of_name = series[name] ||= {}
          place ? (of_name[labels] ||= Hash.new(0))[place] = number : of_name[labels] = number
        end
      end

      def consumer_gauges(consumers, series)
        connected = series.fetch("consumer_messages_total", {}).transform_values { 0 }
        series.merge!("consumer_connected" => connected, "consumer_queue_messages" => Hash.new(0),
                      "consumer_assigned_partitions" => Hash.new(0))
        consumers.select { |consumer| consumer.status.connected? }.each do |consumer|
          labels = about_consumer(consumer.id)
          metrics = consumer.metrics
          connected[labels] += 1
          series["consumer_queue_messages"][labels] += metrics.queue_length
          series["consumer_assigned_partitions"][labels] += metrics.assigned_partitions
        end
      end

      # Of producers that are disconnected or closed only this is said.
      def gauges(live, series)
        connected = series.fetch("messages_total", {}).transform_values { 0 }
        series.merge!("connected" => connected, "queue_messages" => Hash.new(0), "buffer_messages" => Hash.new(0),
                      "events_waiting" => Hash.new(0))
        live.reject(&:closed?).each do |producer|
          labels = about(producer.id)
          connected[labels] += 1 if producer.status.connected?
          series["queue_messages"][labels] += producer.queue_size
          series["buffer_messages"][labels] += producer.buffer.messages.size
          series["events_waiting"][labels] += producer.metrics.to_h[:events][:waiting]
        end
      end
    end
  end
end

# frozen_string_literal: true

require_relative "statsd/wire"
require_relative "statsd/external_client"
require_relative "statsd/picks"
require_relative "statsd/consumer_numbers"

module Penstock
  module Listeners
    # Sends metrics to StatsD or Datadog. See docs/listeners-statsd.md for their names and units.
    #
    #     producer.monitor.subscribe(Penstock::Listeners::Statsd.new(host: "127.0.0.1", port: 8125))
    #
    # It reads the native counters every `interval`, and adds up events until then. Both are sent together: a message costs
    # no datagram. Delivery results have no listener. A thread, `penstock.statsd`, runs while a
    # producer is connected. A fork child has a thread and a socket of its own.
    #
    # Any thread may call it. A signal trap may call the methods for events. No event waits for the network.
    class Statsd < MetricsListener
      # Values of a time that are sent of an interval at most; with the share that they are of all.
      SAMPLES = 100
      # The default metrics of librdkafka's statistics.
      RD_KAFKA = {
        "queue.messages" => [:gauge, "msg_cnt"].freeze,
        "queue.bytes" => [:gauge, "msg_size"].freeze,
        "sent.messages" => [:count, "txmsgs"].freeze,
        "sent.bytes" => [:count, "txmsg_bytes"].freeze,
        "broker.rtt.avg" => [:gauge, "brokers", "*", "rtt", "avg"].freeze,
        "broker.rtt.p95" => [:gauge, "brokers", "*", "rtt", "p95"].freeze,
        "broker.rtt.p99" => [:gauge, "brokers", "*", "rtt", "p99"].freeze,
        "broker.outbuf.requests" => [:gauge, "brokers", "*", "outbuf_cnt"].freeze,
        "broker.waiting.requests" => [:gauge, "brokers", "*", "waitresp_cnt"].freeze,
        "broker.retries" => [:count, "brokers", "*", "txretries"].freeze,
        "broker.errors" => [:count, "brokers", "*", "txerrs"].freeze
      }.freeze
      KEYWORDS = %i[host port namespace tags client dogstatsd distribution interval producer_id topics rd_kafka].freeze
      private_constant :SAMPLES, :KEYWORDS

      # Those of one process, and the thread that sends them.
      # @api private
      class Ledger < MetricsLedger
        # @return [#count, #gauge, #timing] where metrics go
        attr_reader :output

        def initialize(producers, output)
          super(producers)
          @output = output
          @gauges = {}
          @times = {}
          @changed = ConditionVariable.new
          @sending = Mutex.new
          @thread = nil
          @hurry = @ending = false
        end

        # The last value counts.
        def gauge(key, value) = @lock.synchronize { @gauges[key] = value }

        # Of many values some are kept, any with the same chance.
        def time(key, value)
          @lock.synchronize do
            times = @times[key] ||= [0]
            seen = times[0] += 1
            place = seen <= SAMPLES ? seen : rand(1..seen)
            times[place] = value if place <= SAMPLES
          end
        rescue ThreadError
          nil # a signal trap: one sample less
        end

        def take_gauges = @lock.synchronize { @gauges.tap { @gauges = {} } }

        def take_times = @lock.synchronize { @times.tap { @times = {} } }

        # One at a time.
        def sending(&block) = @sending.synchronize(&block)

        # Has a thread run the block every so many seconds, until there is nothing to tell.
        # @param listener [Statsd] whose they are
        def keep_running(listener, interval, &report)
          return if @thread&.alive?

          @lock.synchronize do
            next if @thread&.alive?

            ExitReports.add(listener)
            @ending = false
            @thread = Threads.start("penstock.statsd") { run(listener, interval, &report) }
          end
        rescue ThreadError
          nil # a signal trap, or the end of the process: another event starts it, or ExitReports.finish sends
        end

        # Does not wait for the interval's end.
        def hurry
          @lock.synchronize do
            @hurry = true
            @changed.signal
          end
        end

        # Ends the thread. No producer is looked at any more.
        def finish
          thread = @thread
          @lock.synchronize do
            @producers.clear
            @consumers.clear
            @ending = true
            @changed.signal
          end
          thread&.join unless thread.equal?(Thread.current)
        end

        private

        def run(listener, interval)
          loop do
            @lock.synchronize do
              @changed.wait(@lock, interval) unless @hurry || @ending
              @hurry = false
            end
            yield
            break if done?(listener)
          end
        end

        # Decided with the lock held, so that nothing is added concurrently.
        def done?(listener)
          @lock.synchronize do
            idle = @producers.empty? && @consumers.empty? && @counts.empty? && @trapped.empty? && @times.empty?
            next false unless idle || @ending

            ExitReports.delete(listener)
            @thread = nil
            true
          end
        end
      end
      private_constant :Ledger

      # @param host [String] of the StatsD server or Datadog agent
      # @param port [Integer]
      # @param namespace [String] prefix of all names
      # @param tags [Hash{Symbol, String => Object}] of every metric
      # @param client [Object, nil] replaces the socket: has `count(name, number, tags: [...])`, `gauge` and
      #   `histogram` (or `distribution`), as Datadog::Statsd of dogstatsd-ruby. The thread `penstock.statsd` calls it
      # @param dogstatsd [Boolean] false: plain StatsD, without tags; their values become a part of the name
      # @param distribution [Boolean] times are Datadog's distributions instead of histograms
      # @param interval [Numeric] seconds between two reports
      # @param producer_id [Boolean] false: producers are not distinguished, and their numbers are added up
      # @param topics [Integer] maximum number of topics by name; later topics are counted together; 0: none
      # @param rd_kafka [Hash{String => Array}] which of librdkafka's statistics are metrics, see {RD_KAFKA}:
      #   `name => [:gauge, key, ...]` or `[:count, key, ...]`, where "*" stands for every broker or topic. {}: none; then it
      #   does not listen to statistics
      # @raise [ArgumentError] when an argument is invalid
      # @overload initialize(host: "127.0.0.1", port: 8125, namespace: "penstock", tags: {}, client: nil, dogstatsd: true,
      #   distribution: false, interval: 10, producer_id: true, topics: 100, rd_kafka: RD_KAFKA)
      def initialize(*more, host: "127.0.0.1", port: 8125, namespace: "penstock", tags: {}, client: nil, dogstatsd: true,
                     distribution: false, interval: 10, producer_id: true, topics: 100, rd_kafka: RD_KAFKA, **wrong)
        Keywords.check("new(host: \"127.0.0.1\", port: 8125)", KEYWORDS, more, wrong)
        check(host, port, tags, dogstatsd, interval)
        @namespace = namespace.to_s.empty? ? "" : "#{namespace}."
        @interval = interval
        @producer_id = producer_id
        @picks = Picks.new(rd_kafka)
        @new_output = lambda do
          client ? ExternalClient.new(client, tags, distribution) : Wire.new(host, port, tags, dogstatsd, distribution)
        end
        @reported = nil
        @apps = {}
        super(topics:)
      end

      # Sends all collected metrics now.
      #
      # Blocks: while the server's name is looked up. Not in a signal trap.
      # @return [void]
      def flush
        books = self.books
        books.sending { report(books) }
      end

      # Sends all collected metrics, and ends thread and socket. A producer that connects later starts them again.
      #
      # Blocks: while the server's name is looked up. Not in a signal trap.
      # @return [void]
      def close
        books = self.books
        flush
        books.finish
        books.sending { books.output.close }
      end

      # Without metrics of librdkafka's there are no statistics to listen to.
      def respond_to?(name, *) = name.to_sym == :on_statistics_emitted && @picks.empty? ? false : super

      { sync: "produced_sync", async: "produced_async" }.each do |how, produced|
        messages = "messages.#{produced}"
        single = "produce_#{how}.time"
        many = "produce_many_#{how}.time"

        define_method(:"on_message_#{produced}") do |event|
          topic = topic_tag(event.payload[:message])
          add(event, messages, 1, *topic)
          time(event, single, *topic)
        end

        define_method(:"on_messages_#{produced}") do |event|
          EventFormatter.topics(event.payload[:messages]).each do |topic, number|
            add(event, messages, number, *(@topic_limit.zero? ? [] : [:topic, topic_label(topic)]))
          end
          time(event, many)
        end
      end

      # Called by the monitor.
      def on_message_buffered(event) = add(event, "buffer.added")

      # Called by the monitor.
      def on_messages_buffered(event) = add(event, "buffer.added", size_of(event))

      { flushed_sync: "buffer.flushed_sync", flushed_async: "buffer.flushed_async", purged: "buffer.purged" }.each do |what, name|
        define_method(:"on_buffer_#{what}") { |event| add(event, name, size_of(event)) }
      end

      %w[started committed aborted marked_as_consumed].each do |what|
        define_method(:"on_transaction_#{what}") { |event| add(event, "transactions.#{what}") }
      end

      # Called by the monitor.
      def on_transaction_finished(event) = time(event, "transaction.time")

      # Called by the monitor.
      def on_producer_connected(event)
        super
        add(event, "connections")
      end

      # Called by the monitor.
      def on_producer_disconnected(event)
        add(event, "disconnections")
        settle
      end

      # Called by the monitor.
      def on_producer_reloaded(event) = add(event, "reloads")

      # Called by the monitor.
      def on_producer_closed(_event) = settle

      # Called by the monitor.
      def on_consumer_closed(_event) = settle

      # Called by the monitor.
      def on_listener_slow(event) = add(event, "listeners.slow")

      # Called by the monitor.
      def on_error_occurred(event)
        payload = event.payload
        add(event, "errors", 1, :type, EventFormatter.text(payload[:type]), :code, EventFormatter.code(payload[:error]))
      end

      # Called by the monitor.
      def on_statistics_emitted(event)
        books = self.books
        @picks.each(event) do |type, name, number, tags|
          key = key_of("rd_kafka.#{name}", event, tags.to_a.flatten(1))
          type == :count ? books.add(key, number) : books.gauge(key, number)
        end
        keep_running
      end

      # Called by the monitor.
      def on_app_metrics(event)
        label = ->(topic) { topic_label(topic) unless @topic_limit.zero? }
        AppNumbers.each_change(event, @apps, label) do |name, number, tags, grows|
          books.public_send(grows ? :add : :gauge, key_of(name, event, tags), number)
        end
        keep_running
      end

      # @return [Hash{Symbol => Integer}] of this process's own socket: datagrams `sent`, and `dropped`, which the system did not
      #   take at once or could not send
      def datagrams
        output = books.output
        { sent: output.sent, dropped: output.dropped }
      end

      # @return [String] without the client
      def inspect = "#<#{self.class} #{@namespace}* every #{@interval} s>"

      private

      def check(host, port, tags, dogstatsd, interval)
        expect("host is a String", host) { host.is_a?(String) }
        expect("port is an Integer from 1 to 65535", port) { port.is_a?(Integer) && port.between?(1, 65_535) }
        expect("tags is a Hash", tags) { tags.is_a?(Hash) }
        expect("interval is a number of seconds", interval) { interval.is_a?(Numeric) && interval.positive? }
        return if dogstatsd || tags.empty?

        raise ArgumentError, "plain StatsD has no tags: put their values into the namespace"
      end

      def expect(what, value)
        raise ArgumentError, "#{what}, not #{value.inspect}" unless yield
      end

      def new_books(producers) = Ledger.new(producers, @new_output.call)

      def watch(producer)
        super
        keep_running
      end

      def watch_consumer(consumer)
        super
        keep_running
      end

      def keep_running
        books = self.books
        books.keep_running(self, @interval) { books.sending { report(books) } }
      end

      # What a number is counted under, made for each message and so as cheap as can be: {#meaning} makes the rest of it.
      def key_of(name, event, tags) = [name, @producer_id ? owner_of(event) : nil, *tags]

      # @return [String, Array(String), nil] a producer's id, or an Array with a consumer's
      def owner_of(event)
        consumer_id = event.payload[:consumer_id]
        consumer_id ? [consumer_id] : event.payload[:producer_id]
      end

      # @return [Array(String, Hash)] a key's name and tags
      def meaning(key)
        name, id, *tags = key
        [@namespace + name, { **producer_tag(id), **tags.each_slice(2).to_h }]
      end

      # @param tags [Array] names and values in turn
      def add(event, name, number = 1, *tags)
        books.add(key_of(name, event, tags), number)
        keep_running
      end

      def time(event, name, *tags)
        ms = event.payload[:time] or return
        books.time(key_of(name, event, tags), ms)
      end

      def size_of(event)
        case (messages = event.payload[:messages])
        when Array then messages.size
        else 0
        end
      end

      def producer_tag(id)
        return {} unless @producer_id && id

        id.is_a?(Array) ? { consumer: EventFormatter.text(id.first) } : { producer: EventFormatter.text(id) }
      end

      def topic_tag(message)
        return [] if @topic_limit.zero?

        topic = EventFormatter.known_topic(message)
        [:topic, @topics.key?(topic) ? topic : topic_label(EventFormatter.text(topic))]
      end

      # A producer has ended: what it did is sent soon, not only after the interval.
      def settle = books.hurry

      # Warns once about a failure, until there is success again.
      def report(books)
        output = books.output
        send_natives(books, output)
        ConsumerNumbers.new(output, "#{@namespace}consumer").send_all(books.collect_consumers) { |id| producer_tag([id]) }
        books.take.each { |key, number| output.count(*meaning(key).insert(1, number)) unless number.zero? }
        books.take_gauges.each { |key, number| output.gauge(*meaning(key).insert(1, number)) }
        send_times(books.take_times, output)
        output.flush
        @reported = nil
      rescue StandardError => e
        warn "penstock: metrics could not be sent: #{e.class}: #{e.message}" unless @reported == e.class
        @reported = e.class
      end

      def send_times(times, output)
        times.each do |key, (seen, *values)|
          name, tags = meaning(key)
          values.each { |value| output.timing(name, value, tags, values.size.fdiv(seen)) }
        end
      end

      # Producers with the same tags are one.
      def send_natives(books, output)
        books.collect.group_by { |producer, _| producer_tag(producer.id) }.each do |tags, parts|
          grown = parts.map(&:last).reduce(:+)
          { "messages.taken" => grown.messages, "bytes.taken" => grown.bytes, "messages.delivered" => grown.delivered,
            "messages.failed" => grown.failed, "messages.purged" => grown.purged,
            "requests" => grown.requests, "retries" => grown.retries }.each do |name, number|
            output.count(@namespace + name, number, tags) unless number.zero?
          end
          grown.percentiles.each { |name, ms| output.gauge("#{@namespace}delivery.time.#{name}", ms, tags) if ms }
          send_gauges(parts.map(&:first), output, tags)
        end
      end

      def send_gauges(producers, output, tags)
        output.gauge("#{@namespace}queue.messages", producers.sum(&:queue_size), tags)
        output.gauge("#{@namespace}buffer.messages", producers.sum { |producer| producer.buffer.messages.size }, tags)
        output.gauge("#{@namespace}events.waiting", producers.sum { |producer| producer.metrics.to_h[:events][:waiting] }, tags)
        output.gauge("#{@namespace}producers.connected", producers.count { |producer| producer.status.connected? }, tags)
      end
    end
  end
end

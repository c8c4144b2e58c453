# frozen_string_literal: true

module Penstock
  module Listeners
    # Writes a log line for each event of producers and consumers. See docs/listeners-logger.md.
    #
    #     producer.monitor.subscribe(Penstock::Listeners::Logger.new(Logger.new($stdout)))
    #
    # A line consists of `key=value` pairs, the producer and the event first:
    #
    #     penstock producer=orders event=messages.produced_sync messages=3 topics=bills:2,mails:1 ms=4.1
    #
    # Levels: info for operations, warn for reloads and slow listeners, error for errors, unless `levels` has another for the
    # event. Debug for the messages themselves, with `details=` in place of `event=`. The text of Penstock's own errors is
    # written. Other errors may quote secrets, so the line has their class and place, and their text on debug.
    #
    # Blocks as long as the logger does: a line for an event of a call delays the caller. Any thread may call it.
    class Logger
      include AsJson

      # Bytes that are written of a payload and of a key.
      SHOWN_BYTES = 200
      # Messages of a batch that are written, and topics that are named.
      SHOWN = 10
      # What may stand in a line without quotes.
      PLAIN = %r{\A[\w.:/@,+()?-]+\z}
      LEVELS = %i[debug info warn error].freeze
      private_constant :SHOWN_BYTES, :SHOWN, :PLAIN, :LEVELS

      # @param logger [Logger] or anything with `debug`, `info`, `warn` and `error`
      # @param log_messages [Boolean] whether messages' contents are written, on debug: of at most 10 messages of a call, and
      #   200 bytes of each payload and key, in hexadecimal digits ("0x") if they are no UTF-8
      # @param levels [Hash{String, Symbol => Symbol, nil}] the level of an event's lines, by the event's name: :debug, :info,
      #   :warn or :error; nil: none are written. Other events keep the level above
      # @raise [ArgumentError] when the logger lacks one of these methods, or there is no such level
      # @raise [EventUnknownError] when there is no such event
      # @overload initialize(logger, log_messages: true, levels: {})
      def initialize(logger, *more, log_messages: true, levels: {}, **wrong)
        Keywords.check("new(logger, log_messages: true, levels: {})", %i[log_messages levels], more, wrong)
        missing = LEVELS.reject { |level| logger.respond_to?(level) }
        unless missing.empty?
          raise ArgumentError, "a logger must have debug, info, warn and error; #{logger.class} lacks #{missing.join(", ")}"
        end

        @logger = logger
        @log_messages = log_messages
        @levels = checked(levels)
      end

      # @return [Boolean] whether messages' contents are written
      def log_messages? = @log_messages ? true : false

      # Of an event: what is counted and timed.
      %w[message.produced_sync message.produced_async message.buffered transaction.marked_as_consumed].each do |name|
        define_method(:"on_#{name.tr(".", "_")}") { |event| single(event) }
      end

      %w[messages.produced_sync messages.produced_async messages.buffered buffer.flushed_sync buffer.flushed_async
         buffer.purged].each do |name|
        define_method(:"on_#{name.tr(".", "_")}") { |event| several(event) }
      end

      %w[producer.connected producer.closing producer.closed producer.disconnected transaction.started transaction.committed
         transaction.aborted transaction.finished consumer.connected consumer.closing consumer.closed
         app.running app.quieting app.quiet app.stopping].each do |name|
        define_method(:"on_#{name.tr(".", "_")}") { |event| line(:info, event) }
      end

      # Called by the monitor.
      def on_rebalance_partitions_assigned(event) = line(:info, event, partitions: partitions_of(event))

      # Called by the monitor.
      def on_rebalance_partitions_revoked(event)
        line(:info, event, partitions: partitions_of(event), lost: event.payload[:lost] ? true : nil)
      end

      # Called by the monitor.
      def on_rebalance_held_back(event) = line(:warn, event, partitions: partitions_of(event))

      # Called by the monitor.
      def on_partition_reset(event) = line(:warn, event, **event.payload.slice(:topic, :partition, :position, :offset))

      # Called by the monitor.
      def on_partition_stuck(event) = line(:warn, event, **event.payload.slice(:topic, :partition))

      # Called by the monitor.
      def on_app_stopped(event)
        report = event.payload[:report]
        report.complete? ? line(:info, event) : line(:error, event, report: report.to_s)
      end

      %w[consumer.consuming.retry message.skipped partition.blocked work.abandoned offsets.map_ignored offsets.map_shortened
         app.stalled retry_topic.dispatched].each do |name|
        define_method(:"on_#{name.tr(".", "_")}") { |event| line(:warn, event, **event.payload) }
      end

      %w[consumer.consuming.pause consumer.consuming.seek client.pause client.resume filtering.throttled consumer.revoked
         consumer.shutdown].each do |name|
        define_method(:"on_#{name.tr(".", "_")}") { |event| line(:info, event, **event.payload) }
      end

      # Called by the monitor.
      def on_consumer_consumed(event) = line(:debug, event, **event.payload.except(:time))

      # Called by the monitor.
      def on_dead_letter_queue_dispatched(event)
        line(:warn, event, **event.payload.except(:error), **about(event.payload[:error]))
      end

      # Called by the monitor.
      def on_offsets_commit_failed(event)
        line(:error, event, offsets: named(event.payload[:offsets]), **about(event.payload[:error]))
      end

      # Called by the monitor.
      def on_producer_reload(event)
        line(:warn, event, attempt: event.payload[:attempt], **about(event.payload[:error]))
      end

      # Called by the monitor.
      def on_producer_reloaded(event) = line(:warn, event, attempt: event.payload[:attempt])

      # Called by the monitor.
      def on_listener_slow(event)
        line(:warn, event, listener: event.payload[:listener], of: event.payload[:event])
      end

      # Called by the monitor.
      def on_error_occurred(event)
        return unless level_of(event, :error)

        payload = event.payload
        error = payload[:error]
        words = token?(payload) ? place(error) : about(error)
        where = payload.slice(:type, :group, :topic, :partition, :offset)
        line(:error, event, **where, event_of: payload[:event], **payload.slice(:attempt, :retry), **counted(payload), **words)
        return if !@log_messages || token?(payload)

        case error
        when Error then nil
        when Exception then details(event, error: error.class.name, text: EventFormatter.message(error))
        end
      end

      # Never shows the logger.
      # @return [String]
      def inspect = "#<#{self.class}#{" log_messages" if @log_messages}>"

      private

      def checked(levels)
        levels.to_h do |name, level|
          raise ArgumentError, "#{name} has no log line, and so no level" unless respond_to?(Monitor.method_for(name.to_s))
          unless level.nil? || LEVELS.include?(level)
            raise ArgumentError, "the level of #{name} must be :debug, :info, :warn, :error or nil, not #{level.inspect}"
          end

          [name.to_s, level]
        end.freeze
      end

      def level_of(event, usual) = @levels.fetch(event.id, usual)

      def single(event)
        return unless wanted?(level_of(event, :info))

        message = event.payload[:message]
        line(:info, event, topic: EventFormatter.topic(message))
        contents(event, [message])
      end

      def several(event)
        return unless wanted?(level_of(event, :info)) # before topics are counted

        messages = event.payload[:messages]
        line(:info, event, **counts_of(messages))
        contents(event, messages)
      end

      def line(level, event, **about)
        time = event.payload[:time]
        ms = case time
             when Integer, Float then time.round(3)
             end
        write(level_of(event, level), **owner(event), event: event.id, **about, ms:)
      end

      # Not named `event`, so that a program that counts these keys counts no event twice.
      def details(event, **about) = write(:debug, **owner(event), details: event.id, **about)

      def owner(event)
        consumer = event.payload[:consumer_id]
        consumer ? { consumer: } : { producer: event.payload[:producer_id] }
      end

      def partitions_of(event) = named(event.payload[:partitions])

      # "bills:0,1 mails:3"; of offsets, partitions with theirs: "bills:0@5"
      def named(topics)
        return unless topics.is_a?(Hash) && !topics.empty?

        topics.map do |topic, partitions|
          "#{topic}:#{partitions.first(SHOWN).map { |partition| Array(partition).join("@") }.join(",")}" \
            "#{"+#{partitions.size - SHOWN}" if partitions.size > SHOWN}"
        end.join(" ")
      end

      def write(level, **words)
        return unless wanted?(level)

        @logger.public_send(level, ["penstock", *words.filter_map { |key, value| word(key, value) }].join(" "))
      end

      # A logger without `level?` methods gets all lines; nil: no line.
      def wanted?(level)
        return false if level.nil?

        question = :"#{level}?"
        !@logger.respond_to?(question) || @logger.public_send(question)
      end

      def word(key, value)
        return if nil.equal?(value) # it may be a BasicObject

        text = EventFormatter.text(rounded(value), 1_000)
        "#{key}=#{text.match?(PLAIN) ? text : Text.printable(text.inspect)}" # what turns the direction of text, inspect leaves
      end

      # Seconds, to the millisecond.
      def rounded(value)
        case value
        when Float then value.round(3)
        else value
        end
      end

      # What the event of a call that failed carries.
      def counted(payload)
        return { topic: EventFormatter.topic(payload[:message]) } if payload.key?(:message)
        return {} unless payload.key?(:messages)

        { **counts_of(payload[:messages]), dispatched: size_of(payload[:dispatched]) }
      end

      def size_of(dispatched)
        case dispatched
        when Array then dispatched.size
        end
      end

      def counts_of(messages)
        topics = EventFormatter.topics(messages)
        named = topics.first(SHOWN).map { |topic, count| "#{topic}:#{count}" }
        named << "+#{topics.size - SHOWN}" if topics.size > SHOWN
        { messages: topics.each_value.sum, topics: named.empty? ? nil : named.join(",") }
      end

      # Penstock's errors never show secrets or payloads.
      # What token providers raise may hold the token.
      def token?(payload) = payload[:type] == Native::TokenRefresher::EVENT_TYPE

      def place(error) = { error: error.class.name, at: error.backtrace&.first }

      def about(error)
        case error
        when Error then { error: error.class.name, code: error.code, text: EventFormatter.message(error) }
        when Exception then place(error)
        else { error: EventFormatter.text(error) }
        end
      end

      def contents(event, messages)
        return unless @log_messages && wanted?(:debug)

        shown_of(messages).each do |message|
          key, payload, partition = %i[key payload partition].map { |name| message.fetch(name, nil) }
          details(event, topic: EventFormatter.topic(message), partition:, key: bytes(key), payload: bytes(payload))
        end
      end

      def shown_of(messages)
        case messages
        when Array then messages.first(SHOWN).grep(Hash)
        else []
        end
      end

      def bytes(value)
        case value
        when nil then nil
        when String
          more = value.bytesize - SHOWN_BYTES
          EventFormatter.bytes(value.byteslice(0, SHOWN_BYTES), more.positive?) + (more.positive? ? "... #{more} bytes more" : "")
        else EventFormatter.text(value)
        end
      end
    end
  end
end

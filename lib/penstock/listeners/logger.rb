# frozen_string_literal: true

module Penstock
  module Listeners
    # Writes a line for what producers do. See docs/listeners-logger.md.
    #
    #     producer.monitor.subscribe(Penstock::Listeners::Logger.new(Logger.new($stdout)))
    #
    # A line is made of words `key=value`, the producer and the event first:
    #
    #     penstock producer=orders event=messages.produced_sync messages=3 topics=bills:2,mails:1 ms=4.1
    #
    # Levels: info for what was done, warn for reloads and slow listeners, error for errors; debug for the messages
    # themselves, which have `details=` in place of `event=`. An error's text is written if it is Penstock's own; others'
    # errors may quote what is not for a log, so their class and place are, and their text on debug.
    #
    # Blocks as long as the logger does: what is told of a call holds up the caller. Any thread may call it.
    class Logger
      # Bytes that are written of a payload and of a key.
      SHOWN_BYTES = 200
      # Messages of a batch that are written, and topics that are named.
      SHOWN = 10
      # What may stand in a line without quotes.
      PLAIN = %r{\A[\w.:/@,+()?-]+\z}
      private_constant :SHOWN_BYTES, :SHOWN, :PLAIN

      # @param logger [Logger] or anything with `debug`, `info`, `warn` and `error`
      # @param log_messages [Boolean] whether messages' contents are written, on debug: of at most 10 messages of a call, and
      #   200 bytes of each payload and key
      # @raise [ArgumentError] the logger has not these methods
      def initialize(logger, log_messages: true)
        missing = %i[debug info warn error].reject { |level| logger.respond_to?(level) }
        unless missing.empty?
          raise ArgumentError, "a logger has the methods debug, info, warn and error; #{logger.class} lacks #{missing.join(", ")}"
        end

        @logger = logger
        @log_messages = log_messages
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
         transaction.aborted transaction.finished].each do |name|
        define_method(:"on_#{name.tr(".", "_")}") { |event| line(:info, event) }
      end

      # @api private
      def on_producer_reload(event)
        line(:warn, event, attempt: event.payload[:attempt], **about(event.payload[:error]))
      end

      # @api private
      def on_producer_reloaded(event) = line(:warn, event, attempt: event.payload[:attempt])

      # @api private
      def on_listener_slow(event)
        line(:warn, event, listener: event.payload[:listener], of: event.payload[:event])
      end

      # @api private
      def on_error_occurred(event)
        payload = event.payload
        error = payload[:error]
        line(:error, event, type: payload[:type], topic: payload[:topic], partition: payload[:partition],
                            event_of: payload[:event], attempt: payload[:attempt], retry: payload[:retry],
                            **counted(payload), **about(error))
        case error
        when Error then nil
        when Exception then details(event, error: error.class.name, text: Words.message(error)) if @log_messages
        end
      end

      # Never shows the logger.
      # @return [String]
      def inspect = "#<#{self.class}#{" log_messages" if @log_messages}>"

      private

      def single(event)
        return unless wanted?(:info)

        message = event.payload[:message]
        line(:info, event, topic: Words.topic(message))
        contents(event, [message])
      end

      def several(event)
        return unless wanted?(:info) # before topics are counted

        messages = event.payload[:messages]
        line(:info, event, **counts_of(messages))
        contents(event, messages)
      end

      def line(level, event, **about)
        time = event.payload[:time]
        ms = case time
             when Integer, Float then time.round(3)
             end
        write(level, producer: event.payload[:producer_id], event: event.id, **about, ms:)
      end

      # Not named `event`, so that counting those counts none twice.
      def details(event, **about) = write(:debug, producer: event.payload[:producer_id], details: event.id, **about)

      def write(level, **words)
        return unless wanted?(level)

        @logger.public_send(level, ["penstock", *words.filter_map { |key, value| word(key, value) }].join(" "))
      end

      # A logger that does not say wants all.
      def wanted?(level)
        question = :"#{level}?"
        !@logger.respond_to?(question) || @logger.public_send(question)
      end

      def word(key, value)
        return if nil.equal?(value) # it may be a BasicObject

        text = Words.text(value, 1_000)
        "#{key}=#{text.match?(PLAIN) ? text : text.inspect}"
      end

      # What the event of a call that failed carries.
      def counted(payload)
        return { topic: Words.topic(payload[:message]) } if payload.key?(:message)
        return {} unless payload.key?(:messages)

        { **counts_of(payload[:messages]), dispatched: size_of(payload[:dispatched]) }
      end

      def size_of(dispatched)
        case dispatched
        when Array then dispatched.size
        end
      end

      def counts_of(messages)
        topics = Words.topics(messages)
        named = topics.first(SHOWN).map { |topic, count| "#{topic}:#{count}" }
        named << "+#{topics.size - SHOWN}" if topics.size > SHOWN
        { messages: topics.each_value.sum, topics: named.empty? ? nil : named.join(",") }
      end

      # Ours never show secrets or payloads.
      def about(error)
        case error
        when Error then { error: error.class.name, code: error.code, text: Words.message(error) }
        when Exception then { error: error.class.name, at: error.backtrace&.first }
        else { error: Words.text(error) }
        end
      end

      def contents(event, messages)
        return unless @log_messages && wanted?(:debug)

        shown_of(messages).each do |message|
          key, payload, partition = %i[key payload partition].map { |name| message.fetch(name, nil) }
          details(event, topic: Words.topic(message), partition:, key: bytes(key), payload: bytes(payload))
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
          Words.text(value.byteslice(0, SHOWN_BYTES)) + (more.positive? ? "... #{more} bytes more" : "")
        else Words.text(value)
        end
      end
    end
  end
end

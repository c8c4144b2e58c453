# frozen_string_literal: true

module Penstock
  class OpenTelemetry
    # The span of {OpenTelemetry#process}, around what is done with a message or batch.
    # @api private
    class Processing
      OPERATION = { "messaging.system" => "kafka", "messaging.operation.name" => "process",
                    "messaging.operation.type" => "process" }.freeze
      # The SDK keeps no more by default. The headers of later messages are not read.
      MOST_LINKS = 128
      private_constant :OPERATION, :MOST_LINKS

      # @param telemetry [OpenTelemetry]
      # @param what [Message, Batch]
      # @param consumer [Consumer, nil]
      def initialize(telemetry, what, consumer)
        @telemetry = telemetry
        @what = what
        @messages = what.is_a?(Batch) ? what : [what]
        @consumer = consumer
      end

      # @return [Hash{String => Object}] of span and metrics
      def common
        @common ||= begin
          config = @consumer&.config
          group = config.kafka[:"group.id"] if config&.group?
          { **OPERATION, "messaging.destination.name" => (Text.printable(topics.first) if topics.size == 1),
                         "messaging.consumer.group.name" => (Text.printable(group) if group) }.compact
        end
      end

      # @return [OpenTelemetry::Trace::Span]
      def start(tracer, keys)
        client = @consumer&.config&.kafka&.fetch(:"client.id", nil)
        attributes = common.merge(batch? ? { "messaging.batch.message_count" => @messages.size } : about(@messages[0], keys))
        attributes["messaging.client.id"] = Text.printable(client) if client
        name = ["process", common["messaging.destination.name"]].compact.join(" ")
        parent = batch? ? ::OpenTelemetry::Context.current : @telemetry.extract(@what)
        tracer.start_span(name, with_parent: parent, attributes:, links:, kind: :consumer)
      end

      # @return [Hash{String => Integer}] number of messages by topic
      def counts = @counts ||= batch? ? @what.topics.tally : { @what.topic => 1 }

      private

      def batch? = @what.is_a?(Batch)

      def topics = counts.keys

      # To the spans that sent the messages; once, if messages were sent together.
      def links
        contexts = {}
        @messages.each do |message|
          break if contexts.size >= MOST_LINKS
          next unless message.headers.any?

          sent = context_of(message) or next
          contexts[[sent.trace_id, sent.span_id]] ||= ::OpenTelemetry::Trace::Link.new(sent)
        end
        contexts.values
      end

      # @return [OpenTelemetry::Trace::SpanContext, nil]
      def context_of(message)
        context = @telemetry.extract(message)
        return if context.equal?(::OpenTelemetry::Context.current)

        found = ::OpenTelemetry::Trace.current_span(context).context
        found if found.valid?
      end

      def about(message, keys)
        payload = message.payload
        { "messaging.message.body.size" => payload&.bytesize, "messaging.kafka.message.tombstone" => (true if payload.nil?),
          "messaging.kafka.message.key" => (@telemetry.__send__(:text, message.key) if keys),
          "messaging.destination.partition.id" => message.partition.to_s,
          "messaging.kafka.offset" => message.offset }.compact
      end
    end
    private_constant :Processing
  end
end

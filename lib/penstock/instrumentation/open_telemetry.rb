# frozen_string_literal: true

require_relative "open_telemetry/processing"

module Penstock
  # Spans and metrics of sent and processed messages, and the trace context in their headers, according to OpenTelemetry's
  # semantic conventions for messaging with Kafka; see docs/opentelemetry.md.
  #
  #     telemetry = Penstock::OpenTelemetry.new
  #     producer.around(telemetry)
  #     # where messages are consumed
  #     telemetry.process(message, consumer:) { work_on(message) }
  #
  # Requires the gem opentelemetry-api, a part of opentelemetry-sdk. Metrics require opentelemetry-metrics-api; without it
  # there are none. A span contains no payload, header or label.
  #
  # Each sending call is one span, also for a batch. It lasts until the call returns: for a sync call until the delivery result,
  # for an async call until librdkafka has the messages. So spans of async calls have no delivery results.
  #
  # An error of the telemetry stops no message. An error before sending goes to `OpenTelemetry.handle_error`, and the
  # message is sent without a span. An error after sending is published like that of any hook, see {Producer#around}.
  #
  # Any thread and fiber may use it, and it may be the hook of any number of producers.
  class OpenTelemetry
    include AsJson

    # Reads the headers of a consumed message, for propagators.
    # @api private
    module Getter
      # Of a name that comes more than once, the last counts, as for Kafka's other clients.
      def self.get(headers, name)
        value = headers[name]
        value = value.last if value.is_a?(Array)
        text = value&.dup&.force_encoding(Encoding::UTF_8)
        text if text&.valid_encoding?
      end

      def self.keys(headers) = headers.keys
    end

    OPERATION = { "messaging.system" => "kafka", "messaging.operation.name" => "send",
                  "messaging.operation.type" => "send" }.freeze
    SERVER = %r{\A(?:\w+://)?(?:\[(?<host>.+)\]|(?<host>[^:,]+))(?::(?<port>\d+))?\z}
    private_constant :OPERATION, :SERVER

    # @param tracer_provider [OpenTelemetry::Trace::TracerProvider, nil] nil, the default: `OpenTelemetry.tracer_provider`
    # @param meter_provider [OpenTelemetry::Metrics::MeterProvider, false, nil] false: no metrics; nil, the default:
    #   `OpenTelemetry.meter_provider` if there is one
    # @param keys [Boolean] whether a message's key, if it is text, is in its span; default true
    # @raise [LoadError] when the gem opentelemetry-api is missing
    # @overload initialize(tracer_provider: nil, meter_provider: nil, keys: true)
    def initialize(*more, tracer_provider: nil, meter_provider: nil, keys: true, **wrong)
      Keywords.check("new(tracer_provider: nil, meter_provider: nil, keys: true)", %i[tracer_provider meter_provider keys], more,
                     wrong)
      load_gem
      @tracer = (tracer_provider || ::OpenTelemetry.tracer_provider).tracer("penstock", VERSION)
      @keys = keys
      meter_provider = ::OpenTelemetry.meter_provider if meter_provider.nil? && ::OpenTelemetry.respond_to?(:meter_provider)
      make_instruments(meter_provider.meter("penstock", version: VERSION)) if meter_provider
    end

    # Sends in a span: what {Producer#around} calls.
    # @param sending [Producer::SendContext]
    # @return [Object] what it returned
    # @raise [Error] what it raised
    def call(sending)
      start = now
      value = nil
      common = common_attributes(sending)
      span = start_span(sending, common)
      ::OpenTelemetry::Trace.with_span(span) do
        inject(sending)
        value = sending.call
      end
    rescue StandardError => e
      raise if sending.called?

      ::OpenTelemetry.handle_error(exception: e, message: "penstock sends without a span")
      value = sending.call
    ensure
      if span
        error = sending.error
        error_type = type_of(error) unless value
        finish(span, value, error, error_type)
        measure(sending, common, error, error_type, now - start)
      end
    end

    # Works on a message or batch in a span "process TOPIC" of kind consumer. A message's span continues the trace in which it was
    # sent. The span of a batch belongs to the current trace. Both have links to the spans that sent the messages, at most 128.
    # The block's error is recorded and raised. Runs the block without a span if the telemetry itself fails before it.
    #
    #     consumer.each { |message| telemetry.process(message, consumer:) { handle(message) } }
    #     telemetry.process(batch, consumer:) { |batch| store(batch.payloads) }
    #
    # @overload process(what, consumer: nil)
    #   @param what [Message, Batch] that was consumed
    #   @param consumer [Consumer, nil] whose group and client.id the span names
    #   @yieldparam what [Message, Batch]
    #   @return [Object] the block's value
    #   @raise [TypeError] when it is something else
    def process(what, *more, consumer: nil, **wrong)
      Keywords.check("process(message, consumer: nil) { |message| ... }", %i[consumer], more, wrong)
      what.is_a?(Message) || what.is_a?(Batch) or raise TypeError, "process takes a Message or Batch, not #{what.class}"
      start = now
      processing = Processing.new(self, what, consumer)
      span = begin_processing(processing) or return yield(what)
      begin
        ended = false
        value = ::OpenTelemetry::Trace.with_span(span) { yield(what) }
        ended = true
        value
      rescue Exception => e # rubocop:disable Lint/RescueException -- it is raised again
        error = e
        raise
      ensure
        error_type = type_of(error) unless ended
        finish(span, nil, error, error_type)
        measure_processing(processing, error_type, now - start)
      end
    end

    # The context that a message was sent in, for what is done with the message.
    # @param message [Message] that was consumed
    # @return [OpenTelemetry::Context] the current one if the message's headers have none
    def extract(message) = ::OpenTelemetry.propagation.extract(message.headers, getter: Getter)

    # @return [String]
    def inspect = "#<#{self.class}>"

    private

    def load_gem
      require "opentelemetry" unless defined?(::OpenTelemetry::Trace)
    rescue LoadError => e
      raise unless e.path == "opentelemetry"

      raise LoadError, "#{self.class} requires the gem opentelemetry-api: add gem \"opentelemetry-sdk\" to the Gemfile"
    end

    def make_instruments(meter)
      @duration = meter.create_histogram("messaging.client.operation.duration", unit: "s",
                                                                                description: "How long calls that send take")
      @sent = meter.create_counter("messaging.client.sent.messages", unit: "{message}",
                                                                     description: "Messages that were to be sent")
      @process = meter.create_histogram("messaging.process.duration", unit: "s", description: "How long processing takes")
      @consumed = meter.create_counter("messaging.client.consumed.messages", unit: "{message}",
                                                                             description: "Messages that were processed")
    end

    # @return [OpenTelemetry::Trace::Span, nil] nil: the telemetry has failed
    def begin_processing(processing)
      processing.start(@tracer, @keys)
    rescue StandardError => e
      ::OpenTelemetry.handle_error(exception: e, message: "penstock processes without a span")
      nil
    end

    def measure_processing(processing, error_type, seconds)
      return unless @process

      @process.record(seconds, attributes: with_error(processing.common, error_type))
      processing.counts.each do |topic, count|
        about = processing.common.merge("messaging.destination.name" => Text.printable(topic))
        @consumed.add(count, attributes: with_error(about, error_type))
      end
    end

    # Of spans and metrics.
    def common_attributes(sending)
      topics = sending.messages.map { |message| message[:topic] }.uniq
      attributes = OPERATION.dup
      attributes["messaging.destination.name"] = Text.printable(topics[0]) if topics.size == 1
      server = SERVER.match(sending.producer.config.kafka[:"bootstrap.servers"].to_s) # of several, the broker is unknown
      attributes.update("server.address" => server[:host], "server.port" => (server[:port] || 9092).to_i) if server
      attributes
    end

    def start_span(sending, common)
      attributes = common.merge(sending.many? ? { "messaging.batch.message_count" => sending.messages.size } : about(sending))
      client = sending.producer.config.kafka[:"client.id"]
      attributes["messaging.client.id"] = Text.printable(client) if client
      @tracer.start_span(["send", common["messaging.destination.name"]].compact.join(" "), attributes:, kind: :producer)
    end

    # Of a single message.
    def about(sending)
      payload, key, partition = sending.messages[0].values_at(:payload, :key, :partition)
      key = text(key) if @keys
      { "messaging.message.body.size" => (payload.bytesize if payload.is_a?(String)),
        "messaging.kafka.message.tombstone" => (true if payload.nil?),
        "messaging.kafka.message.key" => (key if @keys),
        "messaging.destination.partition.id" => (partition.to_s if partition.is_a?(Integer) && partition >= 0) }.compact
    end

    # @return [String, nil] nil: it is bytes
    def text(key)
      return unless key.is_a?(String)

      text = key.dup.force_encoding(Encoding::UTF_8)
      text if text.valid_encoding?
    end

    # A message that has one of the headers stays unchanged: the program has chosen its context.
    def inject(sending)
      context = {}
      ::OpenTelemetry.propagation.inject(context)
      return if context.empty?

      sending.messages = sending.messages.map do |message|
        headers = message[:headers] || {}
        next message if !headers.is_a?(Hash) || context.each_key.any? { |name| headers.key?(name) || headers.key?(name.to_sym) }

        message.merge(headers: headers.merge(context))
      end
    end

    def finish(span, value, error, error_type)
      if value.is_a?(DeliveryReport)
        span.set_attribute("messaging.destination.partition.id", value.partition.to_s) if value.partition
        span.set_attribute("messaging.kafka.offset", value.offset) if value.offset
      end
      span.record_exception(error) if error
      if error_type
        span.set_attribute("error.type", error_type)
        span.status = ::OpenTelemetry::Trace::Status.error(error ? Text.message(error) : error_type)
      end
    ensure
      span.finish
    end

    def measure(sending, common, error, error_type, seconds)
      return unless @duration

      @duration.record(seconds, attributes: with_error(common, error_type))
      outcomes(sending.messages, error, error_type).tally.each do |(topic, type), count|
        @sent.add(count, attributes: with_error(common.merge("messaging.destination.name" => topic), type))
      end
    end

    # Of a batch that failed in part, messages have types of their own.
    # @return [Array<Array(String, String)>] topic and error.type of each message
    def outcomes(messages, error, error_type)
      handles = error.is_a?(ProduceManyError) ? error.dispatched : []
      taken = handles.map { |handle| [handle.topic, handle.error && type_of(handle.error)] }
      taken + messages.drop(handles.size).map { |message| [Text.printable(message[:topic]), error_type] }
    end

    # @return [String] where there is no error, the call was left by a throw
    def type_of(error)
      return "_OTHER" unless error

      (error.code if error.is_a?(Error))&.name || error.class.name || "_OTHER"
    end

    def with_error(attributes, type) = type ? attributes.merge("error.type" => type) : attributes

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

# frozen_string_literal: true

# The parts of OpenTelemetry's API that Penstock::OpenTelemetry uses, for tests without the gem. Spans and measurements are kept
# for tests, contexts are fiber-local, and the propagator writes and reads "traceparent".
module OpenTelemetry
  # Values that belong to the current operation.
  class Context
    KEY = :opentelemetry_stand_in
    private_constant :KEY

    def self.current = Thread.current[KEY] || ROOT

    def self.with_current(context)
      before = Thread.current[KEY]
      Thread.current[KEY] = context
      yield context
    ensure
      Thread.current[KEY] = before
    end

    def initialize(values) = @values = values.freeze
    def value(key) = @values[key]
    def set_value(key, value) = Context.new(@values.merge(key => value))

    ROOT = new({})
  end

  module Trace
    SpanContext = Struct.new(:trace_id, :span_id, keyword_init: true) do
      def hex_trace_id = trace_id
      def hex_span_id = span_id
      def valid? = true
    end

    Link = Struct.new(:span_context, :attributes)

    class Status
      attr_reader :description

      def self.error(description = "") = new(description)
      def initialize(description) = @description = description
    end

    class Span
      attr_reader :name, :kind, :attributes, :context, :parent, :exceptions, :links
      attr_accessor :status

      def initialize(name, parent: nil, context: nil, attributes: nil, kind: nil, links: nil)
        @name = name
        @parent = parent
        @kind = kind
        @links = links
        @attributes = (attributes || {}).dup
        check
        @context = context || SpanContext.new(trace_id: parent&.trace_id || format("%032x", rand(2**64)),
                                              span_id: format("%016x", rand(2**64)))
        @exceptions = []
      end

      def set_attribute(key, value)
        raise "the span #{name} is finished" if finished?

        @attributes[key] = value
        check
      end

      def record_exception(error, attributes: nil) = @exceptions << [error, attributes].first
      def finished? = @finished || false

      def finish
        raise "the span #{name} was finished twice" if finished?

        @finished = true
        self
      end

      private

      # The real API drops values that cannot be sent, and logs a complaint.
      def check
        bad = @attributes.reject do |key, value|
          key.is_a?(String) && (value.is_a?(String) ? value.encoding == Encoding::UTF_8 || value.ascii_only? : simple?(value))
        end
        raise ArgumentError, "no attributes: #{bad}" if bad.any?
      end

      def simple?(value) = [true, false].include?(value) || value.is_a?(Numeric)
    end

    CURRENT = :span

    def self.current_span(context = Context.current) = context.value(CURRENT)
    def self.context_with_span(span, parent_context: Context.current) = parent_context.set_value(CURRENT, span)

    def self.with_span(span)
      Context.with_current(context_with_span(span)) { |context| yield span, context }
    end
  end

  class Tracer
    def initialize(spans) = @spans = spans

    def start_span(name, with_parent: nil, attributes: nil, links: nil, kind: nil)
      parent = Trace.current_span(with_parent || Context.current)&.context
      Trace::Span.new(name, parent:, attributes:, links:, kind:).tap { |span| @spans << span }
    end

    def in_span(name, **options, &block)
      span = start_span(name, **options)
      Trace.with_span(span, &block)
    ensure
      span&.finish
    end
  end

  class TracerProvider
    # @return [Array<Trace::Span>] in order of their start
    attr_reader :spans

    def initialize = @spans = []
    def tracer(_name = nil, _version = nil) = Tracer.new(@spans)
  end

  class MeterProvider
    # @return [Hash{String => Array}] the recorded numbers and attributes, by instrument
    attr_reader :recorded

    # A counter or a histogram.
    class Instrument
      def initialize(recorded) = @recorded = recorded
      def record(amount, attributes: {}) = @recorded << [amount, attributes]
      alias add record
    end

    def initialize = @recorded = {}
    def meter(_name, version: nil) = version && self
    def create_histogram(name, unit: nil, description: nil) = create(name, unit, description)
    def create_counter(name, unit: nil, description: nil) = create(name, unit, description)

    private

    def create(name, unit, description)
      raise ArgumentError, "an instrument has a unit and a description" unless unit && description
      raise ArgumentError, "#{name} is made twice" if @recorded[name]

      Instrument.new(@recorded[name] = [])
    end
  end

  # W3C's trace context, in its only version.
  class Propagator
    TRACEPARENT = /\A00-(\h{32})-(\h{16})-\h\h\z/

    # Reads and writes a Hash.
    module HashAccess
      def self.get(carrier, key) = carrier[key]
      def self.set(carrier, key, value) = carrier[key] = value
    end

    def fields = ["traceparent"]

    def inject(carrier, context: Context.current, setter: HashAccess)
      span = Trace.current_span(context) or return
      setter.set(carrier, "traceparent", "00-#{span.context.hex_trace_id}-#{span.context.hex_span_id}-01")
    end

    def extract(carrier, context: Context.current, getter: HashAccess)
      match = TRACEPARENT.match(getter.get(carrier, "traceparent").to_s) or return context
      remote = Trace::SpanContext.new(trace_id: match[1], span_id: match[2])
      Trace.context_with_span(Trace::Span.new("remote", context: remote), parent_context: context)
    end
  end

  class << self
    attr_accessor :tracer_provider, :propagation
    # @return [Array<Exception>] the errors given to {handle_error}
    attr_reader :errors

    def handle_error(exception: nil, message: nil) = @errors << (exception || message)

    # If the metrics API is installed, there is `OpenTelemetry.meter_provider`.
    attr_accessor :meter_provider

    def reset
      @tracer_provider = TracerProvider.new
      @meter_provider = MeterProvider.new
      @propagation = Propagator.new
      @errors = []
    end
  end
  reset
end

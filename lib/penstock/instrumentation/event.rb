# frozen_string_literal: true

require "json"

module Penstock
  # An event for the listeners of a {Monitor}. Immutable.
  class Event
    include AsJson

    # The keys of the payload that {#as_json} shows.
    PLAIN = %i[producer_id consumer_id type topic partition offset time attempt].freeze
    private_constant :PLAIN

    # @return [String] its name, such as "message.acknowledged"
    attr_reader :id
    # @return [Hash{Symbol => Object}] frozen; with `time`, a Float of ms, if the event has a duration
    attr_reader :payload

    # Penstock makes them.
    def initialize(id, payload)
      @id = id
      @payload = payload.frozen? ? payload : payload.dup.freeze
      freeze
    end

    # @return [Hash{Symbol => Object}] {#payload}
    def to_h = payload

    # @param key [Symbol]
    # @return [Object]
    # @raise [KeyError] when the event has no such key; `payload[key]` returns nil instead
    def [](key) = payload.fetch(key)

    # @return [String] without the values, which may be secret or long
    def inspect = "#<#{self.class} #{id} #{payload.keys.join(" ")}>"

    # (see AsJson#as_json)
    def as_json(_options = nil)
      values = payload
      plain = values.slice(*PLAIN).transform_values { |value| value.is_a?(Symbol) ? value.to_s : value }
      plain = plain.select { |_, value| value.nil? || value.is_a?(String) || value.is_a?(Numeric) }
      json(id:, **plain, error: values[:error].is_a?(Error) ? values[:error].as_json : values[:error]&.class&.name)
    end

    private

    # Whose event it is.
    # @return [Hash{Symbol => String, nil}]
    def owner = payload[:consumer_id] ? payload.slice(:consumer_id) : { producer_id: payload[:producer_id] }

    # @return [Exception, nil]
    def error = payload[:error]
  end

  # The delivery result of a message. The Hash is made only when a listener reads it: there may be hundreds of thousands of
  # events a second.
  # @api private
  class DeliveryEvent < Event
    def initialize(id, report, source) # rubocop:disable Lint/MissingSuper -- that makes the payload
      @id = id
      @report = report
      @source = source
      freeze
    end

    def payload
      about = { producer_id: @source.producer_id, caller: @source.producer, topic: @report.topic,
                partition: @report.partition, offset: @report.offset, delivery_report: @report, label: @report.label }
      about.update(type: "librdkafka.dispatch_error", error: @report.error) if @report.error
      about.freeze
    end

    def [](key)
      case key
      when :delivery_report then @report
      when :offset then @report.offset
      when :partition then @report.partition
      when :topic then @report.topic
      when :label then @report.label
      else super
      end
    end
  end

  # The statistics of librdkafka. The text is parsed once, when a listener reads the Hash.
  class StatisticsEvent < Event
    # @return [String] the JSON text of librdkafka; frozen
    attr_reader :json

    # Parsed at most once, also for the comparison with the next statistics.
    # @api private
    class Parsed
      attr_accessor :previous
      attr_reader :at

      # @yieldreturn [Hash] what the text says; by default all of it
      def initialize(json, previous, &parse)
        @parse = parse || -> { JSON.parse(json, freeze: true) }
        @previous = previous
        @at = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def value = @value ||= @parse.call
    end

    # Penstock makes them.
    def initialize(json, parsed, owner_id, key = :producer_id) # rubocop:disable Lint/MissingSuper -- that makes the payload
      @id = "statistics.emitted"
      @json = json
      @parsed = parsed
      @owner = { key => owner_id }.freeze
      freeze
    end

    # @return [Hash{Symbol => Object}] frozen; parses the text
    def payload = { **@owner, statistics: @parsed.value }.freeze

    # @param key [:producer_id, :consumer_id, :statistics]
    # @return [Object]
    def [](key) = @owner.fetch(key) { super }

    # The increase of a number since the previous statistics.
    #
    #     event.delta("txmsgs")
    #     event.delta("brokers", "localhost:9092/1", "txretries")
    #
    # @param path [Array<String>] of keys
    # @return [Numeric, nil] nil: there is no such number, or no previous statistics (any more)
    def delta(*path)
      before = @parsed.previous&.value&.dig(*path)
      after = @parsed.value.dig(*path)
      after - before if before.is_a?(Numeric) && after.is_a?(Numeric)
    end

    # @return [String]
    def inspect = "#<#{self.class} #{id} #{@json.bytesize} bytes>"

    # Without AsJson's method json, because {#json} is the text. (see AsJson#as_json)
    def as_json(_options = nil) = { "class" => self.class.name, "id" => id, **@owner.transform_keys(&:name) }

    private

    # Without parsing the text, which may be what has failed.
    attr_reader :owner

    def error = nil
  end
end

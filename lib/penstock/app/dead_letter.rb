# frozen_string_literal: true

module Penstock
  class App # rubocop:disable Style/Documentation -- in app.rb
    # Copies of messages that could not be processed: key, payload and headers as they are, and headers that tell the origin and
    # the reason.
    # @api private
    class DeadLetter
      include ShortInspect

      TEXT_BYTES = 1_024
      ORIGIN = %w[source_topic source_partition source_offset source_consumer_group source_timestamp].freeze
      private_constant :TEXT_BYTES, :ORIGIN

      # @param producer [Producer]
      # @param topic [String]
      # @param group [String]
      # @param runtime [Runtime]
      def initialize(producer, topic, group, runtime)
        @runtime = runtime
        @producer = producer
        @topic = topic
        @group = group
      end

      # @return [String]
      attr_reader :topic

      # Blocks until the broker has the copy.
      # @param record [Message]
      # @param error [Exception]
      # @param attempts [Integer]
      # @raise [Error] when it has not
      def send(record, error, attempts)
        @producer.produce_sync(topic: @topic, payload: record.payload, key: record.key, partition_key: record.partition.to_s,
                               headers: headers(record, error, attempts))
      end

      private

      # The headers of the first origin stay, if a copy fails again.
      def headers(record, error, attempts)
        given = record.headers
        origin = given.key?("source_topic") ? {} : origin_of(record)
        if retried?(given)
          attempts += Array(given["source_attempts"]).last.to_i
          given = given.except("retry_at")
        end
        { **given, **origin,
          "source_attempts" => attempts.to_s, "error_class" => error.class.to_s, "error_message" => text_of(error),
          "error_kind" => kind_of(error), "failed_at" => milliseconds }
      end

      # Whether an application has sent it to a retry topic. (A dead letter that is sent again has its attempts anew.)
      def retried?(given) = given.key?("retry_at") && given.key?("source_topic")

      def origin_of(record)
        ORIGIN.zip([record.topic, record.partition.to_s, record.offset.to_s, @group, record.timestamp.to_s]).to_h
      end

      def text_of(error) = Text.message(error).byteslice(0, TEXT_BYTES).scrub("")

      def kind_of(error) = Copies.poison?(error) ? "poison" : "retriable"

      def milliseconds = (@runtime.time * 1000).to_i.to_s
    end

    # The same in a retry topic: with the time at which the message is due.
    # @api private
    class RetryTopic < DeadLetter
      # @param seconds [Numeric] until then
      def initialize(producer, topic, group, runtime, seconds)
        super(producer, topic, group, runtime)
        @seconds = seconds
      end

      private

      def headers(...) = { **super, "retry_at" => ((@runtime.time + @seconds) * 1000).to_i.to_s }
    end

    # To where the messages of a route go that have failed.
    # @api private
    class Copies
      # @param error [Exception]
      # @return [Boolean] whether the message can never be processed
      def self.poison?(error) = error.is_a?(Processor::Rejected) || error.is_a?(DeserializationError)

      # @param route [Route]
      def initialize(route, producer, group, runtime)
        dead = route.options[:dead_letter]
        @dead_letter = DeadLetter.new(producer, dead, group, runtime) if dead
        topic, seconds = route.next_topic(group)
        @retry_topic = RetryTopic.new(producer, topic, group, runtime, seconds) if topic
      end

      # @param error [Exception]
      # @return [DeadLetter, nil]
      def of(error) = @retry_topic && !Copies.poison?(error) ? @retry_topic : @dead_letter
    end
    private_constant :DeadLetter, :RetryTopic, :Copies
  end
end

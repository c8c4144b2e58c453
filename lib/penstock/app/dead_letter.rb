# frozen_string_literal: true

module Penstock
  class App
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
        { **given, **origin, "source_attempts" => attempts.to_s, "error_class" => error.class.to_s,
                             "error_message" => text_of(error), "error_kind" => kind_of(error), "failed_at" => milliseconds }
      end

      def origin_of(record)
        ORIGIN.zip([record.topic, record.partition.to_s, record.offset.to_s, @group, record.timestamp.to_s]).to_h
      end

      def text_of(error) = Text.message(error).byteslice(0, TEXT_BYTES).scrub("")

      def kind_of(error) = error.is_a?(Processor::Rejected) || error.is_a?(DeserializationError) ? "poison" : "retriable"

      def milliseconds = (@runtime.time * 1000).to_i.to_s
    end
    private_constant :DeadLetter
  end
end

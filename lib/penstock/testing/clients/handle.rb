# frozen_string_literal: true

module Penstock
  module Clients
    # What a client that sends nothing returns in place of a {DeliveryHandle}, whose public methods it has: the verdict
    # is in from the start. Immutable; any thread, fiber and process may use it.
    class Handle
      include AsJson

      # @return [DeliveryReport] the verdict
      attr_reader :report

      # @param handles [Array<Handle>]
      # @return [Boolean] whether all were delivered; never blocks
      def self.await_all(handles, _timeout_ms = nil) = handles.all?(&:delivered?)

      # Penstock makes them.
      def initialize(report)
        @report = report
        freeze
      end

      # Never blocks.
      # @return [DeliveryReport] when the message was delivered
      # @raise [DeliveryError] when it was to fail
      def wait(max_wait_timeout_ms: nil) # rubocop:disable Lint/UnusedMethodArgument -- the real one waits
        raise error if error

        report
      end

      # @return [Boolean] false: the verdict is in
      def pending? = false

      # @return [DeliveryError, ProducerFencedError, nil] why it failed
      def error = report.error

      # @return [:persisted, :possibly_persisted, :not_persisted] (see DeliveryReport#status)
      def status = report.status

      # @return [String]
      def topic = report.topic

      # @return [Object, nil] what was given as the message's label
      def label = report.label

      # @return [Boolean]
      def delivered? = error.nil?

      # @return [String] the topic and the verdict
      def inspect = "#<#{self.class} topic=#{topic} #{status}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(topic:, status: status.to_s)
    end
  end
end

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
      # @param more [Array] none: raises ArgumentError
      # @param timeout [Numeric, nil] seconds; changes nothing
      # @param wrong [Hash] none: raises ArgumentError
      # @return [Boolean] whether all were delivered; never blocks
      def self.await_all(handles, *more, timeout: 180, **wrong)
        Keywords.check("await_all(handles, timeout: 180)", %i[timeout], more, wrong)
        Seconds.of(timeout)
        handles.all?(&:delivered?)
      end

      # Penstock makes them.
      def initialize(report)
        @report = report
        freeze
      end

      # Never blocks.
      # @param more [Array] none: raises ArgumentError
      # @param timeout [Numeric, nil] seconds; changes nothing
      # @param wrong [Hash] `max_wait_timeout_ms` changes nothing either; others raise ArgumentError
      # @return [DeliveryReport] when the message was delivered
      # @raise [DeliveryError] when it was to fail
      def wait(*more, timeout: 180, **wrong)
        Keywords.check("wait(timeout: 180)", %i[timeout max_wait_timeout_ms], more, wrong.except(:max_wait_timeout_ms))
        Seconds.of(timeout)
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

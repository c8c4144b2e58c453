# frozen_string_literal: true

module Penstock
  module Clients
    # What a client that sends nothing returns in place of a {DeliveryHandle}. It has the same public methods, and the
    # delivery result from the start. Immutable; any thread, fiber and process may use it.
    class Handle
      include AsJson

      # @return [DeliveryReport] the delivery result
      attr_reader :report

      # @param handles [Array<Handle>]
      # @param timeout [Numeric, nil] seconds; has no effect
      # @return [Boolean] whether all were delivered; never blocks
      # @raise [ArgumentError] when the timeout is invalid
      # @overload await_all(handles, timeout: 180)
      def self.await_all(handles, *more, timeout: 180, **wrong)
        Keywords.check("await_all(handles, timeout: 180)", %i[timeout], more, wrong)
        Seconds.of(timeout)
        handles.all?(&:delivered?)
      end

      # Penstock makes the handles.
      def initialize(report)
        @report = report
        freeze
      end

      # Never blocks.
      # @param timeout [Numeric, nil] seconds; has no effect
      # @param max_wait_timeout_ms [Numeric, nil] has no effect either
      # @return [DeliveryReport] of the delivered message
      # @raise [DeliveryError, ProducerFencedError] when the message was made to fail
      # @raise [ArgumentError] when the timeout is invalid
      # @overload wait(timeout: 180, max_wait_timeout_ms: nil)
      def wait(*more, timeout: 180, max_wait_timeout_ms: nil, **wrong) # rubocop:disable Lint/UnusedMethodArgument
        Keywords.check("wait(timeout: 180)", %i[timeout max_wait_timeout_ms], more, wrong)
        Seconds.of(timeout)
        raise error if error

        report
      end

      # @return [Boolean] false: there is a delivery result
      def pending? = false

      # @return [DeliveryError, ProducerFencedError, nil] why it failed
      def error = report.error

      # @return [:persisted, :possibly_persisted, :not_persisted] (see DeliveryReport#status)
      def status = report.status

      # @return [String]
      def topic = report.topic

      # @return [Object, nil] the message's label
      def label = report.label

      # @return [Boolean]
      def delivered? = error.nil?

      # @return [String] the topic and the status
      def inspect = "#<#{self.class} topic=#{topic} #{status}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(topic:, status: status.to_s)
    end
  end
end

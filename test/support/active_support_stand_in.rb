# frozen_string_literal: true

# The parts of ActiveSupport::Notifications, as of version 7.0, that Penstock uses, for tests without the gem.
module ActiveSupport
  module Notifications
    class Event
      attr_reader :name, :transaction_id
      attr_accessor :payload

      def initialize(name, start, ending, transaction_id, payload)
        @name = name
        @payload = payload.dup
        @time = start && (start.to_f * 1000.0)
        @end = ending && (ending.to_f * 1000.0)
        @transaction_id = transaction_id
      end

      def time = @time && (@time / 1000.0)
      def end = @end && (@end / 1000.0)
      def duration = @end - @time
    end

    class Notifier
      def initialize = @subscribers = []

      def subscribe(pattern, block)
        [pattern, block].tap { |subscriber| @subscribers << subscriber }
      end

      def unsubscribe(subscriber) = @subscribers.delete(subscriber)
      def listening?(name) = subscribers_of(name).any?

      def publish_event(event)
        subscribers_of(event.name).each do |block|
          next block.call(event) if block.parameters.size == 1 && block.parameters[0][0] == :opt

          block.call(event.name, event.time, event.end, event.transaction_id, event.payload)
        end
      end

      private

      def subscribers_of(name)
        @subscribers.select { |pattern, _| pattern.nil? || pattern === name }.map(&:last) # rubocop:disable Style/CaseEquality
      end
    end

    @notifier = Notifier.new

    class << self
      attr_reader :notifier

      def subscribe(pattern = nil, &block) = notifier.subscribe(pattern, block)
      def unsubscribe(subscriber) = notifier.unsubscribe(subscriber)
    end
  end
end

# So that `require` does nothing.
$LOADED_FEATURES.push("active_support.rb", "active_support/notifications.rb")

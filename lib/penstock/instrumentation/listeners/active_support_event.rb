# frozen_string_literal: true

module Penstock
  module Listeners
    # The event for subscribers with one parameter. ActiveSupport's own class reads its clock at start and finish;
    # this one is made after the event. Loaded only if needed, because the gem may be missing.
    # @api private
    class ActiveSupportEvent < ActiveSupport::Notifications::Event
      # @return [Time]
      attr_reader :time, :end

      def initialize(name, start, finish, id, payload)
        super
        @time = start
        @end = finish
      end

      # @return [Float] ms
      def duration = (@end - @time) * 1000.0

      # Since 7.0 there is a method for finished events.
      def publish(notifier)
        return notifier.publish_event(self) if notifier.respond_to?(:publish_event)

        notifier.listeners_for(name).each { |subscriber| publish_to(subscriber) }
      end

      private

      # Older ones pass these only to some subscribers. Their insides may be relied on, as they do not change any more.
      def publish_to(subscriber)
        kinds = ActiveSupport::Notifications::Fanout::Subscribers
        case subscriber
        when kinds::AllMessages then publish_to(block_of(subscriber))
        when kinds::EventObject then block_of(subscriber).call(self)
        else subscriber.publish(name, @time, @end, transaction_id, payload)
        end
      end

      def block_of(subscriber) = subscriber.instance_variable_get(:@delegate)
    end
  end
end

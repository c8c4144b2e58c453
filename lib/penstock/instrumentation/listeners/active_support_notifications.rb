# frozen_string_literal: true

module Penstock
  # Ready listeners for a {Monitor}.
  module Listeners
    # Publishes Penstock's events to ActiveSupport::Notifications, "message.produced_sync" as "message.produced_sync.penstock".
    #
    #     Penstock.monitor.subscribe(Penstock::Listeners::ActiveSupportNotifications.new) # every producer's
    #     ActiveSupport::Notifications.subscribe(/\.penstock\z/) { |event| puts "#{event.name} #{event.duration}" }
    #
    # Requires the gem activesupport, 6.1 or newer. Subscribers get a copy of the event's payload, and Times as start and end,
    # which are equal for an event without a `time`. They run on the threads of Penstock's listeners (docs/events.md), and
    # their errors are published like those of listeners. An event without a subscriber costs no payload.
    #
    # Any thread may use it, and it may be subscribed to any number of monitors.
    class ActiveSupportNotifications
      include AsJson

      # @param events [Array<String, Symbol>] the events; default: all, also "statistics.emitted", which turns
      #   librdkafka's statistics on
      # @raise [LoadError] when the gem activesupport is missing
      # @raise [EventUnknownError] when there is no such event
      # @overload initialize(events: Monitor::EVENTS)
      def initialize(*more, events: Monitor::EVENTS, **wrong)
        Keywords.check("new(events: [\"message.acknowledged\"])", %i[events], more, wrong)
        self.class.__send__(:load_gem)
        @id = SecureRandom.hex(10) # the id of the source, like that of ActiveSupport's instrumenters
        @names = events.to_h { |event| [event.to_s, "#{event}.penstock"] }.freeze
        @names.each_key { |event| define_singleton_method(Monitor.method_for(event)) { |happened| publish(happened) } }
      end

      # @return [String]
      def inspect = "#<#{self.class} events=#{@names.size}>"

      # Loads what it needs of activesupport.
      def self.load_gem
        require "active_support"
        require "active_support/notifications"
        require_relative "active_support_event"
      rescue LoadError => e
        raise unless e.path&.start_with?("active_support")

        raise LoadError, "#{self} requires the gem activesupport: add gem \"activesupport\" to the Gemfile"
      end
      private_class_method :load_gem

      private

      def publish(happened)
        name = @names.fetch(happened.id)
        notifier = ActiveSupport::Notifications.notifier
        return unless notifier.listening?(name)

        payload = happened.payload # copied by the Event
        finish = Time.now
        ActiveSupportEvent.new(name, finish - ((payload[:time] || 0) / 1000.0), finish, @id, payload).publish(notifier)
      end
    end
  end
end

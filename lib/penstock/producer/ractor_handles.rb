# frozen_string_literal: true

module Penstock
  class Producer
    # Makes the handles of {Producer#shareable}. Bars them while the producer needs Ruby code of the main Ractor for each
    # call.
    # @api private
    class RactorHandles
      # @raise [NotShareableError] when called in another Ractor
      def self.raise_in_other_ractors
        return if Ractor.current == Ractor.main

        raise ErrorFactory.build(NotShareableError, "a producer must be made in the main Ractor", "Share its handles.")
      end

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @refreshing = Mutex.new
      end

      # See {Producer#shareable}.
      # @return [ShareableProducer]
      def make
        @internals.check_usable
        SignalTrap.raise_if_here("making a shareable handle")
        reason = unshareable_for_good || unshareable_for_now
        raise ErrorFactory.build(NotShareableError, reason, producer_id: @internals.id) if reason

        variants = @internals.variants
        handle = variants.connection.share(@internals.id, variants.max_wait_timeout, @internals.publisher.serializer)
        refresh # a hook may have been added since the check
        @internals.check_usable
        handle
      end

      # Called when something that {#make} checks may have changed.
      def refresh
        connections = @internals.variants.connections
        return unless @internals.config && connections.any?(&:slot)

        # M:refresh_serialized
        @refreshing.synchronize do # else an earlier check could overwrite this result later
          reason = unshareable_for_now
          @internals.variants.connections.each { |connection| connection.slot&.barred = reason }
        end
      end

      # @return [String]
      def inspect = "#<#{self.class}>"

      private

      def unshareable_for_good
        config = @internals.config
        serializer = @internals.publisher.serializer
        if !Ractor.shareable?(serializer)
          "its serializer (#{serializer.name}) is not shareable; use a module with a method dump, " \
            "or an object that Ractor.make_shareable accepts"
        elsif @internals.transactional?
          "a transaction belongs to the fiber that began it, so a producer with a transactional.id is not shareable"
        elsif !config.deliver || config.client_class
          "it does not use librdkafka (config.deliver, config.client_class)"
        end
      end

      def unshareable_for_now
        if !@internals.publisher.hooks.all.empty?
          "its hooks (around) run in the main Ractor only"
        elsif middleware?
          "its middleware runs in the main Ractor only"
        elsif (event = Monitor::PER_CALL.find { |name| heard?(name) })
          "a listener of \"#{event}\" runs in the main Ractor only, so that it would miss calls of other Ractors"
        end
      end

      def middleware?
        middleware = @internals.middleware
        middleware.respond_to?(:empty?) ? !middleware.empty? : true
      end

      # A monitor of the user may have only `instrument`; then every event counts as subscribed.
      def heard?(event)
        monitor = @internals.monitor
        monitor.respond_to?(:listening?) ? monitor.listening?(event) : true
      end
    end
  end
end

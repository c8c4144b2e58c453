# frozen_string_literal: true

module Penstock
  class Producer
    # Makes the handles of {Producer#shareable}, and bars them while something needs Ruby code of the main Ractor for each call.
    # @api private
    class RactorHandles
      # @raise [NotShareableError]
      def self.raise_in_other_ractors
        return if Ractor.current == Ractor.main

        raise ErrorFactory.build(NotShareableError, "a producer is made in the main Ractor", "Others use its shareable handles.")
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
        SignalTrap.forbid("making a shareable handle")
        reason = unshareable_for_good || unshareable_for_now
        raise ErrorFactory.build(NotShareableError, reason, producer_id: @internals.id) if reason

        variants = @internals.variants
        handle = variants.connection.share(@internals.id, variants.max_wait_timeout, @internals.publisher.serializer)
        refresh # what has come meanwhile
        @internals.check_usable
        handle
      end

      # To be called when what {#make} looks at may have changed.
      def refresh
        connections = @internals.variants.connections
        return unless @internals.config && connections.any?(&:slot)

        @refreshing.synchronize do # else who has looked before us might say so after us
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
          "its serializer (#{serializer.name}) is not shareable; a module with a method dump is, " \
            "and what Ractor.make_shareable gives"
        elsif @internals.transactional?
          "a transaction belongs to the fiber that has begun it, so a producer with a transactional.id is not shareable"
        elsif !config.deliver || config.client_class
          "only librdkafka's own client is shareable, and this producer has another (config.deliver, config.client_class)"
        end
      end

      def unshareable_for_now
        if !@internals.publisher.hooks.all.empty?
          "its hooks (around) run in the main Ractor only"
        elsif middleware?
          "its middleware runs in the main Ractor only"
        elsif (event = Monitor::PER_CALL.find { |name| heard?(name) })
          "a listener of \"#{event}\" runs in the main Ractor only, and would not be told of other Ractors' calls"
        end
      end

      def middleware?
        middleware = @internals.middleware
        middleware.respond_to?(:empty?) ? !middleware.empty? : true
      end

      # A monitor of the user's own may have no more than `instrument`, and hears everything.
      def heard?(event)
        monitor = @internals.monitor
        monitor.respond_to?(:listening?) ? monitor.listening?(event) : true
      end
    end
  end
end

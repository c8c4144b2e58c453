# frozen_string_literal: true

module Penstock
  class Producer
    # The producer for other Ractors.
    module RactorSupport
      # A handle that any Ractor may use: see {ShareableProducer}. Connects, if it has to, so that the Ractors need not. Each call
      # makes a new one; all of them, and this producer, share its client. While one is in use the producer is kept.
      #
      #     shareable = producer.shareable
      #     Ractor.new(shareable) { |events| events.produce_sync(topic: "events", payload: "from a Ractor").offset }
      #
      # What needs Ruby code of the main Ractor for each call cannot go along: transactions, middleware, hooks
      # ({SendHooks#around}), listeners of "message.produced_sync" and the like, a client that sends nothing. What
      # of it comes later makes the handles' calls raise, until it is gone. A {Config#serializer} goes along if it is shareable.
      #
      # Also of a {Variant}, then with its settings. Only in the main Ractor; not in a signal trap. Blocks: like a first use.
      #
      # @return [ShareableProducer] frozen, and shareable
      # @raise [NotShareableError] naming what cannot go along
      # @raise [ProducerNotConfiguredError, ProducerClosedError, SignalTrapError]
      def shareable
        check_usable
        SignalTrap.refuse("making a shareable handle")
        reason = unshareable_for_good || unshareable_for_now
        raise NotShareableError, "#{reason} [producer #{id}]" if reason

        handle = current_connection.share(id, max_wait_timeout, @serializer)
        sharing_changed # what has come meanwhile
        check_usable
        handle
      end

      # To be called when what {#shareable} looks at may have changed.
      # @api private
      def sharing_changed
        return unless @config && @connections.each_value.any?(&:slot)

        @sharing.synchronize do # else who has looked before us might say so after us
          reason = unshareable_for_now
          @connections.each_value { |connection| connection.slot&.barred = reason }
        end
      end

      # In place of a client that a fatal error has ended, as far as the configuration allows it.
      # @api private
      def replace_failed(connection, client)
        fatal = client.fatal_error or return
        reload_after_fatal_error(connection, client, fatal)
      end

      private

      def refuse_other_ractors
        return if Ractor.current == Ractor.main

        raise NotShareableError, "a producer is made in the main Ractor, and others use what its shareable gives"
      end

      def unshareable_for_good
        if !Ractor.shareable?(@serializer)
          "its serializer (#{@serializer.name}) is not shareable; a module with a method dump is, " \
            "and what Ractor.make_shareable gives"
        elsif @transactional
          "a transaction belongs to the fiber that has begun it, so a producer with a transactional.id is not shareable"
        elsif !config.deliver || config.client_class
          "only librdkafka's own client is shareable, and this producer has another (config.deliver, config.client_class)"
        end
      end

      def unshareable_for_now
        if !@hooks.empty?
          "its hooks (around) run in the main Ractor only"
        elsif middleware?
          "its middleware runs in the main Ractor only"
        elsif (event = Monitor::PER_CALL.find { |name| heard?(name) })
          "a listener of \"#{event}\" runs in the main Ractor only, and would not be told of other Ractors' calls"
        end
      end

      def middleware? = @middleware.respond_to?(:empty?) ? !@middleware.empty? : true

      # A monitor of the user's own may have no more than `instrument`, and hears everything.
      def heard?(event) = @monitor.respond_to?(:listening?) ? @monitor.listening?(event) : true
    end
  end
end

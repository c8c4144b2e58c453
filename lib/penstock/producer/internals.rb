# frozen_string_literal: true

module Penstock
  class Producer
    # The parts of a producer, for each other and for the rest of the library; {Producer} is the public face. Each part has
    # its own state, and reaches the others through this object.
    # @api private
    class Internals
      # @return [Producer] to which the parts belong
      attr_reader :producer
      # @return [Config, nil] frozen; nil before {#setup}
      attr_reader :config
      # @return [Status]
      attr_reader :status
      # @return [Tags]
      attr_reader :tags
      # @return [Monitor]
      attr_reader :monitor
      # @return [Middleware]
      attr_reader :middleware
      # @return [Poller, nil] the poller that serves it; nil before {#setup}
      attr_reader :poller
      # @return [Native::EventSource, nil] nil before {#setup}
      attr_reader :events

      # @return [Notifier]
      attr_reader :notifier
      # @return [Variants]
      attr_reader :variants
      # @return [TransactionRunner]
      attr_reader :transactions
      # @return [ExactlyOnce]
      attr_reader :exactly_once
      # @return [Publisher]
      attr_reader :publisher
      # @return [Buffer]
      attr_reader :buffer
      # @return [Statistics]
      attr_reader :statistics
      # @return [Metrics]
      attr_reader :metrics
      # @return [RactorHandles]
      attr_reader :ractor_handles
      # @return [Credentials]
      attr_reader :credentials
      # @return [Closer]
      attr_reader :closer

      # @param producer [Producer]
      def initialize(producer)
        RactorHandles.raise_in_other_ractors # M:main_ractor_only
        @producer = producer
        @status = Status.new.extend(StatusChanges)
        @tags = Tags.new
        @monitor = Monitor.new.tap { |monitor| monitor.__send__(:owner=, self) }
        @middleware = Middleware.new
        @config = @poller = @events = nil
        @transactional = @idempotent = false
        make_parts
      end

      # Called when the producer has its parts.
      def announce
        ProducerRegistry.remember(self)
        @notifier.publish_globally("producer.created", nil)
      end

      # See {Producer#setup}.
      def setup(kafka)
        raise_configured unless status.initial?

        config = Config.new
        config.__send__(:begin_with, kafka)
        yield config if block_given?
        config.__send__(:finish)
        @monitor = config.monitor || @monitor
        @middleware = config.middleware || @middleware
        @config = config
        @events = Native::EventSource.new(@producer, config)
        @poller = made_poller(config.polling)
        probe = build_client(config.kafka) # raises for wrong settings
        @transactional = probe.transactional?
        @publisher.configure(config.serializer && Serializer.new(config.serializer, id))
        @idempotent = probe.idempotent?
        @events.refresh
        status.configured!
        @notifier.publish_globally("producer.configured", id, config:)
      end

      # @return [String, nil]
      def id = config&.id

      # @return [Boolean] whether it has a transactional.id
      def transactional? = @transactional

      # @return [Boolean] whether retries cannot store a message twice
      def idempotent? = @idempotent

      # @return [Boolean] whether it is closing or closed
      def closed? = status.closing? || status.closed?

      # @return [Boolean] whether its client has had a fatal error
      def fatal? = !@variants.own&.client&.fatal_error.nil?

      # For {ConnectionPool}: whether it can do nothing more.
      def broken? = closed? || fatal?

      # See {Producer#client}.
      def client
        check_usable
        @variants.connection.use
      end

      # See {Producer#with}.
      def with(max_wait_timeout, topic_config)
        check_usable
        SignalTrap.raise_if_here("making a variant")
        @variants.make(max_wait_timeout, topic_config)
      end

      # See {Producer#current_variant}.
      def current_variant
        check_usable unless config
        @variants.current
      end

      # @return [Float, nil] seconds
      def default_flush_timeout = config&.max_wait_timeout && (config.max_wait_timeout / 1000.0)

      # See {Producer#flush}.
      def flush(timeout)
        check_usable
        timeout = Seconds.of(timeout)
        deadline = timeout && (now + timeout)
        @variants.connections.flat_map(&:clients).each do |client|
          next if flushed?(client, deadline && [(deadline - now) * 1000, 0].max)

          raise client.timeout_error("no delivery result after #{timeout} s for #{Text.count(queue_size, "message")}", nil)
        end
        true
      end

      # See {Producer#purge}.
      def purge
        check_usable
        dropped = []
        @notifier.timed("buffer.purged", messages: dropped) { dropped.concat(@buffer.take) }
        @variants.clients.sum { |client| unless_given_up(0) { client.purge } }
      end

      # See {Producer#queue_size}.
      def queue_size = status.initial? ? 0 : @variants.connections.sum(&:queue_size)

      # See {Producer#partition_count}.
      def partition_count(topic)
        asked = client
        asked.partition_count(topic.is_a?(Symbol) ? topic.name : topic, 5_000, 30_000)
      rescue ProducerClosedError
        retry unless asked.nil? || @variants.connection.client.equal?(asked) # a disconnect ran in between
        raise
      end

      # @return [Native::ProducerClient] or its replacement, `config.client_class`
      def build_client(kafka)
        stand_in = config.deliver ? config.client_class : Clients::Dummy
        return stand_in.new(config, monitor).tap { |client| client.producer = @producer } if stand_in

        settings = { id:, kafka:, poller:, logger: config.logger, **Native::ProducerClient.settings_of(config) }
        Native::ProducerClient.new(settings).tap do |client|
          client.event_source = @events
          provider = config.oauth.token_provider_listener
          client.token_refresher = Native::TokenRefresher.new(@producer, :producer_id, config) if provider
        end
      end

      # @raise [ProducerNotConfiguredError] when it is not configured
      # @raise [ProducerClosedError] when it is closed
      def check_usable
        return if @status.active?
        if @status.initial?
          raise ErrorFactory.build(ProducerNotConfiguredError, "the producer is not configured yet", "Call setup.")
        end

        raise ErrorFactory.build(ProducerClosedError, "the producer is closed", producer_id: id)
      end

      # Called when a client is in use.
      def connected
        status.connected!
        @statistics.refresh
        IdleDisconnector.watch(self, config.idle_disconnect_timeout) if config.idle_disconnect_timeout.positive?
        @notifier.instrument("poller.producer_registered") { {} }
        @notifier.instrument("producer.connected") { { caller: @producer } }
      end

      # Called when a listener was added or removed.
      def listeners_changed
        return unless @events

        @events.refresh
        @ractor_handles.refresh
        @statistics.listeners_changed
      end

      # Called in a fork child. A producer with a transactional.id stays known as the parent's, so that its use raises.
      def leave_to_parent
        @variants.connections.each(&:leave_to_parent) unless @transactional
      end

      # @return [Integer] messages that its clients have accepted so far
      def accepted_count = @variants.clients.sum { |client| client.counters[:messages] }

      # @return [CounterSnapshot] its counters in this process
      def totals = @metrics.totals

      # @return [CounterSnapshot] the part of them that belongs to closed connections
      def past_totals = @metrics.past_totals

      # @return [Boolean] whether the next use must connect
      def without_client? = @variants.connections.none?(&:client)

      # @return [Boolean] whether it is closed and all messages have delivery results: then its counters do not change any
      #   more
      def over? = status.closed? && queue_size.zero?

      # @return [String] without settings, which may be secret or long
      def inspect = "#<#{self.class} #{id && Text.printable(id)}>"

      private

      def raise_configured
        if config.nil? && closed?
          raise ErrorFactory.build(ProducerClosedError, "the producer was closed before it was configured", producer_id: id)
        end

        raise ErrorFactory.build(ProducerAlreadyConfiguredError, "the producer is configured already", producer_id: id)
      end

      def make_parts
        @notifier = Notifier.new(self)
        @closer = Closer.new(self)
        @variants = Variants.new(self)
        @transactions = TransactionRunner.new(self)
        @exactly_once = ExactlyOnce.new(self, @transactions)
        @publisher = Publisher.new(self)
        @buffer = Buffer.new(self)
        @statistics = Statistics.new(self)
        @metrics = Metrics.new(self)
        @ractor_handles = RactorHandles.new(self)
        @credentials = Credentials.new(self)
      end

      # @return [Poller] the given one, or the one of the mode
      def made_poller(polling)
        return polling.poller || Poller.instance if polling.mode == :fd

        Poller.new
      end

      # A client that was closed during the flush delivers its messages; another close waits for that.
      def flushed?(client, timeout_ms)
        client.flush(timeout_ms)
      rescue ProducerClosedError
        check_usable
        client.close(timeout_ms)[3].zero?
      end

      def unless_given_up(otherwise)
        yield
      rescue ProducerClosedError
        check_usable
        otherwise
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end

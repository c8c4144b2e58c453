# frozen_string_literal: true

module Penstock
  class Consumer
    # The parts of a consumer, for each other and for the rest of the library; {Consumer} is the public face. Each part has its
    # own state, and reaches the others through this object.
    # @api private
    class Internals
      # @return [Consumer] to which the parts belong
      attr_reader :consumer
      # @return [ConsumerConfig] frozen
      attr_reader :config
      # @return [Native::ConsumerClient] or its replacement, an object of `config.client_class`
      attr_reader :client
      # @return [ConsumerStatus]
      attr_reader :status
      # @return [Tags]
      attr_reader :tags

      # @return [Notifier]
      attr_reader :notifier
      # @return [Subscription]
      attr_reader :subscription
      # @return [Offsets]
      attr_reader :offsets
      # @return [Positions]
      attr_reader :positions
      # @return [Commits]
      attr_reader :commits
      # @return [Rebalances]
      attr_reader :rebalances
      # @return [Closer]
      attr_reader :closer

      # @param consumer [Consumer]
      # @param config [ConsumerConfig] finished
      # @raise [ConfigurationInvalidError] when librdkafka rejects a setting
      def initialize(consumer, config)
        @consumer = consumer
        @config = config
        raise_in_other_ractors
        @transacted = []
        @rebalances = Rebalances.new(self)
        @client = build_client(Callbacks.new(self))
        Native::ConsumerClient.attach(consumer, @client)
        @tags = Tags.new
        @status = ConsumerStatus.new(@client)
        @notifier = Notifier.new(self)
        make_parts
        @stuck_watch = StuckWatch.new(self) if config.stuck_after
      end

      # Called when the consumer has its parts.
      def announce
        ConsumerRegistry.remember(self)
        listeners_changed
      end

      # @return [String]
      def id = config.id

      # @return [Boolean] whether {Consumer#close} was called, or the process that used the consumer was forked
      def closed? = %i[closing closed inherited].include?(client.state)

      # @return [Object, nil] the object of `config.client_class`
      def replacement = config.client_class && client

      # @return [ConsumerMetrics] frozen
      def metrics = ConsumerMetrics.new(*client.counts.values_at(*ConsumerMetrics.members)).freeze

      # @param method [String] which cannot do without a group
      # @raise [ConfigurationInvalidError]
      def need_group(method)
        config.group? or raise ErrorFactory.build(ConfigurationInvalidError, "#{method} requires config.kafka[\"group.id\"]")
      end

      # See {Consumer#keep_alive}.
      def keep_alive(limit, &block)
        client.wake # raises in a fork child
        raise_closed if closed?
        KeepAlive.new(-> { client.serve }, -> { client.wake }, Seconds.of(limit)).around(&block)
      end

      # See {Consumer#set_credentials}.
      def set_credentials(username, password)
        raise_closed if status.closing? || status.closed?

        CredentialChecks.check(config.kafka, username, password, consumer_id: id)
        client.set_credentials(username, password)
      end

      # Looks for stuck partitions, now that some may be assigned.
      def watch = @stuck_watch&.start

      # Called when the consumer closes.
      def stop_watching = @stuck_watch&.stop

      # What the transactions of producers keep for this consumer. Two threads may make one each, and both get the first.
      def transacted
        @transacted << yield if @transacted.empty?
        @transacted.first
      end

      # Called when a listener was added or removed.
      def listeners_changed = @notifier.listeners_changed

      # @return [String] without settings, which may be secret or long
      def inspect = "#<#{self.class} #{Text.printable(id)}>"

      private

      def raise_closed = raise ErrorFactory.build(ConsumerClosedError, "the consumer is closed", consumer_id: id)

      def make_parts
        @offsets = Offsets.new(self)
        @positions = Positions.new(self)
        @commits = Commits.new(self)
        @subscription = Subscription.new(self)
        @closer = Closer.new(self)
      end

      # librdkafka checks the settings also if its client is then replaced. That one is closed at once, so that it never connects.
      def build_client(callbacks)
        native = Native::ConsumerClient.new(settings(callbacks))
        return native unless config.client_class

        native.close(0.0)
        config.client_class.new(config, callbacks)
      end

      # See {Native::ConsumerClient#initialize}.
      def settings(callbacks)
        { id:, kafka: config.kafka, logger: config.logger, close_timeout: config.close_timeout, grouped: config.group?,
          rejection_timeout: config.rejection_timeout, hold_rebalances: config.hold_rebalances, mark: config.mark,
          listens: @rebalances.listens?, token_refresher:, callbacks:,
          deserializer: Deserializer.of(config.deserializer, config.key_deserializer, id) }
      end

      def token_refresher
        Native::TokenRefresher.new(consumer, :consumer_id, config) if config.oauth.token_provider_listener
      end

      # Logger and token provider run on threads of the main Ractor.
      def raise_in_other_ractors
        return if Ractor.current == Ractor.main || (config.logger.nil? && config.oauth.token_provider_listener.nil?)

        raise ErrorFactory.build(NotShareableError, "a consumer of another Ractor cannot have config.logger or config.oauth",
                                 consumer_id: id)
      end
    end
  end
end

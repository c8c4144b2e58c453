# frozen_string_literal: true

module Penstock
  module Native
    # Asks a client's token provider for tokens: before the first connection, which needs a token, and again before each token
    # expires. All clients share a {SharedThread}, so a provider that is slow delays no other client's tokens.
    # @api private
    class TokenRefresher
      # The type of "error.occurred" when a token provider raises.
      EVENT_TYPE = "callbacks.oauthbearer_token_refresh.error"

      # The task of one client: it is due when librdkafka wants a token.
      class Task
        def initialize(refresher, bearer)
          @refresher = refresher
          @bearer = bearer
          @wanted_at = nil
        end

        # @return [Float, nil] see {SharedThread}
        def due_at
          return @wanted_at if @wanted_at

          wanted = @bearer.wanted?
          return wanted.nil? ? nil : SharedThread::FOREVER unless wanted

          @wanted_at = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        rescue ForkedError
          nil # a signal trap has forked while the client opened
        end

        def call
          @refresher.refresh(@bearer)
        ensure
          @wanted_at = nil
        end
      end
      private_constant :Task

      OWN_FILES = File.expand_path("..", __dir__).freeze
      PATIENCE = 0.05 # seconds: a provider that has its token at hand is back, and clients hardly notice one that hangs
      private_constant :OWN_FILES, :PATIENCE

      @thread = SharedThread.new("penstock.tokens", PATIENCE)

      # @param address [Integer] of the client, unique in this process
      def self.attach(address, refresher, bearer) = @thread.add(address, Task.new(refresher, bearer))

      # @param owner [Producer, Consumer, Admin]
      # @param key [:producer_id, :consumer_id, :admin_id] the key of its id in events
      # @param config [Config, ConsumerConfig, AdminConfig] of the owner, which need not be complete yet
      def initialize(owner, key, config)
        @provider = config.oauth.token_provider_listener
        @logger = config.logger
        @about = { key => config.id }.freeze
        @owner = WeakList.new.add(owner) # the thread must not keep it alive
      end

      # Whatever the provider does, the client gets a token or a failure. Without either, librdkafka would never ask again.
      # @param bearer [Bearer]
      def refresh(bearer)
        bearer.expect_answer
        reason = "the token provider ended its thread"
        ask(bearer)
        reason = "the token provider gave no token"
      rescue Exception => e # rubocop:disable Lint/RescueException -- librdkafka waits for an answer in any case
        reason = failure_text(e)
        report(bearer, e, reason) unless closed?(e)
        raise if e.is_a?(SystemExit) || e.is_a?(SignalException)
      ensure
        # M:token_always_answered
        answer_anyway(bearer, reason)
      end

      private

      # Does nothing when the client is closed, and in a fork child to which the provider has returned.
      def answer_anyway(bearer, reason)
        bearer.oauthbearer_set_token_failure(reason) unless bearer.answered?
      rescue ForkedError
        nil
      end

      def ask(bearer)
        event = Event.new("oauthbearer.token_refresh", { **@about, bearer:, caller: owner })
        @provider.on_oauthbearer_token_refresh(event)
        publish("oauthbearer.token_refresh", event.payload)
      end

      # Whether the client is closed, so that no token is needed any more.
      def closed?(error)
        case error
        when ProducerClosedError, ConsumerClosedError, AdminClosedError
          [error.producer_id, error.consumer_id, error.admin_id].include?(@about.values.first)
        else false
        end
      end

      # Does nothing if the owner was collected.
      def publish(event, payload)
        owner&.monitor&.instrument(event, payload)
      end

      # @return [Producer, Consumer, Admin, nil] nil: it was collected
      def owner = @owner.to_a.first

      # The provider's own words may hold the token. They are in the event's `error`, and nowhere else.
      def failure_text(error)
        place = error.backtrace_locations&.find { |line| !line.path.start_with?(OWN_FILES) }
        where = " at #{place.path}:#{place.lineno}" if place
        return Text.printable("#{error.message}#{where}") if error.is_a?(Bearer.const_get(:NotAcceptedError))

        Text.printable("the token provider raised #{error.class}#{where}; its message is not shown here, as it may hold the " \
                       "token")
      rescue StandardError
        "the token provider raised an error"
      end

      def report(bearer, error, sentence)
        each_by_itself(
          -> { bearer.oauthbearer_set_token_failure(sentence) unless bearer.answered? },
          -> { @logger&.add(3, "[#{id}] #{sentence}", "penstock") },
          -> { publish("error.occurred", { type: EVENT_TYPE, error:, caller: owner, **@about }) }
        )
      end

      def id = Text.printable(@about.values.first)

      def each_by_itself(*steps)
        steps.each do |step|
          step.call
        rescue StandardError => e
          warn "penstock: [#{id}] #{e.class} when a failure of the token provider was reported"
        end
      end
    end
  end
end

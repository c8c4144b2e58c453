# frozen_string_literal: true

require "weakref"

module Penstock
  # The Ruby threads that ask token providers for tokens: one for each connected client and consumer with a provider, so
  # that a slow one delays nobody else. It asks before the first connection, which needs a token, and again before each token
  # expires.
  # @api private
  class TokenRefresher
    @lock = Mutex.new
    @threads = {} # by the address of a client
    @pid = nil

    class << self
      # @param address [Integer] of the client, unique in this process
      def attach(address, refresher, bearer)
        @lock.synchronize do
          @threads = {} unless @pid == Process.pid
          @pid = Process.pid
          @threads[address] ||= Threads.start("penstock.tokens") { run(address, refresher, bearer) }
        end
      end

      private

      def run(address, refresher, bearer)
        refresher.refresh(bearer) while bearer.await
        over = true
      ensure
        @lock.synchronize { @threads.delete(address) }
        go_on(address, refresher, bearer) unless over
      end

      # A provider may have ended the thread, and the next token will be wanted too.
      def go_on(...)
        attach(...)
      rescue ThreadError
        nil # the process is ending
      end
    end

    # @param owner [Producer, Consumer]
    # @param key [:producer_id, :consumer_id] what events call its id
    def initialize(owner, key)
      @provider = owner.config.oauth.token_provider_listener
      @logger = owner.config.logger
      @about = { key => owner.id }.freeze
      @owner = WeakRef.new(owner) # the thread must not keep it alive
    end

    # Whatever the provider does, the client learns of it.
    # @param bearer [Bearer]
    def refresh(bearer)
      bearer.answered?
      ask(bearer)
      over = true
    rescue ProducerClosedError, ConsumerClosedError
      over = true # nobody needs a token any more
    rescue StandardError, ScriptError, SystemStackError => e
      over = true
      report(bearer, e)
    ensure
      bearer.oauthbearer_set_token_failure("the token provider has ended its thread") unless over || bearer.answered?
    end

    private

    def ask(bearer)
      event = Event.new("oauthbearer.token_refresh", { **@about, bearer:, caller: @owner })
      @provider.on_oauthbearer_token_refresh(event)
      tell("oauthbearer.token_refresh", event.payload)
      bearer.oauthbearer_set_token_failure("the token provider has given no token") unless bearer.answered?
    end

    # Nobody, when the producer has gone; a consumer has no listeners.
    def tell(event, payload)
      @owner.monitor.instrument(event, payload) if @about.key?(:producer_id)
    rescue WeakRef::RefError
      nil
    end

    def report(bearer, error)
      bearer.oauthbearer_set_token_failure("the token provider raised #{error.class}: #{error.message}")
      @logger&.add(3, "[#{@about.values.first}] the token provider raised #{error.class}: #{error.message}", "penstock")
      tell("error.occurred", { type: "callbacks.oauthbearer_token_refresh.error", error:, caller: @owner, **@about })
    rescue StandardError => e
      warn "penstock: #{e.class}: #{e.message}, when told of #{error.class}: #{error.message}"
    end
  end
end

# frozen_string_literal: true

require "securerandom"

module Penstock
  # The settings of one admin client, set in the block of {Admin#initialize} and frozen after it.
  #
  # Durations are in milliseconds, like Kafka's own.
  class AdminConfig < ConfigSection
    include ConfigChecks

    # librdkafka settings that differ from its defaults unless they are given.
    KAFKA_DEFAULTS = {
      "client.id": "penstock", # brokers show it in logs, metrics and quotas
      log_level: 4, # warnings and worse
      "socket.nagle.disable": true # requests are not delayed
    }.freeze

    # ---- Identity and connection ----

    # Identifies the admin client in errors and logs. The default is "penstock-admin-" and 12 hex digits.
    # @return [String]
    setting :id, checked_values("String")
    # librdkafka's settings by name: Symbol or String to Integer, Float, String, true or false. "bootstrap.servers" is
    # required. Settings of producers and consumers have no effect.
    # @return [Hash]
    setting :kafka, checked_values("Hash"), default: {}
    # Receives librdkafka's log lines on the dispatcher thread. nil: they go to stderr, and no Ruby thread is needed.
    # @return [Logger, nil]
    setting :logger, object_with(:add, "Logger", "a Logger")
    # @return [OAuth]
    group :oauth, OAuth

    # ---- Events ----

    # Publishes "oauthbearer.token_refresh" and the errors of a token provider. nil: a new {Monitor}, which {Admin#monitor}
    # returns.
    # @return [Monitor, nil]
    setting :monitor, object_with(:instrument, "Monitor", "a Penstock::Monitor")

    # ---- Limits ----

    # How long a call without a `timeout:` waits for the cluster.
    # @return [Integer]
    setting :timeout, milliseconds(1..3_600_000), default: 30_000
    # How long the client may take to close when it is closed without a timeout, is garbage-collected, or is still open at the
    # end of the process. See {Admin#close} for what delays it.
    # @return [Integer]
    setting :close_timeout, milliseconds(0..), default: 10_000
    # How long brokers may reject the client (certificate, password, protocol) before calls raise the cause
    # ({BrokerRejectedError}).
    # @return [Integer, nil]
    setting :rejection_timeout, milliseconds(0.., none: "calls wait until their own timeouts"), default: 10_000
    # How long a call waits while no broker can be reached: all of them are down, or refuse connections. Then it raises
    # {AdminUnreachableError}. A broker that accepts connections and does not answer counts as reachable: the call waits for its
    # own timeout.
    # @return [Integer]
    setting :unreachable_timeout, milliseconds(100.., zero: "calls wait until their own timeouts"), default: 1_000

    def initialize
      super
      @id = "penstock-admin-#{SecureRandom.hex(6)}"
    end

    # @return [String] without the values of settings, which may be secret
    def inspect
      "#<#{self.class} id=#{id.inspect} kafka=#{kafka.respond_to?(:keys) ? kafka.keys.inspect : "?"}>"
    end

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(id:)

    private

    # @raise [ConfigurationInvalidError] when a setting is invalid; the message names the first
    # @return [self] frozen
    def finish
      check_settings
      check_id
      warn_of_short_times({ timeout:, close_timeout:, rejection_timeout: })
      check_kafka
      @kafka = checked(with_defaults(KAFKA_DEFAULTS), role: :admin, token_provider: oauth.token_provider_listener)
      freeze
    end
  end
end

# frozen_string_literal: true

require "securerandom"

module Penstock
  # The settings of one consumer, set in the block of {Consumer#initialize} and frozen after it.
  #
  # Durations are in milliseconds, like Kafka's own.
  class ConsumerConfig
    include ConfigChecks
    include AsJson

    # librdkafka settings that differ from its defaults unless they are given.
    KAFKA_DEFAULTS = {
      "client.id": "penstock",
      "log_level": 4, # warnings and worse
      "socket.nagle.disable": true
    }.freeze

    # librdkafka requires a group even for a consumer without one. Nothing is ever committed to this group.
    WITHOUT_GROUP = { "group.id": "penstock.none", "enable.auto.commit": false }.freeze
    private_constant :WITHOUT_GROUP

    # @return [String] identifies the consumer in errors and logs; default "penstock-consumer-" and 12 hex digits
    attr_accessor :id
    # librdkafka's settings by name: Symbol or String to Integer, Float, String, true or false.
    # "bootstrap.servers" is required, and "group.id" for everything but {Consumer#assign}.
    # @return [Hash]
    attr_accessor :kafka
    # Receives librdkafka's log lines, and errors while the consumer is polled, on the dispatcher thread. Default nil: they
    # go to stderr, and no Ruby thread is needed.
    # @return [Logger, nil]
    attr_accessor :logger
    # @return [Integer] ms to leave the group when a consumer is closed without a timeout, is garbage-collected, or is still
    #   open at the end of the process; default 10_000
    attr_accessor :close_timeout

    # How long brokers may reject the client (certificate, password, protocol) before calls fail. If no connection works for
    # this time, {Consumer#poll} and calls that wait for brokers raise the cause ({BrokerRejectedError}). They raise again
    # each second while the rejection lasts. The consumer keeps trying, and reads once brokers accept it.
    # @return [Integer, nil] ms; nil: calls wait, and polls return nothing; default 10_000
    attr_accessor :rejection_timeout
    # @return [OAuth]
    attr_reader :oauth

    def initialize
      @id = "penstock-consumer-#{SecureRandom.hex(6)}"
      @kafka = {}
      @group = nil # until the configuration is finished: it then has a group that librdkafka requires
      @logger = nil
      @close_timeout = 10_000
      @rejection_timeout = 10_000
      @oauth = OAuth.new
    end

    # @return [Boolean] whether a "group.id" was given
    def group? = @group.nil? ? group_given? : @group

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
      check_identity
      check_close_timeout
      check_rejection_timeout
      check_oauth
      check_kafka
      @group = group_given?
      check_commits unless @group
      @kafka = with_defaults(KAFKA_DEFAULTS)
      @kafka = @kafka.reject { |name, _| WITHOUT_GROUP.key?(name.to_s.to_sym) }.merge(WITHOUT_GROUP) unless @group
      @kafka = checked(@kafka, role: :consumer, token_provider: oauth.token_provider_listener)
      freeze
    end

    def group_given? = !given("group.id").to_s.empty?

    def given(name) = kafka.fetch(name.to_sym) { kafka[name] }

    def check_commits
      commits = given("enable.auto.commit")
      return if commits.nil? || Settings.read("enable.auto.commit", commits) != "true"

      raise ErrorFactory.build(ConfigurationInvalidError, "config.kafka: enable.auto.commit requires \"group.id\"")
    end
  end
end

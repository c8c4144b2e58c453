# frozen_string_literal: true

require "did_you_mean"
require "securerandom"

module Penstock
  # The settings of one producer, set in the block of {Producer#initialize} and frozen after it.
  #
  # Durations are in milliseconds, like Kafka's own.
  class Config
    # What a message Hash may hold.
    MESSAGE_KEYS = %i[topic payload key partition partition_key timestamp headers label].freeze

    # librdkafka settings that differ from its defaults unless they are given.
    KAFKA_DEFAULTS = {
      "client.id": "penstock",
      "log_level": 4, # warnings and worse
      "message.timeout.ms": 150_000, # below max_wait_timeout, so that a wait ends with a verdict
      "socket.nagle.disable": true,
      "transaction.timeout.ms": 165_000 # librdkafka wants it above message.timeout.ms
    }.freeze

    # @return [String] names the producer in errors and logs; default "penstock-" and 12 hex digits
    attr_accessor :id
    # librdkafka's settings by name: Symbol or String to Integer, Float, String, true or false.
    # "bootstrap.servers" is required.
    # @return [Hash]
    attr_accessor :kafka
    # Gets librdkafka's log lines and errors, on the dispatcher thread. Default nil: they go to stderr, and no
    # Ruby thread is needed.
    # @return [Logger, nil]
    attr_accessor :logger
    # @return [Integer] bytes of payload a message may have; default 1_000_012
    attr_accessor :max_payload_size
    # @return [Integer, nil] ms that a sync call or {DeliveryHandle#wait} waits for verdicts; nil: without limit;
    #   default 180_000
    attr_accessor :max_wait_timeout
    # @return [Integer] ms to go on delivering when a producer is closed without a timeout of its own, dropped, or
    #   still open at the end of the process; default 30_000
    attr_accessor :close_timeout
    # @return [Polling]
    attr_reader :polling

    # Settings of {Config#polling}.
    class Polling
      # @return [Symbol] :fd, one native poller for many producers
      attr_accessor :mode
      # @return [Poller, nil] who serves this producer; nil: {Poller.instance}
      attr_accessor :poller
      # @return [Fd]
      attr_reader :fd

      def initialize
        @mode = :fd
        @poller = nil
        @fd = Fd.new
      end

      # @api private
      def freeze
        fd.freeze
        super
      end
    end

    # Settings of {Polling#fd}.
    class Fd
      # @return [Integer] ms the poller serves one producer at a time while others wait; default 100, at least 1
      attr_accessor :max_time
      # @return [Integer] ms after which the poller looks at a producer that gave no sign; default 1000, at least 100
      attr_accessor :periodic_poll_interval

      def initialize
        @max_time = 100
        @periodic_poll_interval = 1_000
      end
    end

    def initialize
      @id = "penstock-#{SecureRandom.hex(6)}"
      @kafka = {}
      @logger = nil
      @max_payload_size = 1_000_012
      @max_wait_timeout = 180_000
      @close_timeout = 30_000
      @polling = Polling.new
    end

    # @raise [ConfigurationInvalidError] naming the first setting that is wrong
    # @return [self] frozen
    # @api private
    def finish
      check("id", id, "a String that is not empty") { id.is_a?(String) && !id.empty? && !id.include?("\0") }
      check("logger", logger, "a Logger or nil") { logger.nil? || logger.respond_to?(:add) }
      check_integer("max_payload_size", max_payload_size, 0)
      check_integer("max_wait_timeout", max_wait_timeout, 0) unless max_wait_timeout.nil?
      check_integer("close_timeout", close_timeout, 0)
      check_polling
      check_kafka
      @kafka = with_defaults.freeze
      polling.freeze
      freeze
    end

    # @return [String] without the values of settings: they may be secret
    def inspect
      "#<#{self.class} id=#{id.inspect} kafka=#{kafka.respond_to?(:keys) ? kafka.keys.inspect : "?"}>"
    end

    # @raise [ConfigurationInvalidError] saying that librdkafka has no such setting, and which one is nearest
    # @api private
    def self.refuse_setting(name)
      message = "config.kafka: librdkafka #{Penstock.librdkafka_version} has no setting #{name.inspect}"
      raise ConfigurationInvalidError, message + hint(name, Client.setting_names)
    end

    # @raise [ConfigurationInvalidError] when a number was given, and librdkafka made another one of it
    # @api private
    def self.check_effect(name, given, effective)
      return unless given.match?(/\A\s*[-+]?\d/) && effective.match?(/\A-?\d+(\.\d+)?\z/)
      return if Rational(given, exception: false) == Rational(effective)

      raise ConfigurationInvalidError, "config.kafka: #{name} cannot be #{given}; librdkafka would make #{effective} of it"
    end

    # @return [String] " (did you mean ...?)", or nothing
    # @api private
    def self.hint(name, known)
      return " (the keys of a message are Symbols)" if name.is_a?(String) && known.include?(name.to_sym)

      nearest = DidYouMean::SpellChecker.new(dictionary: known).correct(name.to_s).first
      nearest ? " (did you mean #{nearest.inspect}?)" : ""
    end

    private

    def check(name, value, expected)
      return if yield

      raise ConfigurationInvalidError, "config.#{name} must be #{expected}, not #{value.inspect}"
    end

    def check_integer(name, value, least)
      check(name, value, "an Integer of at least #{least}") { value.is_a?(Integer) && value.between?(least, 2**53) }
    end

    def check_polling
      check("polling.mode", polling.mode, ":fd") { polling.mode == :fd }
      check("polling.poller", polling.poller, "a Penstock::Poller or nil") do
        polling.poller.nil? || polling.poller.is_a?(Poller)
      end
      check_integer("polling.fd.max_time", polling.fd.max_time, 1)
      check_integer("polling.fd.periodic_poll_interval", polling.fd.periodic_poll_interval, 100)
    end

    def check_kafka
      check("kafka", kafka.class, "a Hash") { kafka.is_a?(Hash) }
    end

    def with_defaults
      KAFKA_DEFAULTS.reject { |name, _| kafka.key?(name.to_s) }.merge(kafka)
    end
  end
end

# frozen_string_literal: true

module Penstock
  # What the configurations of producers and consumers check in the same way.
  # @api private
  module ConfigChecks
    # Says what is no error, and yet not what somebody may think: to the logger, or on stderr.
    # @param sentence [String]
    def caution(sentence)
      logger ? logger.add(2, "[#{id}] #{sentence}", "penstock") : warn("penstock: [#{id}] #{sentence}")
    end

    private

    def check(name, value, expected)
      return if yield

      raise ConfigurationInvalidError, "config.#{name} must be #{expected}, not #{value.inspect}"
    end

    def check_integer(name, value, least, most = 2**53)
      check(name, value, "an Integer of at least #{least}") { value.is_a?(Integer) && value.between?(least, most) }
    end

    def check_one_of(name, value, choices)
      check(name, value, "one of #{choices.map(&:inspect).join(", ")}") { choices.include?(value) }
    end

    def check_identity
      check("id", id, "a String that is not empty") { id.is_a?(String) && !id.empty? && !id.include?("\0") }
      check("logger", logger, "a Logger or nil") { logger.nil? || logger.respond_to?(:add) }
    end

    def check_oauth
      listener = oauth.token_provider_listener
      check("oauth.token_provider_listener", listener.class, "an object with the method on_oauthbearer_token_refresh") do
        listener.nil? || listener.respond_to?(:on_oauthbearer_token_refresh)
      end
      oauth.freeze
    end

    def check_refusal_timeout
      check_integer("refusal_timeout", refusal_timeout, 0) unless refusal_timeout.nil?
    end

    def check_kafka
      check("kafka", kafka.class, "a Hash") { kafka.is_a?(Hash) }
    end

    # @param effective [Hash] config.kafka with our defaults
    # @return [Settings] frozen
    def checked(effective, **how)
      return effective.freeze unless effective.keys.all?(Symbol) # refused when it is used

      settings = Settings[effective.to_h { |name, value| [name, pem(name, value)] }].freeze
      given = settings.slice(*kafka.keys.map(&:to_sym))
      KafkaChecks.new(given, settings, **how).call.each { |sentence| caution("config.kafka: #{sentence}") }
      settings
    end

    # From an environment variable it may come in one line.
    def pem(name, value)
      name.end_with?(".pem") && value.is_a?(String) && !value.include?("\n") ? value.gsub("\\n", "\n") : value
    end

    # @return [Hash{Symbol=>Object}] config.kafka with what it does not say itself
    def with_defaults(defaults)
      names = kafka.keys
      return kafka unless names.all? { |name| name.is_a?(String) || name.is_a?(Symbol) } # refused when it is used
      return kafka if names.map(&:to_s).uniq! # this too

      defaults.merge(kafka.transform_keys(&:to_sym))
    end
  end
end

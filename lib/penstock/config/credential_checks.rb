# frozen_string_literal: true

module Penstock
  # Checks that `set_credentials` of producers and consumers share.
  # @api private
  module CredentialChecks
    module_function

    # @param kafka [Hash] librdkafka's settings
    # @param owner [Hash] `producer_id`, `consumer_id` or `admin_id`
    # @raise [ConfigurationInvalidError]
    def check(kafka, username, password, **owner)
      mechanism = kafka[:"sasl.mechanism"] || kafka[:"sasl.mechanisms"]
      unless /\A(PLAIN|SCRAM-SHA-\d+)\z/i.match?(mechanism.to_s)
        current = mechanism ? "another one" : "not set"
        raise_invalid_credentials("require sasl.mechanism PLAIN or SCRAM, which is #{current}", owner)
      end
      return if username.is_a?(String) && [username, password].all? { |text| Settings.text?(text) && !text.empty? }

      raise_invalid_credentials("must be non-empty UTF-8 Strings without a zero byte", owner)
    end

    def raise_invalid_credentials(problem, owner)
      raise ErrorFactory.build(ConfigurationInvalidError, "set_credentials: user name and password #{problem}", **owner)
    end
  end
end

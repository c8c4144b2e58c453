# frozen_string_literal: true

module Penstock
  # What `set_credentials` of a producer and of a consumer check in the same way.
  # @api private
  module CredentialChecks
    private

    # @param owner [Hash] `producer_id` or `consumer_id`
    def check_credentials(username, password, **owner)
      mechanism = config.kafka[:"sasl.mechanism"] || config.kafka[:"sasl.mechanisms"]
      unless /\A(PLAIN|SCRAM-SHA-\d+)\z/i.match?(mechanism.to_s)
        refuse_credentials("are for sasl.mechanism PLAIN and SCRAM, which is #{mechanism ? "another one" : "not set"}", owner)
      end
      return if username.is_a?(String) && [username, password].all? { |one| Settings.text?(one) && !one.empty? }

      refuse_credentials("must be Strings of UTF-8 that are not empty, without a zero byte", owner)
    end

    def refuse_credentials(problem, owner)
      raise ErrorFactory.build(ConfigurationInvalidError, "set_credentials: user name and password #{problem}", **owner)
    end
  end
end

# frozen_string_literal: true

module Penstock
  # What `set_credentials` of a producer and of a consumer check in the same way.
  # @api private
  module CredentialChecks
    private

    # @param whose [String] such as "producer penstock-1"
    def check_credentials(username, password, whose:)
      mechanism = config.kafka[:"sasl.mechanism"] || config.kafka[:"sasl.mechanisms"]
      unless /\A(PLAIN|SCRAM-SHA-\d+)\z/i.match?(mechanism.to_s)
        raise ConfigurationInvalidError, "set_credentials: user name and password are for sasl.mechanism PLAIN and SCRAM, " \
                                         "which is #{mechanism ? "another one" : "not set"} [#{whose}]"
      end
      return if username.is_a?(String) && [username, password].all? { |one| Settings.text?(one) && !one.empty? }

      raise ConfigurationInvalidError, "set_credentials: user name and password must be Strings of UTF-8 that are not empty, " \
                                       "without a zero byte [#{whose}]"
    end
  end
end

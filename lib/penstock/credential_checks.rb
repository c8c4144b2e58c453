# frozen_string_literal: true

module Penstock
  # What `set_credentials` of a producer and of a consumer check in the same way.
  # @api private
  module CredentialChecks
    private

    # @param whose [String] such as "producer penstock-1"
    def check_credentials(*credentials, whose:)
      mechanism = config.kafka[:"sasl.mechanism"] || config.kafka[:"sasl.mechanisms"]
      unless /\A(PLAIN|SCRAM-SHA-\d+)\z/i.match?(mechanism.to_s)
        raise ConfigurationInvalidError, "set_credentials: user name and password are for sasl.mechanism PLAIN and SCRAM, " \
                                         "not #{mechanism.inspect} [#{whose}]"
      end
      return if credentials.all? { |one| one.is_a?(String) && !one.empty? && !one.include?("\0") }

      raise ConfigurationInvalidError, "set_credentials: user name and password are Strings that are not empty [#{whose}]"
    end
  end
end

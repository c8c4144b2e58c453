# frozen_string_literal: true

module Penstock
  # Where the tokens of sasl.mechanism OAUTHBEARER come from.
  # @api private
  module KafkaTokenChecks
    OIDC = %i[sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.token.endpoint.url].freeze
    private_constant :OIDC

    private

    def check_token
      others = [("sasl.oauthbearer.method=oidc" if value(:"sasl.oauthbearer.method") == "oidc"),
                ("enable.sasl.oauthbearer.unsecure.jwt" if true?(:"enable.sasl.oauthbearer.unsecure.jwt"))].compact
      if @token_provider && others.any?
        raise_invalid "#{others.first} and config.oauth.token_provider_listener would both provide tokens: set only one of them"
      end
      check_oidc if value(:"sasl.oauthbearer.method") == "oidc"
      return if @token_provider || others.any?

      raise_invalid "sasl.mechanism OAUTHBEARER requires a source of tokens: " \
             "set config.oauth.token_provider_listener, or sasl.oauthbearer.method to \"oidc\""
    end

    # Other grants and sources of tokens need other settings.
    def check_oidc
      return if %i[sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type].any? { |name| @given.key?(name) }

      missing = OIDC.find { |name| @effective[name].nil? || blank?(@effective[name]) }
      raise_invalid "sasl.oauthbearer.method \"oidc\" requires #{missing}" if missing
    end
  end
end

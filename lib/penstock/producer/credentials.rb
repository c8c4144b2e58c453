# frozen_string_literal: true

module Penstock
  class Producer
    # Credentials that change while the producer runs.
    module Credentials
      include CredentialChecks

      # Logs in with these from now on: what is connected stays so, until the broker ends it (`connections.max.reauth.ms`), and
      # a producer that is refused tries again at once. Also for clients to come, after a {Closing#disconnect} or a reload.
      #
      # Blocks: no.
      # @param username [String]
      # @param password [String, Secret]
      # @return [nil]
      # @raise [ConfigurationInvalidError] the producer does not log in with a password
      def set_credentials(username, password)
        check_usable
        check_credentials(username, password, whose: "producer #{id}")
        @credentials = [username.dup.freeze, password.is_a?(Secret) ? password : Secret.new(password)].freeze
        @connections.each_value { |connection| connection.clients.each { |client| log_in(client) } }
        nil
      end

      # @api private
      def log_in(client)
        client.set_credentials(*@credentials) if @credentials && client.respond_to?(:set_credentials)
      end
    end
  end
end

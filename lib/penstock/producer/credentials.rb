# frozen_string_literal: true

module Penstock
  class Producer
    # Credentials that change while the producer runs. See {Producer#set_credentials}.
    # @api private
    class Credentials
      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @given = nil # user name and password
      end

      # @return [nil]
      def set(username, password)
        @internals.check_usable
        CredentialChecks.check(@internals.config.kafka, username, password, producer_id: @internals.id)
        @given = [username.dup.freeze, password.is_a?(Secret) ? password : Secret.new(password)].freeze
        @internals.variants.connections.each { |connection| connection.clients.each { |client| log_in(client) } }
        nil
      end

      # @param client [Native::ProducerClient] or what stands in for it
      def log_in(client)
        client.set_credentials(*@given) if @given && client.respond_to?(:set_credentials)
      end

      # @return [String]
      def inspect = "#<#{self.class}>"
    end
  end
end

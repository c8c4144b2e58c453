# frozen_string_literal: true

module Penstock
  class Admin # rubocop:disable Style/Documentation -- in admin.rb
    # The parts of an admin client; {Admin} is the public face. The methods that ask the cluster have no state of their own, so
    # they are modules of this object: `*_requests.rb`.
    # @api private
    class Internals
      include Requests
      include CoordinatorRequests
      include TopicRequests
      include ClusterRequests
      include ConfigRequests
      include AccessRequests
      include PlanRequests
      include GroupRequests
      include GroupOffsetRequests
      include OffsetRequests

      # @return [AdminConfig] frozen
      attr_reader :config
      # @return [Monitor]
      attr_reader :monitor

      # @param admin [Admin]
      # @param config [AdminConfig] finished
      # @raise [ConfigurationInvalidError] when librdkafka rejects a setting
      def initialize(admin, config)
        @admin = admin
        @config = config
        raise_in_other_ractors
        @monitor = config.monitor || Monitor.new
        @client = build_client(config.kafka.except(:"isolation.level"), consumer: false)
        @readers = Readers.new(config.kafka) { |settings| build_client(settings, consumer: true) }
      end

      # @return [String]
      def id = config.id

      # See {Admin#state}.
      def state = @client.state

      # See {Admin#closed?}.
      def closed? = %i[closing closed].include?(state)

      # See {Admin#set_credentials}.
      def set_credentials(username, password)
        raise ErrorFactory.build(AdminClosedError, "the admin client is closed", admin_id: id) if closed?

        CredentialChecks.check(config.kafka, username, password, admin_id: id)
        @readers.set_credentials(username, password)
        @client.set_credentials(username, password)
      end

      # See {Admin#close}.
      # @param limit [Deadline]
      def close(limit)
        @readers.begin_closing
        [@client, *@readers.to_a].map { |client| client.close(limit.left&.*(1000)) }.all?
      end

      # @return [String] without settings, which may be secret or long
      def inspect = "#<#{self.class} #{Text.printable(id)}>"

      private

      def build_client(kafka, consumer:)
        refresher = Native::TokenRefresher.new(@admin, :admin_id, config) if config.oauth.token_provider_listener
        Native::AdminClient.new({ id:, kafka:, poller: Poller.instance, logger: config.logger, consumer:,
                                  close_timeout: config.close_timeout, rejection_timeout: config.rejection_timeout,
                                  token_refresher: refresher,
                                  unreachable_timeout: config.unreachable_timeout })
      end

      def raise_in_other_ractors
        return if Ractor.current == Ractor.main

        raise ErrorFactory.build(NotShareableError, "an admin client belongs to the main Ractor", admin_id: id)
      end
    end
    private_constant :Internals, :Requests, :CoordinatorRequests, :TopicRequests, :ClusterRequests, :ConfigRequests,
                     :AccessRequests, :PlanRequests, :GroupRequests, :GroupOffsetRequests, :OffsetRequests
  end
end

# frozen_string_literal: true

module Penstock
  # How {Consumer#initialize} hands the configuration to the core.
  # @api private
  module ConsumerSetup
    private

    def configure_client
      refresher = Native::TokenRefresher.new(self, :consumer_id) if config.oauth.token_provider_listener
      call_configure(id, config.kafka, config.logger, config.close_timeout, config.group?, config.rejection_timeout, refresher,
                     config.mark, !config.rebalance_listener.nil? || config.__send__(:start_resolved?), config.hold_rebalances)
      call_decode_with(Deserializer.of(config.deserializer, config.key_deserializer, id))
    end

    # Logger and token provider run on threads of the main Ractor.
    def raise_in_other_ractors
      return if Ractor.current == Ractor.main || (config.logger.nil? && config.oauth.token_provider_listener.nil?)

      raise ErrorFactory.build(NotShareableError, "a consumer of another Ractor cannot have config.logger or config.oauth",
                               consumer_id: id)
    end
  end
  private_constant :ConsumerSetup
end

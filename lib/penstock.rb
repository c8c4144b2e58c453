# frozen_string_literal: true

require_relative "penstock/version"
require_relative "penstock/text"
require_relative "penstock/as_json"
require_relative "penstock/error"
require_relative "penstock/single"
require_relative "penstock/whole"
require_relative "penstock/refusals"
require_relative "penstock/signal_trap"
require_relative "penstock/threads"
require_relative "penstock/async_one"
require_relative "penstock/seconds"
require_relative "penstock/secret"
require_relative "penstock/settings"
require_relative "penstock/bootstrap_servers"
require_relative "penstock/kafka_checks"
require_relative "penstock/oauth"
require_relative "penstock/credential_checks"
require_relative "penstock/config"
require_relative "penstock/middleware"
require_relative "penstock/monitor"
require_relative "penstock/listeners"
require_relative "penstock/tags"
require_relative "penstock/delivery_report"
require_relative "penstock/delivery_handle"
require_relative "penstock/poller"
require_relative "penstock/dispatcher"
require_relative "penstock/event_source"
require_relative "penstock/event_dispatcher"
require_relative "penstock/client"
require_relative "penstock/bearer"
require_relative "penstock/token_refresher"
require_relative "penstock/close_report"
require_relative "penstock/clients/handle"
require_relative "penstock/clients/failure"
require_relative "penstock/clients/dummy"
require_relative "penstock/clients/buffered"
require_relative "penstock/producer"
require_relative "penstock/client_slot"
require_relative "penstock/shareable_producer"
require_relative "penstock/connection_pool"
require_relative "penstock/listeners/active_support_notifications"
require_relative "penstock/open_telemetry"
require_relative "penstock/message"
require_relative "penstock/consumer_config"
require_relative "penstock/consumer"
require_relative "penstock/embedded_cluster"
require_relative "penstock/errors"
require_relative "penstock/message_pack/errors"
require_relative "penstock/message_pack/extension_value"
require "penstock/penstock"
require_relative "penstock/setting_aliases"
require_relative "penstock/message_pack"

# Kafka for Ruby with a native core over librdkafka.
#
# Ruby says what is wanted. C moves bytes between Ruby objects and librdkafka. One poller turns
# librdkafka's events into resolved handles and full mailboxes.
#
# @see Penstock::Producer where to start
# @see Penstock::Consumer the other end
module Penstock
  # @!method self.librdkafka_version
  #   @return [String] the version of the librdkafka in use, such as "2.0.2"
  # @!method self.librdkafka_compiled_version
  #   @return [String] the version of the librdkafka that the extension was compiled against

  # @return [Boolean] whether this is the Ractor that the program began in
  # @api private
  def self.main_ractor? = Ractor.current == Ractor.main

  Poller.start_default
end

# frozen_string_literal: true

# Eager is what C's Init_penstock looks up, which is every class with methods in C (EmbeddedCluster and MessagePack among them),
# and what other Ractors may name: only the main Ractor can load a file. Everything else is an autoload.
require_relative "penstock/base"
require_relative "penstock/errors"
require_relative "penstock/config"
require_relative "penstock/instrumentation"
require_relative "penstock/native"
require_relative "penstock/producer"
require_relative "penstock/consumer"
require_relative "penstock/testing/embedded_cluster"
require_relative "penstock/message_pack/extension_value"
require "penstock/penstock"
require_relative "penstock/config/setting_aliases"
require_relative "penstock/native/default_poller"
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

  autoload :Clients, "penstock/testing/clients"
  autoload :ConnectionPool, "penstock/producer/connection_pool"
  autoload :Doctor, "penstock/doctor"
end

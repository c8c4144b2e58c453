# frozen_string_literal: true

# These files are loaded eagerly: those of classes with methods in C, which Init_penstock looks up (such as EmbeddedCluster), and
# of classes that other Ractors may use, as only the main Ractor can load a file. All others are autoloads; that of MessagePack,
# which can be loaded without the clients, is in errors.rb.
require_relative "penstock/base"
require_relative "penstock/errors"
require_relative "penstock/config"
require_relative "penstock/instrumentation"
require_relative "penstock/native"
require_relative "penstock/producer"
require_relative "penstock/consumer"
require_relative "penstock/admin"
require_relative "penstock/testing/embedded_cluster"
require "penstock/penstock"
require_relative "penstock/config/setting_aliases"
require_relative "penstock/native/default_poller"
require_relative "penstock/producer/registry"
require_relative "penstock/consumer/registry"

# Kafka for Ruby with a native core over librdkafka.
#
# Ruby says what is wanted. C moves bytes between Ruby objects and librdkafka. One poller turns
# librdkafka's events into resolved handles and full mailboxes.
#
# @see Penstock::Producer where to start
# @see Penstock::Consumer the other end
# @!method self.librdkafka_version
#   @return [String] the version of the librdkafka in use, such as "2.0.2"
# @!method self.librdkafka_compiled_version
#   @return [String] the version of the librdkafka that the extension was compiled against
module Penstock
  autoload :Clients, "penstock/testing/clients"
  autoload :ConnectionPool, "penstock/producer/connection_pool"
  autoload :Doctor, "penstock/doctor"
  autoload :Testing, "penstock/testing"
end

# frozen_string_literal: true

require "penstock"

# Stands in for WaterDrop. Its adapter's calls are the same as Penstock's, but names of settings are Symbols.
module WaterDrop
  class Producer < Penstock::Producer
    def initialize
      super
      raise "names of settings must be Symbols" unless config.kafka.keys.all?(Symbol)
    end
  end
end

module Rdkafka
  LIBRDKAFKA_VERSION = Penstock.librdkafka_version
end

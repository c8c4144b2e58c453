# frozen_string_literal: true

require "penstock"

# Stands in for WaterDrop: what its adapter uses is the same here, but its settings have Symbols for names.
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

# frozen_string_literal: true

require_relative "clients/handle"
require_relative "clients/failure"
require_relative "clients/dummy"
require_relative "clients/buffered"
require_relative "clients/in_memory_calls"
require_relative "clients/in_memory_group"
require_relative "clients/in_memory_consumer"

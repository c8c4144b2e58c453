# frozen_string_literal: true

module Penstock
  class App
    # A group of an application: its routes and its settings. Frozen.
    class GroupSettings
      # @return [String]
      attr_reader :id
      # @return [Array<Route>]
      attr_reader :routes
      # @return [Hash{Symbol => Object}] librdkafka's settings for its consumers; frozen
      attr_reader :kafka
      # @return [Integer] how many members of the group this process has
      attr_reader :connections

      # {Builder#group} makes it.
      def initialize(id, routes, connections, kafka)
        @id = id
        @routes = routes.freeze
        @connections = connections
        @kafka = kafka
        freeze
      end

      # @param topic [String]
      # @return [Route, nil] that of the retry topic, also if a pattern matches its name; otherwise the first one that matches
      def route_of(topic)
        routes.find { |route| route.retry? && route.matches?(topic) } || routes.find { |route| route.matches?(topic) }
      end

      # @return [String]
      def inspect = "#<#{self.class} #{id.inspect} #{Text.count(routes.size, "route")}>"
    end
  end
end

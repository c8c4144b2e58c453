# frozen_string_literal: true

require_relative "app_command"

module Penstock
  module CLI
    # `penstock routes`
    # @api private
    class Routes < AppCommand
      NAME = "routes"
      ABOUT = <<~TEXT
        Prints the groups of an application, their topics, and all options with their values. Connects
        nowhere.
      TEXT

      private

      def perform(app)
        app.groups.each { |group| print_group(group) }
        0
      end

      # Names of settings for librdkafka, without values: they may be secrets.
      def print_group(group)
        @out.puts "group #{group.id}, #{Text.count(group.connections, "connection")}"
        @out.puts "  kafka: #{group.kafka.keys.join(", ")}" unless group.kafka.empty?
        group.routes.each do |route|
          @out.puts "  #{route.topic.inspect} to #{route.processor_name}"
          route.options.each { |name, value| @out.puts "    #{line(route, name, value)}" }
        end
      end

      def line(route, name, value)
        text = value.is_a?(Hash) ? value.map { |key, one| "#{key}: #{one.inspect}" }.join(", ") : value.inspect
        "#{name}: #{text}#{" (default)" unless route.given?(name)}"
      end
    end
  end
end

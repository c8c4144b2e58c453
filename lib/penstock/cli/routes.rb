# frozen_string_literal: true

require_relative "app_command"

module Penstock
  module CLI
    # `penstock routes`
    # @api private
    class Routes < AppCommand
      NAME = "routes"
      ABOUT = <<~TEXT
        Prints the settings of an application, its groups, their topics, and all options with their values:
        which are defaults, and in which line of the program the others are. Connects nowhere.
      TEXT

      SETTINGS = %i[threads commit_interval drain_timeout shutdown_timeout stall_after memory probe logger monitor
                    producer producer_kafka].freeze
      private_constant :SETTINGS

      private

      def perform_with(app)
        print_settings(app.__send__(:all_settings))
        app.groups.each { |group| print_group(group) }
        0
      end

      # Of objects, such as a logger, only the class: others may hold secrets. Of settings for librdkafka, only the names.
      def print_settings(settings)
        @out.puts "application"
        SETTINGS.each do |name|
          origin = settings.origins[name]
          value = settings[name]
          text = case value
                 when nil, Numeric then value.inspect
                 when Struct then value.to_a.compact.join(" ") # the probe
                 when Hash then value.empty? ? "none" : value.keys.join(", ")
                 else value.class.name
                 end
          @out.puts "  #{name}: #{text} #{origin ? "(#{origin})" : "(default)"}"
        end
      end

      # Names of settings for librdkafka, without values: they may be secrets.
      def print_group(group)
        @out.puts "group #{group.id}, #{Text.count(group.connections, "connection")}"
        @out.puts "  kafka: #{group.kafka.keys.join(", ")}" unless group.kafka.empty?
        group.routes.each do |route|
          @out.puts "  #{route.topic.inspect} to #{route.processor_name}#{" (#{route.origin})" if route.origin}"
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

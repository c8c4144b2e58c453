# frozen_string_literal: true

module Penstock
  class App
    # Decodes messages as the routes of their topics say. Takes the place of the consumer's {Deserializer}.
    # @api private
    class Decoders
      # One of key and value.
      class Part
        def initialize(group, name)
          @group = group
          @name = name
          @parts = {}
        end

        # (see Deserializer::Part#read)
        def read(bytes, messages, index = nil)
          topic = index ? messages[index].topic : messages.topic
          part = @parts.fetch(topic) { @parts[topic] = part_of(topic) }
          part ? part.read(bytes, messages, index) : bytes
        end

        private

        def part_of(topic)
          options = @group.route_of(topic)&.options or return
          Deserializer.of(options[:value], options[:key])&.__send__(@name)
        end
      end

      # Routes that decode alike need no lookup by topic for each message.
      # @param group [GroupSettings]
      # @return [Decoders, Deserializer, nil] nil: nothing is decoded
      def self.of(group)
        kinds = group.routes.map { |route| route.options.values_at(:value, :key) }.uniq
        kinds.size == 1 ? Deserializer.of(*kinds.first) : new(group)
      end

      # @return [Part]
      attr_reader :value, :key

      # @param group [GroupSettings]
      def initialize(group)
        @value = Part.new(group, :value)
        @key = Part.new(group, :key)
        freeze
      end
    end
    private_constant :Decoders
  end
end

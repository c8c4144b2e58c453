# frozen_string_literal: true

module Penstock
  module Listeners
    class Statsd < MetricsListener
      # Which numbers of librdkafka's statistics are metrics.
      # @api private
      class Picks
        # A place in the statistics; "*" is every key there.
        Pick = Struct.new(:name, :type, :path)
        private_constant :Pick

        # What the things are called that a "*" stands for.
        TAGS = { "brokers" => :broker, "topics" => :topic, "partitions" => :partition }.freeze
        private_constant :TAGS

        # @param picks [Hash{String => Array}]
        # @raise [ArgumentError]
        def initialize(picks)
          unless picks.is_a?(Hash)
            raise ArgumentError, "rd_kafka must be a Hash of name => [:gauge or :count, keys...], not #{picks.inspect}"
          end

          @picks = picks.map { |name, (type, *path)| checked(name.to_s, type, path) }
        end

        def empty? = @picks.empty?

        # @param event [StatisticsEvent]
        # @yieldparam type [:gauge, :count]
        # @yieldparam name [String]
        # @yieldparam number [Numeric] of a count: how much more it is
        # @yieldparam tags [Hash]
        def each(event)
          statistics = event[:statistics]
          @picks.each do |pick|
            find(statistics, pick.path, [], {}) do |number, path, tags|
              # Without a value before, it has counted since the client began.
              number = event.delta(*path) || number if pick.type == :count
              yield pick.type, pick.name, number, tags
            end
          end
        end

        private

        def checked(name, type, path)
          return Pick.new(name, type, path) if %i[gauge count].include?(type) && path.any? && path.all?(String)

          raise ArgumentError, "rd_kafka has #{name} => [#{[type, *path].map(&:inspect).join(", ")}]; " \
                               "a metric is [:gauge or :count, and keys as librdkafka's statistics have them]"
        end

        def find(value, path, seen, tags, &block)
          key, *rest = path
          return known?(value) && yield(value, seen, tags) if key.nil?
          return unless value.is_a?(Hash)
          return find(value[key], rest, [*seen, key], tags, &block) unless key == "*"

          value.each do |name, part|
            next if bootstrap?(part)

            find(part, rest, [*seen, name], tags.merge(TAGS.fetch(seen.last, seen.last&.to_sym) => label(name, part)), &block)
          end
        end

        # librdkafka writes -1 for what it does not know.
        def known?(value) = value.is_a?(Numeric) && !value.negative?

        # Addresses of bootstrap.servers that librdkafka has not identified as brokers of the cluster, and its internal broker.
        def bootstrap?(part) = part.is_a?(Hash) && part["nodeid"].is_a?(Integer) && part["nodeid"].negative?

        def label(name, part) = part.is_a?(Hash) && part.key?("nodeid") ? part["nodeid"] : name
      end
    end
  end
end

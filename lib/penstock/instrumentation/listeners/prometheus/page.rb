# frozen_string_literal: true

module Penstock
  module Listeners
    class Prometheus < MetricsListener
      # Writes Prometheus' text format 0.0.4.
      # @api private
      class Page
        TYPE = "text/plain; version=0.0.4; charset=utf-8"
        IN_VALUES = { "\\" => "\\\\", "\"" => "\\\"", "\n" => "\\n" }.freeze
        IN_HELP = { "\\" => "\\\\", "\n" => "\\n" }.freeze
        private_constant :IN_VALUES, :IN_HELP

        def initialize(namespace, labels)
          @namespace = namespace
          @labels = labels
          @text = +""
        end

        # @param name [String]
        # @param type [:counter, :gauge, :histogram]
        # @param help [String]
        # @param series [Hash{Hash => Numeric, Hash}] values by labels; a histogram's are numbers by bucket, and `:sum`
        def family(name, type, help, series)
          return if series.empty?

          name = "#{@namespace}_#{name}"
          @text << "# HELP #{name} #{help.gsub(/[\\\n]/, IN_HELP)}\n# TYPE #{name} #{type}\n"
          series.each { |labels, value| type == :histogram ? histogram(name, labels, value) : sample(name, labels, value) }
        end

        def to_s = @text

        private

        def histogram(name, labels, numbers)
          seen = 0
          BUCKETS.each_with_index do |bucket, place|
            sample("#{name}_bucket", { **labels, "le" => number(bucket) }, seen += numbers[place])
          end
          seen += numbers[BUCKETS.size]
          sample("#{name}_bucket", { **labels, "le" => "+Inf" }, seen)
          sample("#{name}_sum", labels, numbers[:sum])
          sample("#{name}_count", labels, seen)
        end

        def sample(name, labels, value)
          all = @labels.merge(labels).map { |label, content| "#{label}=\"#{escaped(content)}\"" }
          @text << name << (all.empty? ? "" : "{#{all.join(",")}}") << " " << number(value) << "\n"
        end

        def escaped(content) = EventFormatter.text(content, 1_000).gsub(/[\\"\n]/, IN_VALUES)

        def number(value) = value.is_a?(Float) && value == value.to_i ? value.to_i.to_s : value.to_s
      end
      private_constant :Page
    end
  end
end

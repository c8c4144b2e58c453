# frozen_string_literal: true

require_relative "result"

module Bench
  # Compares ratios of results with those committed in bench/ratios.json:
  #
  #     { "kafka": { "producers/rate/25 producers/Penstock": 0.91 }, "embedded": { … } }
  #
  # Only ratios, because times depend on the machine. Only Penstock's ratios, because the other clients are not this project's.
  module Guard
    FILE = File.join(__dir__, "ratios.json")
    OURS = /\APenstock/

    # @!attribute compared [Array<String>] measured and committed
    # @!attribute drops [Hash{String => Array(Float, Float)}] the committed ratio, and the measured one, which is too low
    # @!attribute missing [Array<String>] committed, and not measured
    # @!attribute new [Array<String>] measured, and not committed
    Comparison = Struct.new(:compared, :drops, :missing, :new, :tolerance, keyword_init: true) do
      def ok? = compared.any? && drops.empty?

      def to_s
        [*drops.map { |name, (before, after)| "dropped: #{name}: #{before} before, #{after} now" },
         *named("not measured", missing), *named("not committed", new), summary].join("\n")
      end

      private

      # Names the cases of scenarios that were compared: such a case may have been renamed. Cases of other scenarios are only
      # counted.
      def named(what, names)
        scenario = ->(name) { name[%r{\A[^/]+}] }
        known = compared.map(&scenario).uniq
        some, others = names.partition { |name| known.include?(scenario[name]) }
        some.map { |name| "#{what}: #{name}" } + others.group_by(&scenario).map { |name, all| "#{what}: #{name} (#{all.size})" }
      end

      def summary
        return "No ratio is both measured and committed: nothing was compared." if compared.empty?

        "#{compared.size} ratios compared, #{drops.size} dropped by more than #{(tolerance * 100).round} %; " \
          "#{missing.size} not measured, #{new.size} not committed."
      end
    end

    class << self
      # @return [Hash] the committed ratios
      def read(file = FILE) = JSON.parse(File.read(file))

      # @param results [Array<Result>]
      # @return [Comparison]
      def compare(results, committed, tolerance: 0.15)
        before, after = [committed, ratios(results)].map { |ratios| by_name(ratios) }
        both = before.keys & after.keys
        drops = both.to_h { |name| [name, [before[name], after[name]]] }.select { |_, (was, is)| is < was * (1 - tolerance) }
        Comparison.new(compared: both, drops:, tolerance:, missing: before.keys - both, new: after.keys - both)
      end

      # Commits the measured ratios. Others stay unchanged, because a short run measures fewer.
      def update(results, file = FILE)
        committed = File.exist?(file) ? read(file) : {}
        all = committed.merge(ratios(results)) { |_kind, before, after| before.merge(after) }
        sorted = all.sort.to_h.transform_values { |ratios| ratios.sort.to_h }
        File.write(file, "#{JSON.pretty_generate(sorted)}\n")
      end

      # @return [Hash] the committed ratios
      def ratios(results)
        results.group_by(&:cluster_kind).transform_values { |of_kind| of_kind.map { |result| of_result(result) }.reduce(:merge) }
      end

      private

      def by_name(ratios) = ratios.flat_map { |kind, named| named.map { |name, ratio| ["#{kind}: #{name}", ratio] } }.to_h

      def of_result(result) = of_tables(result).merge(of_bars(result))

      # Only the first table: rarer figures, such as a 99th percentile, vary too much from run to run.
      def of_tables(result)
        result.tables.first(1).flat_map do |table|
          table.cases.product(table.sides.grep(OURS)).filter_map do |name, side|
            ratio = table.ratio(name, side)
            ["#{result.scenario}/#{table.name}/#{name}/#{side}", ratio] if ratio
          end
        end.to_h
      end

      # Bars that compare with another side than the reference, or with another case. The tables have the rest.
      def of_bars(result)
        others = result.bars.select { |bar| bar["ratio"] && (bar["of_case"] || bar["to"] != result.reference) }
        others.select { |bar| bar["side"].match?(OURS) }.to_h do |bar|
          to = [bar["to"], bar["of_case"]].compact.join(" with ")
          ["#{result.scenario}/#{bar["table"]}/#{bar["case"]}/#{bar["side"]} to #{to}", bar["ratio"]]
        end
      end
    end
  end
end

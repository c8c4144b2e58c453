# frozen_string_literal: true

require "fileutils"
require "json"
require_relative "chart"
require_relative "support"

module Bench
  # The result of a scenario: the document that bench/README.md describes, and what follows from its figures.
  class Result
    NAMES = %w[scenario title about cluster date environment settings rounds sides reference left_out differs bars].freeze
    NAMES.each { |name| define_method(name) { @document[name] } }

    attr_reader :tables

    class << self
      # @param tables [Array<Hash>] name:, unit:, better: and rows: { case => { side => [the value of each round] } }
      # @param bars [Array<Hash>] table:, case:, side:, least:, and to: another side, of_case: another case, or both
      # @param reference [String, nil] the side that the others' ratios refer to
      # @param left_out [Hash{String => String}] why a side is missing
      # @param differs [Hash{String => Array<String>}] texts about what a side does unlike the others
      def build(scenario:, title:, about:, cluster:, environment:, settings:, rounds:, sides:, tables:, reference: nil,
                left_out: {}, differs: {}, bars: [], date: Time.now.strftime("%F"))
        document = { scenario:, title:, about:, cluster:, date:, environment:, settings:, rounds:, sides:, reference:, left_out:,
                     differs: differs.reject { |_side, names| names.empty? },
                     tables: tables.map { |table| measured(table, sides.keys.map(&:to_s), reference.to_s) } }
        plain = JSON.parse(JSON.generate(document))
        new(plain.merge("bars" => JSON.parse(JSON.generate(bars)).map { |bar| Bar.judge(bar, new(plain)) }))
      end

      # @return [Result] the result that #write wrote
      def read(file) = new(JSON.parse(File.read(file)))

      # @param better [String] "more" or "less"
      # @return [Float, nil] how a figure compares with another: above 1 is better; nil instead of a division by 0
      def ratio(figure, other, better)
        better, worse = better == "more" ? [figure, other] : [other, figure]
        Bench.significant(better.to_f / worse, 3) unless worse.zero?
      end

      private

      def measured(table, sides, reference)
        better = table.fetch(:better).to_s
        raise ArgumentError, "better is more or less, not #{better}" unless %w[more less].include?(better)

        rows = table.fetch(:rows).map do |name, rounds_of_sides|
          figures = rounds_of_sides.reject { |_side, rounds| rounds.nil? || rounds.empty? }
                                   .to_h { |side, rounds| [side.to_s, figure(rounds, better)] }
          unknown = figures.keys - sides
          raise ArgumentError, "#{unknown.join(", ")}: none of the sides" if unknown.any?

          { case: name, figures:, ratios: ratios(figures, reference, better) }
        end
        { name: table.fetch(:name), unit: table.fetch(:unit), better:, rows: }
      end

      def figure(rounds, better)
        low, high = better == "more" ? rounds.minmax : rounds.minmax.reverse
        { median: Bench.median(rounds), low:, high: }.transform_values { |value| Bench.significant(value, 6) }
                                                     .merge(rounds: rounds.map { |value| Bench.significant(value, 6) })
      end

      def ratios(figures, reference, better)
        return {} unless figures.key?(reference)

        figures.except(reference)
               .transform_values { |figure| ratio(figure[:median], figures[reference][:median], better) }.compact
      end
    end

    def initialize(document)
      @document = document
      @tables = document.fetch("tables").map { |table| Table.new(table, sides.keys) }
    end

    def to_h = @document

    def table(name) = tables.find { |table| table.name == name } || raise(KeyError, "#{scenario} has no table #{name}")

    # @return [String] the name under which results of this kind of cluster are stored: "embedded", "kafka", or another cluster's
    #   name
    def cluster_kind = cluster[/embedded|kafka/i]&.downcase || cluster.gsub(/[^\w.-]+/, "-")

    # Writes the directory's scenario.json, and scenario.svg with a chart for each table.
    # @return [String] the path of the JSON file
    def write(directory)
      FileUtils.mkdir_p(directory)
      File.write(File.join(directory, "#{scenario}.svg"), Chart.new(self).svg)
      File.join(directory, "#{scenario}.json").tap { |file| File.write(file, "#{JSON.pretty_generate(to_h)}\n") }
    end

    # The figures of one unit.
    class Table
      attr_reader :name, :unit, :better

      # @return [Array<String>] the sides that have a figure here
      attr_reader :sides

      # @param sides [Array<String>] the sides of the result
      def initialize(table, sides)
        @name, @unit, @better = table.values_at("name", "unit", "better")
        @rows = table.fetch("rows").to_h { |row| [row.fetch("case"), row] }
        @sides = sides & @rows.values.flat_map { |row| row["figures"].keys }
      end

      def cases = @rows.keys

      # @return [Hash, nil] its median, low, high and rounds
      def figure(name, side) = @rows.dig(name, "figures", side)

      def ratio(name, side) = @rows.dig(name, "ratios", side)

      def ratios? = @rows.values.any? { |row| row["ratios"].any? }

      # @return [Array<Hash>]
      def figures = @rows.values.flat_map { |row| row["figures"].values }
    end

    # The ratio that a side has to reach, to another side's figure or to its own in another case.
    module Bar
      module_function

      # @return [Hash] the bar with its ratio, and whether it is met; both are nil if a figure is missing
      def judge(bar, result)
        table = result.table(bar.fetch("table"))
        bar = { "to" => bar.fetch("side") }.merge(bar)
        figures = [table.figure(bar.fetch("case"), bar["side"]), table.figure(bar.fetch("of_case", bar["case"]), bar["to"])]
        return bar.merge("ratio" => nil, "met" => nil) unless figures.all?

        ratio = Result.ratio(*figures.map { |figure| figure["median"] }, table.better)
        # Without a ratio there was a division by 0, and no figure is better than 0.
        bar.merge("ratio" => ratio, "met" => ratio.nil? || ratio >= bar.fetch("least"))
      end
    end
  end
end

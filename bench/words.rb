# frozen_string_literal: true

require_relative "support"

module Bench
  # How a result's figures and circumstances are written, the same on the screen, in charts and on the page.
  module Words
    module_function

    # @return [String] 612345 as "612,000": three significant digits, but all digits of a whole number below 10,000
    def number(value) = value == value.round && value.abs < 10_000 ? grouped(value.round) : three_digits(value)

    # @return [String] "0.915", "1.00"
    def ratio(value) = value.zero? ? "0" : three_digits(value)

    def three_digits(value)
      return grouped(value.round) if value.abs.between?(100, 10_000)

      value = Bench.significant(value.to_f, 3)
      value.abs >= 100 ? grouped(value.to_i) : format("%.#{2 - Math.log10(value.abs).floor}f", value)
    end

    def grouped(integer) = integer.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",")

    # @return [Array(String, String)] a side's median, and the worst and the best round
    def figure(table, name, side)
      scale = Scale.new(table)
      median, low, high = table.figure(name, side)&.values_at("median", "low", "high")&.map { |value| scale.text(value) }
      median ? [median, "#{low}..#{high}"] : ["–", ""]
    end

    # @return [String] the number without trailing zeros: "0.5", "1,000"
    def tick(value) = value == value.round ? grouped(value.round) : format("%.12f", value).sub(/0+\z/, "")

    # @return [String] lines of at most `width` characters
    def wrap(text, width) = text.gsub(/(.{1,#{width}})(?:\s+|\z)|(\S{#{width}})/, "\\1\\2\n").chomp

    # @return [String] "messages/s, more is better"
    def unit(table) = "#{Scale.new(table).unit}, #{table.better} is better"

    def bar(bar)
      other = bar["to"] == bar["side"] ? "itself" : bar["to"]
      other += " with #{bar["of_case"]}" if bar["of_case"]
      "#{bar["table"]}, #{bar["case"]}: #{bar["side"]} to #{other}"
    end

    # @return [String] "met", "NOT MET" or "not measured"
    def state(bar) = { true => "met", false => "NOT MET", nil => "not measured" }.fetch(bar["met"])

    def bar_ratio(bar) = bar["ratio"] ? ratio(bar["ratio"]) : "–"

    def settings(result)
      return "the defaults of each side" if result.settings.empty?

      all = result.settings.map { |name, value| "#{name}=#{value}" }.join(", ")
      return all if result.sides.one?

      but = (result.differs || {}).map { |side, texts| "#{side}: #{texts.join(", ")}" }.join("; ")
      "#{all} (equal on all sides#{", but #{but}" unless but.empty?})"
    end

    def environment(environment)
      environment.map do |name, value|
        case name
        when "cores" then "#{value} #{value == 1 ? "core" : "cores"}"
        when "cpu" then value
        else "#{name == "ruby" ? "Ruby" : name} #{value}"
        end
      end.join(", ")
    end

    def where(result) = "#{result.cluster}; #{environment(result.environment)}; #{result.date}"

    def sides(result) = result.sides.map { |side, version| "#{side}: #{version}" }

    def left_out(result) = (result.left_out || {}).map { |side, why| "#{side}: #{why}" }

    # @return [String] how the figures were measured
    def figures(result)
      rounds = result.rounds == 1 ? "One round" : "Medians of #{result.rounds} rounds"
      rounds += ", taken in turn" if result.sides.size > 1
      return "#{rounds}." unless result.tables.any?(&:ratios?)

      "#{rounds}. A ratio is to #{result.reference}: above 1 is better, whichever way the unit goes."
    end
  end

  # The unit in which a table's figures are easiest to read: 0.0000123 s is 12.3 µs.
  class Scale
    FAMILIES = { 1000 => %w[ns µs ms s], 1024 => %w[bytes KiB MiB GiB] }.freeze

    attr_reader :unit

    def initialize(table)
      @factor = 1
      @unit = table.unit == "us" ? "µs" : table.unit
      step, units = FAMILIES.find { |_step, names| names.include?(@unit) }
      medians = table.figures.map { |figure| figure["median"] }.select(&:positive?)
      choose(step, units, medians) if step && medians.any?
    end

    def of(value) = value * @factor

    # @return [String] the number, without the unit
    def text(value) = Words.number(of(value))

    private

    # The greatest unit in which most of the figures are above 1.
    def choose(step, units, medians)
      here = units.index(@unit)
      place = (here + Math.log(Bench.median(medians), step).floor).clamp(0, units.size - 1)
      @factor = step.to_f**(here - place) unless place == here
      @unit = units[place]
    end
  end
end

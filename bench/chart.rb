# frozen_string_literal: true

require_relative "axis"
require_relative "drawing"
require_relative "words"

module Bench
  # A result as a chart: for each table, horizontal bars in a group for each case. Each bar is labelled with its side's name and
  # its figures, so that the chart can be read without its colours.
  class Chart
    WIDTH = 860
    NARROW = 360 # for a phone
    EDGE = 16
    SIZE = 13
    ROW = 20
    BAR = 12
    REFERENCE = "#7a7f87"
    # Visible on white and on black, with a whisker in the text's colour across them.
    OURS = %w[#1f78c8 #2793a8 #6c6fd0].freeze
    OTHERS = %w[#d9601a #1e9467 #a565b5 #a8801f #c8456b].freeze

    # @param tables [Array<Result::Table>]
    # @param alone [Boolean] whether it is a separate file, which needs everything that a page prints beside its charts
    def initialize(result, tables: result.tables, width: WIDTH, alone: true)
      @result = result
      @tables = tables
      @width = width
      @alone = alone
      @colours = colours
    end

    def svg
      @drawing = Drawing.new
      @y = @alone ? EDGE : 0
      heading if @alone
      @tables.each { |table| panel(table) }
      notes if @alone
      title = [@result.title, *(@tables.first.name if @tables.one?)].join(": ")
      @drawing.svg(@width, @y + (@alone ? EDGE : 4), title:, about: description, style: @alone)
    end

    private

    def colours
      sides = @result.sides.keys - [@result.reference]
      ours, others = sides.partition { |side| side.start_with?("Penstock") }
      { @result.reference => REFERENCE }.merge(ours.zip(OURS.cycle).to_h, others.zip(OTHERS.cycle).to_h)
    end

    def heading
      paragraph(@result.title, size: 18, bold: true)
      paragraph(@result.about, kind: :muted)
    end

    def panel(table)
      panel_heading(table) if @alone
      return paragraph("no figures", kind: :muted) if table.sides.empty?

      place = Place.new(table, @width)
      @axis = place.axis
      table.cases.each { |name| group(table, name, place) }
      axis
    end

    def panel_heading(table)
      @y += 12
      paragraph("#{table.name}: #{Words.unit(table)}", bold: true, size: 14)
    end

    # The bars of a case, below its name.
    def group(table, name, place)
      @y += 6
      paragraph(name, bold: true) unless table.sides.one?
      below = @y + table.sides.sum { |side| place.height(name, side) }
      @axis.ticks.map(&:last).each { |x| @drawing.line(x, @y, x, below, :grid) }
      table.sides.each { |side| row(table, name, side, place) }
    end

    def row(table, name, side, place)
      lines = place.label(name, side)
      if place.over?
        lines.each { |line| paragraph(line) }
      else
        @drawing.text(@axis.ends.first - 8, @y + 14, lines.first, size: SIZE, anchor: "end")
      end
      figures(table, name, side)
      @y += ROW
    end

    def figures(table, name, side)
      start = @axis.ends.first
      figure = table.figure(name, side)
      return @drawing.text(start + 6, @y + 14, "no figure", size: SIZE, kind: :muted) unless figure

      median, *spread = figure.values_at("median", "low", "high").map { |value| @axis.at(value) }
      @drawing.bar(start, @y + 4, median - start, BAR, @colours[side], "#{name}, #{side}: #{Chart.figure(table, name, side)}")
      whisker(*spread.minmax)
      @drawing.text([median, *spread].max + 6, @y + 14, Chart.value(table, name, side), size: SIZE)
    end

    def whisker(from, to)
      middle = @y + 4 + (BAR / 2)
      @drawing.line(from, middle, to, middle, :text)
      [from, to].each { |x| @drawing.line(x, middle - 3, x, middle + 3, :text) }
    end

    def axis
      @axis.ticks.each do |text, x|
        inside = x - (Drawing.width_of(text, Axis::TICK) / 2) > 2
        @drawing.text(x, @y + 14, text, size: Axis::TICK, kind: :muted, anchor: inside ? "middle" : "start")
      end
      @y += 20
      paragraph("logarithmic: each mark is #{Words.grouped(@axis.step)} times the last", kind: :muted, size: 12) if @axis.log?
    end

    # The legend of the colours, and how the figures were measured.
    def notes
      @y += 16
      @result.sides.each do |side, version|
        @drawing.bar(EDGE, @y + 4, BAR, BAR, @colours[side])
        paragraph("#{side}: #{version}", from: EDGE + BAR + 6)
      end
      @y += 6
      [Chart.reading(@result), "Settings: #{Words.settings(@result)}.", Words.where(@result),
       *Words.left_out(@result).map { |side| "Left out: #{side}" }].each { |note| paragraph(note, kind: :muted, size: 12) }
    end

    def paragraph(text, from: EDGE, size: SIZE, bold: false, kind: :text)
      Drawing.wrap(text, @width - EDGE - from, size, bold:).each do |line|
        @drawing.text(from, @y + size, line, size:, bold:, kind:)
        @y += (size * 1.4).round
      end
    end

    def description
      @tables.map do |table|
        figures = table.cases.map do |name|
          sides = table.sides.select { |side| table.figure(name, side) }
          "#{name}: #{sides.map { |side| "#{side} #{Chart.value(table, name, side)}" }.join(", ")}"
        end
        "#{table.name} (#{Words.unit(table)}). #{figures.join("; ")}."
      end.join(" ")
    end

    class << self
      # @return [String] the median, and the ratio if it has one
      def value(table, name, side)
        ratio = table.ratio(name, side)
        "#{Scale.new(table).text(table.figure(name, side)["median"])}#{" (#{Words.ratio(ratio)})" if ratio}"
      end

      # The tooltip of a bar.
      def figure(table, name, side)
        median, spread = Words.figure(table, name, side)
        "#{median} #{Scale.new(table).unit}, worst..best round #{spread}"
      end

      # How to read the chart.
      def reading(result)
        ratios = " Ratios are in brackets." if result.tables.any?(&:ratios?)
        "#{Words.figures(result)} A thin line goes from the worst to the best round.#{ratios}"
      end
    end

    # The layout of a panel. Names are beside the bars, or above them if they would leave too little space for the bars.
    class Place
      def initialize(table, width)
        @table = table
        @width = width
      end

      def axis
        start = over? ? EDGE : EDGE + names_width + 8
        values = @table.cases.product(@table.sides).select { |name, side| @table.figure(name, side) }
                       .map { |name, side| Drawing.width_of(Chart.value(@table, name, side), SIZE) }.max
        Axis.new(@table, [start, @width - EDGE - 6 - values])
      end

      def over? = names_width > @width * 0.3

      # @return [Array<String>] lines
      def label(name, side)
        text = @table.sides.one? ? name : side
        over? ? Drawing.wrap(text, @width - (2 * EDGE), SIZE) : [text]
      end

      def height(name, side) = ROW + (over? ? label(name, side).size * (SIZE * 1.4).round : 0)

      private

      def names_width
        (@table.sides.one? ? @table.cases : @table.sides).map { |name| Drawing.width_of(name, SIZE) }.max
      end
    end
  end
end

# frozen_string_literal: true

require_relative "words"

module Bench
  # A result as a text for a terminal.
  class Table
    WIDTH = 150
    LABEL = 40 # longer names of cases take several lines
    COLOURS = { true => 32, false => 31, nil => 33 }.freeze

    def self.show(result, output = $stdout) = output.puts(new(result, colour: output.tty?).text)

    def initialize(result, colour: false)
      @result = result
      @colour = colour
    end

    def text
      [heading, *@result.tables.map { |table| block(table) }, bars, circumstances].compact.join("\n\n")
    end

    private

    def heading
      Words.wrap("#{@result.title} (#{@result.scenario}; #{@result.cluster}, #{@result.date})\n#{@result.about}", WIDTH)
    end

    def block(table)
      return "#{table.name}: no figures" if table.sides.empty?

      lines = across(table)
      # One case, or more sides than fit beside each other: one line for each side instead.
      lines = down(table) if table.cases.one? || lines.any? { |line| line.size > WIDTH }
      ["#{table.name}: #{Words.unit(table)}", *lines].map(&:rstrip).join("\n")
    end

    # A row for each case, with columns for each side.
    def across(table)
      groups = table.sides.map do |side|
        ratios = table.ratios? && side != @result.reference
        lines = grid([titles(ratios), *table.cases.map { |name| cells(table, name, side, ratios) }])
        width = [side, *lines].map(&:size).max
        [side.rjust(width), *lines.map { |line| line.rjust(width) }]
      end
      heads, titles, *rows = groups.transpose.map { |cells| cells.join("    ") }
      labelled([["", heads], ["", titles], *table.cases.zip(rows)])
    end

    # A row for each case and side.
    def down(table)
      names = table.cases.product(table.sides).select { |name, side| table.figure(name, side) }
      rows = grid([titles(table.ratios?), *names.map { |name, side| cells(table, name, side, table.ratios?) }])
      width = table.sides.map(&:size).max
      sides = ["", *names.map(&:last)].map { |side| side.ljust(width) }
      # Each case is named once.
      cases = ["", *names.map(&:first)].each_cons(2).map { |above, name| name == above ? "" : name }
      labelled(["", *cases].zip(sides.zip(rows).map { |pair| pair.join("    ") }))
    end

    # @param rows [Array<Array(String, String)>] the left column, and the rest of the line
    def labelled(rows)
      labels = rows.map { |label, _| Words.wrap(label, LABEL).split("\n") }
      width = labels.flatten.map(&:size).max
      rows.zip(labels).flat_map do |(_, rest), (*above, last)|
        [*above, "#{last.to_s.ljust(width)}    #{rest}"]
      end
    end

    # @return [Array<String>] lines with right-aligned columns
    def grid(rows)
      widths = rows.transpose.map { |column| column.map(&:size).max }
      rows.map { |cells| cells.zip(widths).map { |cell, width| cell.rjust(width) }.join("  ") }
    end

    def titles(ratios) = ["median", "worst..best", *("to #{@result.reference}" if ratios)]

    # @param ratios [Boolean] whether there is a column for the ratio
    def cells(table, name, side, ratios)
      ratio = table.ratio(name, side)
      [*Words.figure(table, name, side), *((ratio ? Words.ratio(ratio) : "") if ratios)]
    end

    def bars
      return if @result.bars.empty?

      rows = grid([["", "ratio", "bar"], *@result.bars.map { |bar| ["", Words.bar_ratio(bar), Words.ratio(bar["least"])] }])
      lines = rows.zip([nil, *@result.bars]).map do |row, bar|
        state = bar ? Words.state(bar).ljust(12) : "Bars".ljust(12)
        state = "\e[#{COLOURS.fetch(bar["met"])}m#{state}\e[0m" if bar && @colour
        "#{state}#{row}   #{Words.bar(bar) if bar}".rstrip
      end
      lines.join("\n")
    end

    def circumstances
      lines = [Words.figures(@result), "Settings: #{Words.settings(@result)}.", Words.environment(@result.environment),
               *Words.sides(@result), *Words.left_out(@result).map { |side| "Left out: #{side}" }]
      lines.map { |line| Words.wrap(line, WIDTH) }.join("\n")
    end
  end
end

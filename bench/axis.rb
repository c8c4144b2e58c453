# frozen_string_literal: true

require_relative "drawing"
require_relative "words"

module Bench
  # Maps the figures of a table to places between two ends. The axis is logarithmic if a bar would be invisible otherwise.
  class Axis
    FAR = 30 # times the smallest median: above that, the smallest bar is invisible
    TICK = 12 # the size of the texts at the ticks
    MOST = 8 # ticks besides the first; more would overlap

    # @return [Integer] the factor between two marks of a logarithmic axis
    attr_reader :step
    attr_reader :ends

    # @param table [Result::Table]
    # @param ends [Array(Numeric, Numeric)] where the axis starts and ends
    def initialize(table, ends)
      @table = table
      @scale = Scale.new(table)
      @ends = ends
      log? ? logarithmic : linear
    end

    def log? = medians.any? && greatest > FAR * medians.min

    # @return [Array<Array(String, Float)>] the text and place of each tick
    def ticks = @ticks.map { |value| [Words.tick(value), place(value)] }

    # @param value [Numeric] in the unit of the table
    # @return [Float] where its bar ends. A value below the axis, such as a zero on a logarithmic one, is at its start
    def at(value) = place(@scale.of(value))

    private

    def place(value)
      part = log? ? share_of_decades(value) : value / @to.to_f
      @ends.first + (part.clamp(0, 1) * (@ends.last - @ends.first))
    end

    # How many ticks have space, without the first. The first tick's text may not be centred on it, so it needs half a text more.
    def room
      widest = [greatest, *medians.min].map { |value| Drawing.width_of(Words.number(value), TICK) }.max
      ((ends.last - ends.first) / ((1.5 * widest) + TICK)).floor.clamp(1, MOST)
    end

    def share_of_decades(value)
      value.positive? ? (Math.log10(value) - @from) / (@to - @from) : 0
    end

    def linear
      step = greatest.zero? ? 1 : round_step
      @ticks = (0..(greatest / step).ceil.clamp(1..)).map { |i| (i * step).round(12) }
      @to = @ticks.last
    end

    # 1, 2 or 5 times a power of ten.
    def round_step
      power = 10.0**Math.log10(greatest / room.to_f).floor
      [1, 2, 5, 10].map { |times| times * power }.find { |step| greatest / step <= room }
    end

    # Starts at a power of ten that leaves a visible bar for the smallest figure.
    def logarithmic
      @from = Math.log10(medians.min / 1.5).floor
      @to = Math.log10(greatest)
      powers = ((@to - @from) / room).ceil.clamp(1, (@to - @from).floor) # at least two marks
      @step = 10**powers
      @ticks = @from.step(@to, powers).map { |power| 10.0**power }
    end

    def medians = @medians ||= @table.figures.map { |figure| @scale.of(figure["median"]) }.select(&:positive?)

    def greatest
      @greatest ||= @scale.of([0, *@table.figures.flat_map { |figure| figure.values_at("low", "high") }].max)
    end
  end
end

# frozen_string_literal: true

class ConsumerStorm
  # A set of offsets, as ranges that do not touch each other.
  class Ranges
    def initialize
      @firsts = []
      @lasts = []
    end

    def add(first, last)
      from = @lasts.bsearch_index { |other| other >= first - 1 } || @lasts.size
      to = @firsts.bsearch_index { |other| other > last + 1 } || @firsts.size
      if from < to
        first = [first, @firsts[from]].min
        last = [last, @lasts[to - 1]].max
      end
      @firsts[from...to] = [first]
      @lasts[from...to] = [last]
    end

    # Removes an offset and all behind it.
    def cut(offset)
      from = @lasts.bsearch_index { |other| other >= offset } or return
      first = @firsts[from]
      @firsts.slice!(from..)
      @lasts.slice!(from..)
      add(first, offset - 1) if first < offset
    end

    # @return [Integer] the first offset from this one on that it does not have
    def end_of_run(offset)
      at = @lasts.bsearch_index { |other| other >= offset }
      at && @firsts[at] <= offset ? @lasts[at] + 1 : offset
    end

    # @return [Array<Array(Integer, Integer)>] the ranges in between that it does not have
    def gaps(first, last)
      found = []
      at = @lasts.bsearch_index { |other| other >= first } || @lasts.size
      while first <= last
        from = @firsts[at]
        break found << [first, last] if from.nil? || from > last

        found << [first, from - 1] if from > first
        first = @lasts[at] + 1
        at += 1
      end
      found
    end
  end
end

# frozen_string_literal: true

require "set"

# The calls between functions of some C files, from gcc's -fcallgraph-info without optimisation. A static function is FILE:NAME.
# An inline function of a header belongs to the file that includes it. Calls through pointers are unknown.
class CallGraph
  RUBY = /\A(?:rb_|ruby_|onig|st_)/
  RUBYS_HEADER = %r{/ruby[^:]*\.h:}

  # One file: its own functions, those of Ruby, and the functions that each calls.
  class Unit
    attr_reader :defined, :rubys, :calls

    NODE = /^node: \{ title: "(.*?)" label: "\S+?\\n([^"]*)"/
    DECLARED = /^node: .*shape : ellipse/ # defined in another file
    EDGE = /^edge: \{ sourcename: "(.*?)" targetname: "(.*?)"/

    # @param lines [Array<String>] gcc's output
    def initialize(file, lines)
      places, edges = [NODE, EDGE].map { |pattern| lines.grep(pattern).map { |line| line.match(pattern).captures } }
      @defined = places.filter_map { |title, place| title if place.start_with?("#{file}:") } - declared(lines)
      @rubys = places.filter_map { |title, place| title if rubys?(title, place) }
      @calls = edges.group_by(&:first).transform_values { |pairs| pairs.map(&:last).uniq }
    end

    private

    def declared(lines) = lines.grep(DECLARED).map { |line| line[NODE, 1] }

    def rubys?(title, place) = title.split(":").last.match?(RUBY) || place.match?(RUBYS_HEADER)
  end

  # @param units [Hash{String => Unit}] by file
  def initialize(units)
    @units = units
    @calls = units.values.map(&:calls).reduce({}) { |all, some| all.merge(some) { |_, one, other| one | other } }
    @rubys = units.values.flat_map(&:rubys).to_set
  end

  # @return [Array<String>] the functions that these files define
  def defined(files = @units.keys) = files.flat_map { |file| @units.fetch(file).defined }.uniq

  # @return [Array<String>] the functions that this file's functions call directly
  def called_in(file) = @units.fetch(file).calls.values.flatten.uniq

  # @return [Array<String>, nil] a call path from this function to one of Ruby's
  def way_to_ruby(root, harmless)
    from = { root => nil }
    queue = [root]
    while (function = queue.shift)
      return way(function, from) if function != root && @rubys.include?(function) && !harmless.include?(function)

      (@calls.fetch(function, []) - from.keys).each do |callee|
        from[callee] = function
        queue << callee
      end
    end
  end

  private

  def way(function, from)
    steps = [function]
    steps.unshift(from[steps.first]) while from[steps.first]
    steps
  end
end

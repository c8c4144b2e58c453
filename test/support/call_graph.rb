# frozen_string_literal: true

require "set"

# Who calls whom in some C files, as gcc's -fcallgraph-info tells it without optimisation. A static function is FILE:NAME, and
# an inline function of a header is that of the file that includes it. What is called through a pointer is not known.
class CallGraph
  RUBY = /\A(?:rb_|ruby_|onig|st_)/
  RUBYS_HEADER = %r{/ruby[^:]*\.h:}

  # Of one file: its own functions, those that are Ruby's, and whom each calls.
  class Unit
    attr_reader :defined, :rubys, :calls

    NODE = /^node: \{ title: "(.*?)" label: "\S+?\\n([^"]*)"/
    DECLARED = /^node: .*shape : ellipse/ # and defined elsewhere
    EDGE = /^edge: \{ sourcename: "(.*?)" targetname: "(.*?)"/

    # @param lines [Array<String>] gcc's
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

  # @return [Array<String>] the functions that stand in these files
  def defined(files = @units.keys) = files.flat_map { |file| @units.fetch(file).defined }.uniq

  # @return [Array<String>] whom the functions in this file call, directly
  def called_in(file) = @units.fetch(file).calls.values.flatten.uniq

  # @return [Array<String>, nil] a way from this function to one of Ruby's
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

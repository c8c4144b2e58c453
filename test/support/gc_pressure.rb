# frozen_string_literal: true

# Means to see what the garbage collector has taken or moved that is still in use.
module GCPressure
  module_function

  # In a thread: the GC takes whatever looks like an object on a stack for one that is needed, and its stack goes with it.
  # @return [Object] the block's value
  def aside(&block) = Thread.new(&block).value

  # What lives then is old: from then on a collection looks at it only if somebody has said that it was written to.
  def grow_old = 4.times { GC.start }

  # Takes what nobody marks, and puts other objects in its place.
  # @yield an object to take the place, such as one that could be mistaken for what was there
  def replace_garbage(count = 100_000)
    GC.start
    @replacements = Array.new(count) { |i| block_given? ? yield : "another object #{i}" } # they stay
  end

  # The same for what is young and nobody old is known to need.
  def replace_young_garbage(count = 100_000)
    GC.start(full_mark: false)
    @replacements = Array.new(count) { |i| block_given? ? yield : "another object #{i}" }
  end

  # What was put in the place of garbage is garbage now: else each collection of later tests marks it, which takes twice as long.
  def release = @replacements = nil

  def count(klass) = ObjectSpace.each_object(klass).count

  # With 1, each allocation runs a collection of what is young, as it would happen by chance.
  def under_stress(level = true) # rubocop:disable Style/OptionalBooleanParameter -- as in GC.stress=
    before = GC.stress
    GC.stress = level
    yield
  ensure
    GC.stress = before
  end

  # Moves all that may be moved, has Ruby look for references to where it was, and puts other objects there.
  def move_everything
    grow = RUBY_VERSION < "3.2" ? { double_heap: true } : { expand_heap: true }
    GC.verify_compaction_references(**grow, toward: :empty)
    GC.start # dies of a reference to an empty place
    @replacements = Array.new(50_000) { |i| "another object #{i}" }
    GC.start
  end
end

# frozen_string_literal: true

# Means to reveal that the garbage collector has freed or moved an object that is still in use.
module GCPressure
  module_function

  # Runs the block in a thread. The GC keeps whatever looks like an object on a stack, and the thread's stack ends with it.
  # @return [Object] the block's value
  def aside(&block) = Thread.new(&block).value

  # Objects that exist now become old: from then on a minor collection examines them only after a write barrier.
  def grow_old = 4.times { GC.start }

  # Collects what nothing marks, and puts other objects in its place.
  # @yield makes a replacement, such as an object that could be mistaken for the old one
  def replace_garbage(count = 100_000)
    GC.start
    @replacements = Array.new(count) { |i| block_given? ? yield : "another object #{i}" } # keeps them alive
  end

  # The same for young objects that no old object is known to reference.
  def replace_young_garbage(count = 100_000)
    GC.start(full_mark: false)
    @replacements = Array.new(count) { |i| block_given? ? yield : "another object #{i}" }
  end

  # Frees the replacements. Otherwise each collection of later tests would mark them, which takes twice as long.
  def release = @replacements = nil

  def count(klass) = ObjectSpace.each_object(klass).count

  # With 1, each allocation runs a minor collection, as happens in practice.
  def under_stress(level = true) # rubocop:disable Style/OptionalBooleanParameter -- as in GC.stress=
    before = GC.stress
    GC.stress = level
    yield
  ensure
    GC.stress = before
  end

  # Moves everything that may move, makes Ruby check for stale references, and puts other objects into the old places.
  def move_everything
    grow = RUBY_VERSION < "3.2" ? { double_heap: true } : { expand_heap: true }
    GC.verify_compaction_references(**grow, toward: :empty)
    GC.start # crashes on a reference to an empty slot
    @replacements = Array.new(50_000) { |i| "another object #{i}" }
    GC.start
  end
end

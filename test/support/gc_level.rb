# frozen_string_literal: true

# How hard the garbage collector works during tests: PENSTOCK_GC=normal (default), compact, young or stress. Young: at each
# allocation it takes what is young, which finds most of what stress finds, 100 times as fast.
#
# Automatic compaction only from Ruby 3.2 on. Ruby 3.1 ends each compaction by looking at all that lies on its threads' stacks
# (rb_vm_each_stack_value, called by check_stack_for_moved), up to one slot above the top, where something old may stand. If that
# points to a page that was given back since, Ruby dies. Pages are given back where the heap is doubled first, as below: so
# with 3.1 the heap is compacted, and all references checked, once after each test, and no more than that.
module GCLevel
  LEVEL = ENV.fetch("PENSTOCK_GC", "normal")
  raise "PENSTOCK_GC is normal, compact, young or stress" unless %w[normal compact young stress].include?(LEVEL)

  def self.slow? = %w[young stress].include?(LEVEL)

  # Whether Ruby itself may die of one more compaction; see above.
  def self.fragile? = LEVEL == "compact" && RUBY_VERSION < "3.2"

  # Whether Ruby lives through automatic compaction. Debian 12's Ruby 3.1 also dies in its own method cache of it.
  def self.auto_compacts? = GC.respond_to?(:auto_compact=) && RUBY_VERSION >= "3.2"

  def self.start
    GC.auto_compact = true if LEVEL == "compact" && auto_compacts?
    GC.stress = true if LEVEL == "stress"
    GC.stress = 1 if LEVEL == "young"
  end

  # For what a test needs and is not about.
  def self.paused
    before = GC.stress
    GC.stress = false
    yield
  ensure
    GC.stress = before
  end

  def self.stop
    GC.stress = false
    return unless LEVEL == "compact"

    GC.auto_compact = false if auto_compacts?
    # Ruby 3.1 calls it double_heap, 3.2 and later expand_heap
    option = RUBY_VERSION < "3.2" ? :double_heap : :expand_heap
    GC.verify_compaction_references(option => true, toward: :empty)
  end
end

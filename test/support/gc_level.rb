# frozen_string_literal: true

# How hard the garbage collector works during tests: PENSTOCK_GC=normal (default), compact, young or stress. With young, each
# allocation collects young objects. That finds most of what stress finds, 100 times as fast.
#
# Automatic compaction only from Ruby 3.2 on. Ruby 3.1 ends each compaction by checking every word on its threads' stacks
# (rb_vm_each_stack_value, called by check_stack_for_moved), up to one slot above the top, where a stale word may be. If that
# points to a page that has been freed since, Ruby crashes. Pages are freed where the heap is doubled first, as below. So with 3.1
# the heap is compacted, and all references are checked, exactly once after each test.
module GCLevel
  LEVEL = ENV.fetch("PENSTOCK_GC", "normal")
  raise "PENSTOCK_GC is normal, compact, young or stress" unless %w[normal compact young stress].include?(LEVEL)

  def self.slow? = %w[young stress].include?(LEVEL)

  # Whether one more compaction may crash Ruby itself: see above.
  def self.fragile? = LEVEL == "compact" && RUBY_VERSION < "3.2"

  # Whether Ruby survives automatic compaction. In Debian 12's Ruby 3.1 it also crashes the method cache.
  def self.auto_compacts? = GC.respond_to?(:auto_compact=) && RUBY_VERSION >= "3.2"

  def self.start
    GC.auto_compact = true if LEVEL == "compact" && auto_compacts?
    GC.stress = true if LEVEL == "stress"
    GC.stress = 1 if LEVEL == "young"
  end

  # For parts of a test that need no GC pressure.
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
    # Ruby 3.1 names it double_heap, 3.2 and later expand_heap
    option = RUBY_VERSION < "3.2" ? :double_heap : :expand_heap
    GC.verify_compaction_references(option => true, toward: :empty)
  end
end

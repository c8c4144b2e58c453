# frozen_string_literal: true

# How hard the garbage collector works during tests: PENSTOCK_GC=normal (default), compact or stress.
#
# Automatic compaction only from Ruby 3.2 on: 3.1 compacts bit by bit between allocations, and a long run now and then
# dies in Ruby's marking of its own frames. There the heap is compacted, and all references checked, after each test.
module GCLevel
  LEVEL = ENV.fetch("PENSTOCK_GC", "normal")
  raise "PENSTOCK_GC is normal, compact or stress" unless %w[normal compact stress].include?(LEVEL)

  def self.slow? = LEVEL == "stress"

  def self.start
    GC.auto_compact = true if LEVEL == "compact" && RUBY_VERSION >= "3.2"
    GC.stress = true if LEVEL == "stress"
  end

  def self.stop
    GC.stress = false
    return unless LEVEL == "compact"

    GC.auto_compact = false if RUBY_VERSION >= "3.2"
    # Ruby 3.1 calls it double_heap, 3.2 and later expand_heap
    option = RUBY_VERSION < "3.2" ? :double_heap : :expand_heap
    GC.verify_compaction_references(option => true, toward: :empty)
  end
end

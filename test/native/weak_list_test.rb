# frozen_string_literal: true

require_relative "../test_helper"

# Objects that are listed until they are garbage-collected.
class WeakListTest < PenstockTest
  Listed = Struct.new(:number, :text) do
    def whole? = text == "number #{number}"
  end

  def listed(number) = Listed.new(number, "number #{number}")

  def test_objects_are_listed_while_somebody_has_them
    list = Internal::WeakList.new
    assert_empty list
    kept = Array.new(5) { |i| listed(i) }
    kept.each { |one| list.add(one) }
    GC.start
    assert_equal [4, 3, 2, 1, 0], list.to_a.map(&:number)
    assert_same kept.first, list.to_a.last
    refute_empty list
  end

  # In garbage collections of both kinds, at whatever moment. Some are in a second list, which ends before them.
  def test_what_is_listed_is_alive
    list = Internal::WeakList.new
    kept = []
    2_000.times do |i|
      other = Internal::WeakList.new
      5.times { |n| kept << listed(n).tap { |one| [list, (other if n.odd?)].compact.each { |each| each.add(one) } } }
      kept.shift(rand(10)) if kept.size > 50
      GC.start(full_mark: i.even?, immediate_sweep: false) if (i % 50).zero?
      assert [list, other].all? { |each| each.to_a.all? { |one| one.is_a?(Listed) && one.whole? } }
    end
    numbers = kept.size
    GC.start
    assert_operator list.to_a.size, :>=, numbers
  end

  def test_what_nobody_has_leaves_the_list
    list = Internal::WeakList.new
    Thread.new { 1_000.times { |i| list.add(listed(i)) } }.join
    GC.start
    assert_operator list.to_a.size, :<, 10, "the stacks of threads may have some"
  end

  # As soon as it is garbage, and not when a later allocation needs its place.
  def test_a_list_is_empty_when_its_objects_are_garbage
    left = Thread.new { Array.new(20) { |i| Internal::WeakList.new.add(listed(i)) } }.value
    GC.start(immediate_sweep: false)
    assert_operator left.count(&:empty?), :>, 15, "the stacks of threads may have some"
  end

  def test_a_garbage_collection_that_a_program_has_disabled_stays_so
    list = Internal::WeakList.new
    list.to_a
    refute GC.disable, "it was enabled before"
    list.to_a
    assert GC.enable, "it was disabled before"
  ensure
    GC.enable
  end
end

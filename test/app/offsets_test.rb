# frozen_string_literal: true

require_relative "../test_helper"
require "penstock/app"

# The offsets of an application's partition: what is committed, and the map beside it.
class AppOffsetsTest < Minitest::Test
  MAP = Internal::OffsetMap

  # A batch, as far as a run needs one.
  Messages = Struct.new(:offsets) do
    def call_memory = offsets.size
  end

  def tracker(offset = nil, ranges = [], **options)
    Internal::OffsetTracker.new(**options).tap { |made| made.begin_at(offset, ranges) if offset }
  end

  def run_of(*offsets) = Internal::Run.new(Messages.new(offsets.flatten.freeze))

  # ---- the tracker ----

  def test_the_base_is_the_first_offset_that_is_not_processed
    tracker = tracker(5)
    run = run_of(5, 6, 9)
    tracker.add(run)
    assert_equal 5, tracker.base
    tracker.complete(run, 1, 1)
    assert_equal 5, tracker.base
    tracker.complete(run, 0, 1)
    assert_equal 9, tracker.base
    tracker.complete(run, 2, 1)
    assert_equal [10, nil], tracker.to_commit
  end

  def test_only_what_is_new_is_committed
    tracker = tracker(0)
    run = run_of(0, 1, 2)
    tracker.add(run)
    refute_predicate tracker, :dirty?
    tracker.complete(run, 0, 2)
    assert_predicate tracker, :dirty?
    sent = tracker.to_commit
    refute_predicate tracker, :dirty?
    tracker.complete(run, 2, 1) # while the commit is on its way
    tracker.committed(*sent)
    assert_predicate tracker, :dirty?
    tracker.committed(*tracker.to_commit)
    refute_predicate tracker, :dirty?
    tracker.not_committed
    refute_predicate tracker, :dirty?, "nothing differs"
  end

  def test_what_an_earlier_member_has_processed_is_not_handed_out
    tracker = tracker(3, [[5, 6], [9, 9]])
    run = run_of(3, 4, 5, 6, 8, 9, 10)
    assert_equal [[2, 3], [5, 5]], tracker.add(run)
    tracker.complete(run, 0, 2)
    assert_equal 8, tracker.base
    tracker.complete(run, 4, 1)
    assert_equal 10, tracker.base
  end

  def test_a_map_is_used_over_several_runs
    tracker = tracker(0, [[2, 6]])
    assert_equal [[2, 3]], tracker.add(run_of(0, 1, 2, 3))
    assert_equal [[0, 2]], tracker.add(run_of(4, 5, 6, 7))
    assert_empty tracker.add(run_of(8, 9))
  end

  def test_reading_from_an_earlier_offset_drops_the_map
    tracker = tracker(100, [[102, 110]])
    run = run_of(*0..9)
    assert_empty tracker.add(run)
    tracker.complete(run, 0, 10)
    assert_equal 10, tracker.base
    assert_empty tracker.add(run_of(*100..109))
  end

  # What is committed, read back by another member, leaves exactly what is not processed.
  def test_any_order_of_completion_loses_and_repeats_nothing_after_a_commit
    random = Random.new(7)
    300.times do
      offsets = [0, *(1..120).select { random.rand > 0.2 }]
      left, base, map = process_some(offsets, random)
      assert_operator base, :<=, left.first || base
      assert_equal left, read_again(offsets, base, map, random)
    end
  end

  # @return [Array(Array<Integer>, Integer, String)] what is not processed, and what is committed
  def process_some(offsets, random)
    one = tracker(0)
    runs = offsets.each_slice(random.rand(1..40)).map { |part| run_of(*part).tap { |run| one.add(run) } }
    done = runs.flat_map { |run| run.offsets.each_index.map { |i| [run, i] } }.sample(random.rand(offsets.size + 1), random:)
    done.each { |run, i| one.complete(run, i, 1) }
    [offsets - done.map { |run, i| run.offsets[i] }, *one.to_commit]
  end

  # @return [Array<Integer>] what the next member gets
  def read_again(offsets, base, map, random)
    other = tracker(base, map ? MAP.load(map, base) : [])
    offsets.select { |offset| offset >= base }.each_slice(random.rand(1..40)).flat_map do |part|
      part - other.add(run_of(*part)).flat_map { |first, last| part[first..last] }
    end
  end

  # As after a partition has lost its end: what was handed out before belongs to messages that are gone.
  def test_reading_from_an_earlier_place_commits_nothing_beyond_it
    tracker = tracker(10)
    old = run_of(10, 11, 12)
    tracker.add(old)
    tracker.add(run_of(5, 6))
    tracker.complete(old, 0, 1)
    assert_equal 5, tracker.base
  end

  def test_a_slow_message_stops_the_handing_out_before_the_map_is_too_large
    tracker = tracker(0)
    tracker.add(first = run_of(0))
    offset = 1
    until tracker.full?
      run = run_of(*offset.step(by: 3).first(500))
      tracker.add(run)
      500.times { |i| tracker.complete(run, i, 1) if i.even? }
      offset += 1_500
      assert_operator offset, :<, 1_000_000
    end
    assert_operator tracker.to_commit[1].bytesize, :<=, MAP::MOST_BYTES
    tracker.complete(first, 0, 1)
  end

  # ---- the map ----

  def test_any_map_is_read_back
    random = Random.new(3)
    2_000.times do
      base = random.rand(2**40)
      at = base
      ranges = Array.new(random.rand(1..60)) do
        first = at + random.rand(1..20)
        at = first + random.rand(1..(random.rand < 0.1 ? 5_000 : 9)) + 1
        [first, at - 2]
      end
      assert_equal ranges, MAP.load(MAP.dump(base, ranges), base)
    end
  end

  def test_nothing_processed_has_no_map
    assert_nil MAP.dump(5, [])
  end

  def test_the_map_of_another_offset_is_not_used
    assert_nil MAP.load(MAP.dump(5, [[7, 9]]), 6)
  end

  def test_foreign_and_damaged_maps_are_refused_or_read_as_some_ranges
    random = Random.new(11)
    ["", "ps1.", "ps1.!", "ps2.AAAA", "hello", "ps1.AA", "ps1.#{"_" * 400}", "\xFF".b].each do |text|
      assert_raises(MAP::Invalid, text.inspect) { MAP.load(text, 0) }
    end
    whole = MAP.dump(1_000, [[1_002, 1_005], [1_010, 1_400]])
    5_000.times do
      text = whole.dup
      random.rand(1..3).times { text.setbyte(random.rand(4...text.bytesize), random.rand(33..126)) }
      text = text.byteslice(0, random.rand(4..text.bytesize)) if random.rand < 0.3
      begin
        found = MAP.load(text, 1_000) or next
        assert(found.each_cons(2).all? { |one, other| one[1] < other[0] } && found.all? do |first, last|
                 first >= 1_000 && first <= last
               end)
      rescue MAP::Invalid
        next
      end
    end
  end

  def test_a_hostile_map_takes_no_time_and_memory
    huge = "ps1.#{["\0\0\x01\xFF\xFF\xFF\xFF\xFF\xFF\x7F".b].pack("m0").tr("+/", "-_").delete("=")}"
    assert_raises(MAP::Invalid) { MAP.load(huge, 0) }
  end
end

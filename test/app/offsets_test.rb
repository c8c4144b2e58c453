# frozen_string_literal: true

require_relative "../test_helper"
require "penstock/app"

# The offsets of an application's partition: what is committed, and the map beside it.
class AppOffsetsTest < Minitest::Test
  MAPS = Integer(ENV.fetch("MAPS", "5000"))
  MAP = Internal::OffsetMap

  # A batch, as far as a run needs one.
  Messages = Struct.new(:offsets) do
    def call_memory = offsets.size
  end

  PLACE = "orders/3"

  def tracker(offset = nil, ranges = [], **options)
    Internal::OffsetTracker.new(PLACE, **options).tap { |made| made.begin_at(offset, ranges) if offset }
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
    other = tracker(base, map ? MAP.load(map, base, PLACE) : [])
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

  # The log was truncated, for example. Otherwise the next member would begin behind messages that no checkpoint has named.
  def test_a_checkpoint_does_not_outlive_reading_from_an_earlier_place
    tracker = tracker(manual: true)
    tracker.add(run_of(10, 11, 12))
    tracker.checkpoint(13)
    tracker.committed(*tracker.to_commit)
    tracker.add(run_of(5, 6))
    refute_predicate tracker, :dirty?
    tracker.checkpoint(6)
    assert_predicate tracker, :dirty?
    assert_equal [6, nil], tracker.to_commit
  end

  # The topic was made anew while its first message was in work. The map lists no message that nobody has processed.
  def test_messages_at_the_same_offsets_are_other_messages
    tracker = tracker(0, [[15, 20]])
    tracker.add(old = run_of(*0..9))
    tracker.complete(old, 1, 9)
    tracker.add(new = run_of(*0..4))
    assert_equal [0, nil], tracker.to_commit
    assert_equal 5, tracker.open
    tracker.complete(new, 1, 2)
    tracker.complete(old, 0, 1) # counts no more
    assert_equal [0, [[1, 2]]], map_of(tracker)
    assert_empty tracker.add(run_of(*12..30)), "the earlier member has processed others"
    tracker.complete(new, 0, 1)
    assert_equal 3, tracker.base
  end

  # The partition has lost its end, and goes on with other messages. What was handed out before is finished as before.
  def test_reading_from_an_earlier_place_lists_nothing_of_what_was_lost
    200.times do |seed|
      random = Random.new(seed)
      tracker = tracker(0)
      old = run_of(*0..random.rand(5..30))
      tracker.add(old)
      finish_some(tracker, old, random.rand(0.0..1.0), random)
      from = random.rand(1..old.size - 1)
      new = run_of(*from..from + random.rand(0..40))
      tracker.add(new)
      finish_some(tracker, new, random.rand(0.0..1.0), random)
      left = (0...from).reject { |i| old.done?(i) } + (from..new.offsets.last).reject { |offset| new.done?(offset - from) }
      base, map = tracker.to_commit
      again = read_again([*0..new.offsets.last], base, map, random)
      assert_empty left - again, "seed #{seed}"
    end
  end

  # The first message stays, so nothing of the run is forgotten.
  def finish_some(tracker, run, share, random)
    (1...run.size).select { random.rand < share }.shuffle(random:).each { |i| tracker.complete(run, i, 1) }
  end

  # An earlier member's map is not lost by a commit before everything was read again.
  def test_what_was_not_read_again_stays_in_the_map
    tracker = tracker(0, [[1, 14], [20, 30], [40, 1_000_000]])
    tracker.add(slow = run_of(0))
    tracker.add(run_of(*1..9, 12))
    assert_equal [0, [[1, 14], [20, 30], [40, 1_000_000]]], map_of(tracker)
    tracker.add(run = run_of(*15..24))
    tracker.complete(run, 1, 3)
    assert_equal [0, [[1, 12], [16, 18], [20, 30], [40, 1_000_000]]], map_of(tracker)
    tracker.complete(slow, 0, 1)
    tracker.complete(run, 0, 1)
    assert_equal [19, [[20, 30], [40, 1_000_000]]], map_of(tracker)
    tracker.complete(run, 4, 1)
    assert_equal [25, [[25, 30], [40, 1_000_000]]], map_of(tracker)
  end

  def map_of(tracker)
    base, map = tracker.to_commit
    [base, MAP.load(map, base, PLACE)]
  end

  # One message hangs, and everything behind it is processed: that takes neither memory nor time.
  def test_a_million_messages_behind_a_slow_one_are_one_range
    tracker = tracker(0)
    tracker.add(slow = run_of(*0..499))
    tracker.complete(slow, 1, 499)
    2_000.times do |i|
      run = run_of(*(500 * (i + 1)).step.first(500))
      refute tracker.full?(run)
      tracker.add(run)
      tracker.complete(run, 0, 500)
    end
    assert_operator tracker.instance_variable_get(:@spans).instance_variable_get(:@spans).size, :<=, 2
    assert_equal [0, [[1, 1_000_499]]], map_of(tracker)
    tracker.complete(slow, 0, 1)
    assert_equal [1_000_500, nil], tracker.to_commit
  end

  # With half of the messages open, and more or fewer gaps in the partition: handing out stops before the map is too large, in
  # whatever order the rest is processed, and goes on when the slow message is done.
  [1, 100, 5_000].product([50, 500]).each do |distance, size|
    define_method("test_handing_out_stops_before_the_map_is_too_large_#{distance}_#{size}") do
      tracker = tracker(0)
      tracker.add(slow = run_of(0))
      offset = 1
      runs = []
      until tracker.full?(run = run_of(*offset.step(by: distance).first(size)))
        tracker.add(run)
        runs << run
        offset += distance * size
        (1...size).step(2) { |i| tracker.complete(run, i, 1) } if offset.even?
        assert_operator runs.size, :<, 2_000, "it never stops"
      end
      runs.each { |one| (1...size).step(2) { |i| tracker.complete(one, i, 1) unless one.done?(i) } }
      refute_predicate tracker, :shortened
      map = tracker.to_commit[1]
      assert_includes 2_000..MAP::MOST_BYTES, map.bytesize
      runs.reverse_each { |one| size.times { |i| tracker.complete(one, i, 1) unless one.done?(i) } }
      tracker.complete(slow, 0, 1)
      refute tracker.full?(run_of(offset))
    end
  end

  def test_brokers_that_accept_less
    tracker = tracker(0)
    tracker.add(run = run_of(*0..999))
    250.times { |i| tracker.complete(run, (3 * i) + 1, 1) }
    long = tracker.to_commit[1]
    tracker.too_long(long)
    tracker.not_committed
    assert_predicate tracker, :dirty?
    base, map = tracker.to_commit
    assert_operator map.bytesize, :<=, long.bytesize / 2
    assert_predicate tracker, :shortened
    whole = MAP.load(long, 0, PLACE)
    assert_equal whole.first(20), MAP.load(map, base, PLACE).first(20)
    tracker.too_long(map) while (map = tracker.to_commit[1])
    assert_equal [0, nil], tracker.to_commit
  end

  # ---- the map ----

  def test_any_map_is_read_back
    random = Random.new(3)
    MAPS.times do
      base = random.rand(2**40)
      at = base
      ranges = Array.new(random.rand(1..60)) do
        first = at + random.rand(1..20)
        at = first + random.rand(1..(random.rand < 0.1 ? 5_000 : 9)) + 1
        [first, at - 2]
      end
      assert_equal ranges, MAP.load(MAP.dump(base, ranges, PLACE), base, PLACE)
    end
  end

  def test_nothing_processed_has_no_map
    assert_nil MAP.dump(5, [], PLACE)
  end

  def test_the_map_of_another_offset_is_not_used
    assert_nil MAP.load(MAP.dump(5, [[7, 9]], PLACE), 6, PLACE)
  end

  # Else messages would count as processed that were not.
  def test_foreign_and_damaged_maps_are_never_read
    random = Random.new(11)
    kafka_streams = "AgAAAYzJ2dcA"
    parallel_consumer = "bAAgAAEAAgAD/w=="
    ["", "ps1.", "ps1.!", "ps2.AAAA", "hello", "ps1.AA", "ps1.AAAAAA", "ps1.AAAAAAA", "ps1.#{"_" * 400}", "\xFF".b,
     kafka_streams, parallel_consumer, "ps1.#{parallel_consumer}"].each do |text|
      assert_raises(MAP::Invalid, text.inspect) { MAP.load(text, 0, PLACE) }
    end
    [[[1_002, 1_005], [1_010, 1_400]], [*(1_001..1_400).step(2)].map { |offset| [offset, offset] }].each do |ranges|
      whole = MAP.dump(1_000, ranges, PLACE)
      5_000.times do
        text = damaged(whole.dup, random)
        assert_raises(MAP::Invalid, text) { MAP.load(text, 1_000, PLACE) } unless same?(text, whole)
      end
    end
  end

  def damaged(text, random)
    random.rand(1..3).times { text.setbyte(random.rand(4...text.bytesize), random.rand(33..126)) }
    random.rand < 0.3 ? text.byteslice(0, random.rand(4..text.bytesize)) : text
  end

  # "+" and "-" are the same in both forms of Base64.
  def same?(text, other) = text.tr("+/", "-_").delete("=") == other

  # MirrorMaker, for example, copies metadata.
  def test_the_map_of_another_partition_is_not_read
    assert_raises(MAP::Invalid) { MAP.load(MAP.dump(5, [[7, 9]], "orders/3"), 5, "orders/4") }
  end

  def test_a_hostile_map_takes_no_time_and_memory
    [[0, 0, 1, (2**62)], [0, 0, 2**61, 1], [0, 0, 1], [0, 0, 1, 0]].each do |numbers|
      body = numbers.pack("Cw*")
      huge = "ps1.#{[[Zlib.crc32(PLACE + body)].pack("N") << body].pack("m0").tr("+/", "-_").delete("=")}"
      assert_raises(MAP::Invalid) { MAP.load(huge, 0, PLACE) }
    end
  end
end

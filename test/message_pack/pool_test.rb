# frozen_string_literal: true

require "objspace"
require_relative "../test_helper"
require_relative "support/test_case"

# A factory's pool of packers and unpackers.
class MessagePackPoolTest < MessagePackTestCase
  Point = Struct.new(:left, :right) do
    def self.from_msgpack_ext(data) = new(*data.unpack("l>2"))
    def to_msgpack_ext = to_a.pack("l>2")
  end

  def factory = MP::Factory.new.tap { |made| made.register_type(1, Point) }

  VALUE = [Point.new(1, -2), { "key" => "value" }].freeze

  def test_a_pool_dumps_and_loads_like_its_factory
    pool = factory.pool
    assert_equal factory.dump(VALUE), pool.dump(VALUE)
    assert_equal VALUE, pool.load(pool.dump(VALUE))
    3.times { assert_equal VALUE, pool.load(pool.dump(VALUE)) }
  end

  def test_a_pool_yields_packers_and_unpackers_and_returns_the_blocks_value
    pool = factory.pool(2)
    packed = pool.packer { |packer| packer.write(VALUE).to_s }
    assert_equal VALUE, pool.unpacker { |unpacker| unpacker.feed(packed).read }
    assert_equal [1, 2], pool.unpacker { |unpacker| unpacker.feed("\x01\x02").each.to_a }
  end

  def test_a_pool_passes_its_options_to_packers_and_unpackers
    symbolizing = factory.pool(1, symbolize_keys: true)
    assert_equal({ key: Point.new(1, 2) }, symbolizing.load(symbolizing.dump({ key: Point.new(1, 2) })))
    assert factory.pool(1, freeze: true).load("\x91\xA1a".b).frozen?
    assert_equal "da0020", hex(factory.pool(1, compatibility_mode: true).dump("a" * 32)[0, 3])
    assert_raises(ArgumentError) { factory.pool(1, symbolise: true) }
  end

  def test_a_packer_or_unpacker_left_in_the_middle_is_reset
    pool = factory.pool(1)
    pool.packer { |packer| packer.write("left over") }
    assert_equal "\x01", pool.packer { |packer| packer.write(1).to_s }
    pool.unpacker { |unpacker| unpacker.feed("\x93\x01") }
    assert_equal 5, pool.unpacker { |unpacker| unpacker.feed("\x05").read }
  end

  def test_a_pool_is_usable_after_an_error
    pool = factory.pool(1)
    5.times do
      assert_raises(NoMethodError) { pool.dump([1, Object.new]) }
      assert_raises(MP::MalformedFormatError) { pool.load("\x92\x01\xC1") }
      assert_raises(EOFError) { pool.load("\x92\x01") }
      assert_raises(MP::MalformedFormatError) { pool.load("\x01\x02") }
      assert_raises(KeyError) { pool.packer { |packer| packer.write(1) && raise(KeyError) } }
      assert_raises(KeyError) { pool.unpacker { |unpacker| unpacker.feed("\x92") && raise(KeyError) } }
    end
    assert_equal VALUE, pool.load(pool.dump(VALUE))
  end

  def test_more_simultaneous_blocks_than_the_size_get_one_packer_each
    pool = factory.pool(1)
    pool.packer do |first|
      first.write(1)
      pool.packer do |second|
        refute_same first, second
        assert_equal ["\x01", "\x02"], [first.to_s, second.write(2).to_s]
        assert_equal VALUE, pool.load(pool.dump(VALUE))
      end
    end
  end

  def test_threads_may_share_a_pool
    pool = factory.pool(2)
    wrong = Array.new(8) do |number|
      Thread.new do
        (0...500).count do |i|
          value = [Point.new(number, i), "text #{i}"]
          Thread.pass if (i % 50).zero?
          pool.load(pool.dump(value)) != value
        end
      end
    end
    assert_equal 0, wrong.sum(&:value)
  end

  def test_a_returned_packer_raises_until_it_is_lent_again
    pool = factory.pool(1)
    kept = pool.packer { |packer| packer.write("x" * 100_000) }
    %i[to_s size flush reset buffer].each { |name| assert_raises(ArgumentError) { kept.public_send(name) } }
    assert_match(/in its Pool/, assert_raises(ArgumentError) { kept.write(1) }.message)
    assert_equal "\x02", pool.packer { |packer| assert_same(kept, packer) && packer.write(2).to_s }
    assert_operator ObjectSpace.memsize_of(kept), :<, 100_000
  end

  # Anything that the block may have kept, or that may still be writing, must not reach the next block.
  def test_a_packer_is_not_lent_again_if_parts_of_it_may_still_be_in_use
    pool = factory.pool(1)
    {
      buffer: ->(packer) { packer.write(1).buffer },
      own_types: ->(packer) { packer.register_type(2, Range, :to_s) },
      frozen: :freeze.to_proc,
      user_code: ->(packer) { packer.write(Point.new(1, 2)) }
    }.each do |name, use|
      kept = pool.packer { |packer| packer.tap(&use) }
      pool.packer { |packer| refute_same kept, packer, name }
    end
  end

  def test_a_fiber_suspended_in_a_write_does_not_write_into_the_next_block
    pool = factory.pool(1)
    writes = Struct.new(:go) { def to_msgpack(packer) = go.call && packer.write("late") }
    fiber = nil
    pool.packer do |packer|
      fiber = Fiber.new { packer.write([1, writes.new(-> { Fiber.yield || true })]) }
      fiber.resume
      packer.reset
    end
    pool.packer do |packer|
      packer.write(1)
      fiber.resume
      assert_equal "\x01", packer.to_s
    end
  end

  def test_a_pool_keeps_no_more_packers_than_its_size
    pool = factory.pool(2)
    made = []
    nest = ->(depth) { pool.packer { |packer| made << packer and depth > 1 && nest.call(depth - 1) } }
    nest.call(4)
    lent = []
    again = ->(depth) { pool.packer { |packer| lent << packer and depth > 1 && again.call(depth - 1) } }
    again.call(4)
    assert_equal 2, (made & lent).size
  end

  def test_a_shareable_pool_keeps_no_packers
    pool = MP::Factory.new.pool(1)
    kept = pool.packer(&:itself)
    Ractor.make_shareable(pool)
    assert_equal [true, true], [pool.frozen?, Ractor.shareable?(pool)]
    pool.packer { |packer| refute_same kept, packer }
  end

  def test_a_pool_that_is_frozen_while_a_block_ends_keeps_no_packer
    pool = factory.pool(1)
    freezing = TracePoint.new(:c_call) { |call| pool.freeze if call.method_id == :take_back }
    assert_equal(1, freezing.enable { pool.packer { 1 } })
    assert_predicate pool, :frozen?
    assert_equal "\x01", pool.packer { |packer| packer.write(1).to_s }
  end

  def test_later_registrations_do_not_affect_a_pool_and_frozen_factories_have_frozen_pools
    made = factory
    pool = made.pool(1)
    made.register_type(2, Range, packer: :to_s, unpacker: ->(data) { data })
    assert_raises(NoMethodError) { pool.dump(1..2) }
    assert_equal [false, true], [pool.frozen?, made.freeze.pool(1).frozen?]
    assert_equal VALUE, pool.load(pool.dump(VALUE))
  end

  def test_an_invalid_size_is_rejected
    ["1", -1].each { |size| assert_raises(TypeError, ArgumentError, RangeError, size.inspect) { factory.pool(size) } }
  end
end

# frozen_string_literal: true

require "objspace"
require_relative "../test_helper"
require_relative "support/test_case"
require_relative "support/random"

# No input and no value may crash or hang the process, or take more memory than its limits allow.
class MessagePackLimitsTest < MessagePackTestCase
  SEED = Integer(ENV.fetch("MESSAGE_PACK_SEED") { Random.new_seed % (2**32) })
  ENDS = [MP::UnpackError, EOFError].freeze

  # Asserts that the block adds less than `limit` bytes to the process's resident memory.
  def assert_takes_less_than(limit)
    GC.start
    before = resident
    yield
    assert_operator resident - before, :<, limit
  end

  MEGABYTE = 2**20

  # ---- depth ----

  NESTINGS = {
    arrays: ["91", ""], maps: ["8101", ""], map_keys: %w[81 01], arrays_with_a_short_header: ["dc0001", ""],
    arrays_with_a_long_header: ["dd00000001", ""], maps_with_a_long_header: ["df0000000101", ""]
  }.freeze

  def nested(kind, levels, innermost = "05")
    before, after = NESTINGS.fetch(kind)
    bytes((before * levels) + innermost + (after * levels))
  end

  NESTINGS.each_key do |kind|
    define_method("test_#{kind}_may_be_128_deep_and_deeper_only_with_max_depth") do
      assert MP.unpack(nested(kind, 128))
      assert_raises(MP::StackError) { MP.unpack(nested(kind, 129)) }
      assert MP.unpack(nested(kind, 3), max_depth: 3)
      assert_raises(MP::StackError) { MP.unpack(nested(kind, 4), max_depth: 3) }
      assert MP.unpack(nested(kind, 1000), max_depth: 1000)
    end

    define_method("test_#{kind}_ten_million_deep_raise_at_once") do
      assert_takes_less_than(100 * MEGABYTE) do
        assert_raises(MP::StackError) { MP.unpack(bytes(NESTINGS.fetch(kind)[0]) * 10_000_000) }
      end
    end

    define_method("test_#{kind}_a_million_deep_are_skipped_or_raise") do
      assert_raises(*ENDS) { MP::Unpacker.new.feed(bytes(NESTINGS.fetch(kind)[0]) * 1_000_000).skip }
    end
  end

  def test_an_unpacker_is_usable_after_a_value_that_was_too_deep
    one = MP::Unpacker.new.feed(nested(:arrays, 200))
    assert_raises(MP::StackError) { one.read }
    one.reset
    assert_equal [1], one.feed("\x91\x01").read
  end

  Shell = Struct.new(:inner)

  def of_shells
    MP::Factory.new.tap do |made|
      made.register_type(1, Shell, recursive: true, packer: ->(shell, packer) { packer.write(shell.inner) },
                                   unpacker: ->(unpacker) { Shell.new(unpacker.read) })
    end
  end

  def test_recursive_types_count_as_levels
    data = 200.times.inject("\x05".b) { |inner, _| bytes("c9") + [inner.bytesize, 1].pack("L>c") + inner }
    assert_raises(MP::StackError) { of_shells.load(data) }
    shallow = of_shells.dump([Shell.new([Shell.new(1)])])
    assert_equal [Shell.new([Shell.new(1)])], of_shells.load(shallow)
    assert_raises(MP::StackError) { of_shells.load(shallow, max_depth: 1) }
  end

  # ---- elements ----

  def test_more_values_than_max_elements_in_one_object_raise
    value = [[1] * 30, { "a" => [2] * 30 }]
    assert_equal value, MP.unpack(MP.pack(value), max_elements: 100)
    assert_raises(MP::LimitError) { MP.unpack(MP.pack(value), max_elements: 50) }
    assert_raises(MP::LimitError) { MP.unpack(MP.pack([1] * 100), max_elements: 50) }
    assert_raises(MP::LimitError) { MP.unpack(MP.pack((1..40).to_h { |i| [i, i] }), max_elements: 50) }
  end

  def test_each_object_of_a_stream_has_the_whole_limit
    one = MP::Unpacker.new(max_elements: 50)
    20.times { assert_equal [1] * 40, one.feed(MP.pack([1] * 40)).read }
    assert_raises(MP::LimitError) { one.feed(MP.pack([1] * 60)).read }
    one.reset
    assert_equal [1] * 40, one.feed(MP.pack([1] * 40)).read
  end

  def test_the_default_limits_allow_a_million_values
    assert_equal 1_000_000, MP.unpack(MP.pack(Array.new(1_000_000, 1))).size
  end

  # ---- bytes ----

  def test_a_string_larger_than_max_bytes_raises_before_its_bytes_arrive
    { "d9" => "C", "da" => "S>", "db" => "L>", "c4" => "C", "c5" => "S>", "c6" => "L>" }.each do |first, size|
      header = ->(bytes) { self.bytes(first) + [bytes].pack(size) }
      assert_equal "x" * 100, MP.unpack(header[100] + ("x" * 100), max_bytes: 100)
      assert_raises(MP::LimitError, first) { MP.unpack(header[101] + ("x" * 101), max_bytes: 100) }
      assert_raises(MP::LimitError, first) { MP::Unpacker.new(max_bytes: 100).feed(header[101]).read }
      assert_raises(MP::LimitError, first) { MP::Unpacker.new(max_bytes: 100).feed("\x81".b + header[101]).read }
    end
    { "c7" => "C", "c8" => "S>", "c9" => "L>" }.each do |first, size|
      data = bytes(first) + [101].pack(size) + "\x05".b
      assert_raises(MP::LimitError, first) { MP.unpack(data, max_bytes: 100, allow_unknown_ext: true) }
    end
  end

  # ---- headers that claim more than what follows ----

  CLAIMS = { array: "ddffffffff", map: "dfffffffff", str: "dbffffffff", bin: "c6ffffffff", ext: "c9ffffffff05",
             array_below_the_limits: "dd00ffffff", map_below_the_limits: "df007fffff", str_below_the_limits: "db0fffffff",
             bin_below_the_limits: "c60fffffff", ext_below_the_limits: "c90fffffff05" }.freeze

  CLAIMS.each do |name, header|
    define_method("test_a_header_of_#{name}_allocates_no_memory_for_its_claimed_size") do
      kept = []
      assert_takes_less_than(32 * MEGABYTE) do
        50.times do
          assert_raises(*ENDS) { MP.unpack(bytes(header), allow_unknown_ext: true) }
          one = MP::Unpacker.new(allow_unknown_ext: true).feed(bytes("93 01 #{header}"))
          assert_raises(*ENDS) { one.read }
          assert_raises(*ENDS) { MP.load(StringIO.new(bytes("#{header}01020304")), allow_unknown_ext: true) }
          assert_raises(*ENDS) { MP::Unpacker.new.feed(bytes(header)).skip }
          kept << one
        end
      end
    end
  end

  # Memory that was allocated but never written is not resident, so this test reads the objects' reported sizes.
  def test_containers_are_not_allocated_in_their_claimed_size
    %w[dd000fffff df000fffff].each do |header|
      one = MP::Unpacker.new.feed(bytes("93 01 #{header}"))
      assert_raises(EOFError) { one.read }
      empty = [Array, Hash].flat_map { |type| ObjectSpace.each_object(type).select(&:empty?) }
      assert_operator empty.map { |container| ObjectSpace.memsize_of(container) }.max, :<, MEGABYTE
      assert_raises(EOFError) { one.read } # keeps it alive until here
    end
  end

  def test_nested_headers_allocate_no_memory_for_their_claimed_sizes
    assert_takes_less_than(16 * MEGABYTE) do
      %w[dd00ffffff df000fffff].each { |header| assert_raises(*ENDS) { MP.unpack(bytes(header) * 128) } }
    end
  end

  def test_an_io_is_not_asked_for_all_bytes_that_a_header_claims
    asked = []
    io = Object.new
    io.define_singleton_method(:read) do |length = nil, _buffer = nil|
      asked << length
      asked.size == 1 ? "\xDB\x0F\xFF\xFF\xFFabc".b : nil
    end
    assert_raises(EOFError) { MP.load(io) }
    assert_operator asked.compact.max, :<=, MEGABYTE
  end

  def test_a_stream_takes_memory_only_for_unread_bytes
    data = MP.pack(["x" * 100_000] * 10)
    one = MP::Unpacker.new
    20.times { one.feed(data).read }
    assert_takes_less_than(200 * MEGABYTE) { 500.times { one.feed(data).read } }
  end

  # ---- arbitrary bytes ----

  # @return [Object] the values and the error at the end
  def outcome(data, pieces, **options)
    one = MP::Unpacker.new(max_elements: 10_000, max_bytes: 100_000, **options)
    found = []
    pieces.call(data) { |piece| one.feed_each(piece) { |value| found << value } }
    found
  rescue *ENDS, EncodingError => e # EncodingError: for a key that is no valid Symbol
    [*found, e.class]
  end

  WHOLE = ->(data, &block) { block.call(data) }
  BY_BYTE = ->(data, &block) { data.each_char(&block) }
  OPTIONS = [{}, { allow_unknown_ext: true }, { symbolize_keys: true }, { freeze: true, key_cache: true }].freeze

  def assert_harmless(data, number)
    options = OPTIONS[number % OPTIONS.size]
    whole = outcome(data, WHOLE, **options)
    if data.bytesize < 500
      assert_same_value whole, outcome(data, BY_BYTE, **options), "seed #{SEED}, number #{number}: #{hex(data)}"
    end
    begin
      MP.unpack(data, max_elements: 10_000, max_bytes: 100_000, **options)
    rescue *ENDS, EncodingError
      nil
    end
  end

  def test_random_bytes_give_the_same_values_or_errors_however_they_are_split
    random = MessagePackRandom.new(SEED)
    10_000.times { |i| assert_harmless(random.bytes(60), i) }
    200.times { |i| assert_harmless(random.bytes(20_000), i) }
  end

  def test_damaged_documents_give_the_same_values_or_errors_however_they_are_split
    random = MessagePackRandom.new(SEED)
    5_000.times { |i| assert_harmless(random.damaged(MP.pack(random.object)), i) }
  end

  def test_truncated_documents_raise_eof_error
    random = MessagePackRandom.new(SEED)
    300.times do |i|
      data = MP.pack(random.object)
      (0...data.bytesize).step([data.bytesize / 200, 1].max) do |size|
        cut = data.byteslice(0, size)
        assert_raises(EOFError, "seed #{SEED}, number #{i}, #{size}") { MP.unpack(cut, allow_unknown_ext: true) }
      end
    end
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"

# rubocop:disable Style/StringConcatenation -- bytes of documents

# Recursive ext types. Their unpackers read directly from the payload's bytes: all of them, and nothing beyond.
class MessagePackPayloadTest < MessagePackTestCase
  slow(/_stay_allocated_/)

  Shell = Struct.new(:inner)

  def ext(type, payload) = "\xC9".b + [payload.bytesize, type].pack("L>c") + payload.b

  # Type 1 reads one object. Type 2 calls the block.
  def factory(&block)
    MP::Factory.new.tap do |made|
      made.register_type(1, Shell, recursive: true, packer: ->(shell, packer) { packer.write(shell.inner) },
                                   unpacker: ->(unpacker) { Shell.new(unpacker.read) })
      made.register_type(2, Range, recursive: true, packer: nil, unpacker: block) if block
    end
  end

  # Each way to read the document, with the values or the error, and what is read afterwards.
  def ways(made, data, **options)
    { load: -> { made.load(data, options) }, unpacker: -> { made.unpacker(options).feed(data).full_unpack },
      io: -> { made.unpacker(StringIO.new(data), options).full_unpack },
      frozen: -> { made.load(data.dup.freeze, options) },
      pieces: lambda {
        one = made.unpacker(options)
        data.each_char.filter_map { |byte| one.feed_each(byte).first }.first
      } }
  end

  def assert_each_way(expected, made, data, **options)
    ways(made, data, **options).each { |way, call| assert_equal [expected], [call.call], way.to_s }
  end

  def assert_malformed(message, made, data)
    ways(made, data).each do |way, call|
      error = assert_raises(MP::MalformedFormatError, way.to_s, &call)
      assert_match message, error.message, way.to_s
    end
  end

  # ---- values in payloads ----

  def test_nested_and_adjacent_payloads_are_read
    value = Shell.new([Shell.new(1), [Shell.new([Shell.new("x"), 2]), Shell.new(nil)], Shell.new({ "k" => Shell.new([]) })])
    assert_each_way value, factory, factory.dump(value)
    deep = 100.times.inject("core") { |inner, i| Shell.new([i, inner, i]) }
    assert_each_way deep, factory, factory.dump(deep), max_depth: 300
  end

  def test_an_unpacker_continues_in_its_payload_after_a_nested_one
    made = factory { |unpacker| [unpacker.read, unpacker.read, unpacker.read] }
    data = "\x92".b + ext(2, "\x01".b + ext(2, "\x02".b + ext(1, "\x03") + "\x04") + "\x05") + "\x06"
    assert_each_way [[1, [2, Shell.new(3), 4], 5], 6], made, data
  end

  NESTED = <<~'RUBY'
    MP = Penstock::MessagePack
    Shell = Struct.new(:inner)
    made = MP::Factory.new
    made.register_type(1, Shell, recursive: true, packer: nil, unpacker: ->(unpacker) { Shell.new(unpacker.read) })
    text = "x" * 10_000_000
    headers = 120.times.inject([MP.pack(text)[0, 5]]) { |all, _| all.unshift("\xC9".b + [all.sum(&:size) + text.size, 1].pack("NC")) }
    data = headers.join << text
    def peak = File.read("/proc/self/status")[/^VmHWM:\s*(\d+)/, 1].to_i / 1024
    before = peak
    value = ARGV[0] == "load" ? made.load(data, max_depth: 200) : made.unpacker(max_depth: 200).feed(data).read
    120.times { value = value.inner }
    print peak - before, " ", value == text
  RUBY

  %w[load feed].each do |way|
    define_method("test_#{way}_does_not_copy_a_payload_of_120_levels") do
      more, same = ruby!(NESTED, way, seconds: 60).split
      assert_equal "true", same
      assert_operator more.to_i, :<, 25 # MB, for 10 MB
    end
  end

  # ---- payloads that are shorter or longer than what is read ----

  def test_a_payload_that_ends_early_is_malformed
    twice = factory { |unpacker| [unpacker.read, unpacker.read] }
    all = factory { |unpacker| unpacker.each.to_a }
    { twice => "\x01", all => "\x01\x92\x01", factory(&:skip) => "", factory(&:read_array_header) => "",
      factory(&:skip_nil) => "", factory(&:full_unpack) => "\x92\x01" }.each do |made, payload|
      assert_malformed(/ends within an object/, made, "\x92".b + ext(2, payload) + "\x07")
    end
    assert_malformed(/ends within an object/, factory, ext(1, "\x92".b + ext(1, "\x91") + "\x07"))
  end

  def test_a_payload_that_is_not_read_to_its_end_is_malformed
    ["\x01\x02", "\x01\xC1", "\x01#{"\x02" * 2000}"].each do |payload|
      assert_malformed(/of ext type 1 were not read/, factory, "\x92".b + ext(1, payload) + "\x07")
    end
    assert_malformed(/ext type 2/, factory { |_| 5 }, ext(2, "\x01"))
    assert_malformed(/ext type 1/, factory, ext(1, ext(1, "\x01\x02")))
  end

  def test_a_payload_may_be_skipped_or_read_to_its_end
    reading = factory { |unpacker| unpacker.buffer.read && nil }
    [factory { |unpacker| unpacker.skip && nil }, factory(&:reset), reading].each do |made|
      assert_each_way [nil, 7], made, "\x92".b + ext(2, "\x93\x01\x02\x03") + "\x07"
    end
    assert_each_way [[1, 2, 3], 7], factory { |unpacker| unpacker.each.to_a }, "\x92".b + ext(2, "\x01\x02\x03") + "\x07"
  end

  def test_after_a_malformed_payload_reading_continues_behind_it
    { "\x01" => factory { |unpacker| [unpacker.read, unpacker.read] }, "\x01\x02" => factory(&:read),
      "\xC1" => factory(&:read) }.each do |payload, made|
      one = made.unpacker.feed("\x93\x05".b + ext(2, payload) + "\x07\x08\x09")
      assert_raises(MP::MalformedFormatError) { one.read }
      assert_equal [7, 8, 9], one.each.to_a
      assert_equal [Shell.new(1)], one.feed("\x91".b + ext(1, "\x01")).each.first
    end
  end

  def test_an_error_of_a_nested_payload_may_be_rescued
    made = factory do |unpacker|
      unpacker.read
    rescue KeyError, MP::UnpackError
      unpacker.read
    end
    made.register_type(3, Proc, recursive: true, packer: nil, unpacker: ->(unpacker) { unpacker.read && raise(KeyError) })
    assert_each_way [7, 8], made, "\x92".b + ext(2, ext(3, "\x01\x02") + "\x07") + "\x08"
    assert_each_way [7, 8], made, "\x92".b + ext(2, ext(1, "\x92\x02") + "\x07") + "\x08"
    assert_each_way [Shell.new(7), 8], made, "\x92".b + ext(2, ext(3, ext(1, "\x01")) + ext(1, "\x07")) + "\x08"
  end

  # ---- limits ----

  def test_max_elements_is_shared_by_all_payloads
    value = [Shell.new([1] * 20), Shell.new([Shell.new([1] * 20)]), [2] * 20]
    data = factory.dump(value)
    assert_each_way value, factory, data, max_elements: 67
    ways(factory, data, max_elements: 66).each { |way, call| assert_raises(MP::LimitError, way.to_s, &call) }
  end

  def test_each_value_of_a_payload_counts
    made = factory { |unpacker| unpacker.each.to_a }
    data = ext(2, "\x01" * 50)
    assert_each_way [1] * 50, made, data, max_elements: 50
    ways(made, data, max_elements: 49).each { |way, call| assert_raises(MP::LimitError, way.to_s, &call) }
    one = made.unpacker(max_elements: 50)
    3.times { assert_equal [1] * 50, one.feed(data).read }
  end

  def test_the_error_about_max_depth_has_the_given_value
    data = 10.times.inject("\x91\x91\x01".b) { |inner, _| ext(1, inner) }
    assert factory.load(data, max_depth: 12)
    assert_match(/more than 11 deep/, assert_raises(MP::StackError) { factory.load(data, max_depth: 11) }.message)
  end

  # ---- the Unpacker of a payload ----

  def test_the_unpacker_of_a_payload_is_empty_after_its_end
    kept = []
    made = factory { |unpacker| (kept << unpacker) && unpacker.read }
    data = "\x92".b + ext(2, "\x01") + ext(2, "\x02")
    assert_equal [1, 2], made.load(data)
    one = made.unpacker.feed(data)
    one.read
    assert_equal 4, kept.size
    kept.each { |unpacker| assert_raises(MP::MalformedFormatError) { unpacker.read } }
  end

  def test_the_unpacker_of_a_payload_may_be_fed_more_bytes
    made = factory { |unpacker| [unpacker.feed("\x08").read, unpacker.read] }
    assert_each_way [[1, 8], 7], made, "\x92".b + ext(2, "\x01") + "\x07"
    assert_each_way [[Shell.new(1), 8], [[2, 8], 8]], made, "\x92".b + ext(2, ext(1, "\x01")) + ext(2, ext(2, "\x02"))
  end

  def test_an_unpacker_may_be_fed_in_a_payload_within_a_payload
    { "\x08" => 8, MP.pack("x" * 5_000) => "x" * 5_000 }.each do |more, value|
      made = factory { |unpacker| [unpacker.read, unpacker.feed(more).read] }
      assert_each_way [[Shell.new([1, value]), [[2, value], value]], 7], made,
                      "\x92\x92".b + ext(1, ext(2, "\x01")) + ext(2, ext(2, "\x02")) + "\x07"
    end
  end

  def test_types_registered_with_a_payloads_unpacker_end_with_the_object
    made = factory { |unpacker| unpacker.register_type(9) { |_| :own } || unpacker.read }
    one = made.unpacker.feed(ext(2, "\xD4\x09a".b) + ext(1, "\xD4\x09a".b))
    assert_equal :own, one.read
    assert_raises(MP::UnknownExtTypeError) { one.read }
  end

  def test_a_payloads_unpacker_in_other_fibers_and_threads_raises_or_reads_correctly
    [->(&block) { Fiber.new(&block).resume }, ->(&block) { Thread.new(&block).value }].each do |aside|
      made = factory { |unpacker| aside.call { unpacker.read } }
      assert_each_way [[1, Shell.new(2)], 7], made, "\x92".b + ext(2, "\x92\x01".b + ext(1, "\x02")) + "\x07"
    end
  end

  # ---- a Fiber that is abandoned within an unpacker ----

  # @return [Array(Unpacker, Fiber)] the Unpacker in the middle of a read
  def abandoned(type, payload)
    made = factory { |_| Fiber.yield(:left) }
    made.register_type(3, Proc, packer: nil, unpacker: ->(_) { Fiber.yield(:left) })
    one = made.unpacker.feed("\x92".b + ext(type, payload) + "\x07\x08")
    fiber = Fiber.new { one.read }
    assert_equal :left, fiber.resume
    [one, fiber]
  end

  ABANDONED = { "a payload" => [3, "\x01"], "a recursive one" => [2, "\x01"],
                "one within another" => [1, "\xC7\x01\x02\x01".b] }.freeze

  ABANDONED.each do |name, (type, payload)|
    define_method("test_reset_frees_an_unpacker_that_a_fiber_left_in_#{name.tr(" ", "_")}") do
      one, fiber = abandoned(type, payload)
      assert_match(/reset/, assert_raises(RuntimeError) { one.read }.message)
      one.reset
      assert_equal [1, Shell.new([2])], one.feed("\x92\x01".b + ext(1, "\x91\x02")).read
      one.feed("\x92\x05".b).each { flunk }
      assert_raises(RuntimeError, MP::UnpackError) { fiber.resume(1) }
      assert_equal [5, Shell.new(6)], one.feed(ext(1, "\x06")).read
    end

    define_method("test_an_unpacker_whose_fiber_left_#{name.tr(" ", "_")}_continues_when_the_fiber_resumes") do
      one, fiber = abandoned(type, payload)
      if type == 3
        assert_equal ["back", 7], fiber.resume("back")
      else
        assert_raises(MP::MalformedFormatError) { fiber.resume("back") } # the Fiber has not read its payload
      end
      assert_equal type == 3 ? 8 : 7, one.read
    end
  end

  def test_a_fiber_that_resumes_after_reset_reads_nothing_of_the_next_object
    left = nil
    made = factory do |unpacker|
      left = unpacker
      Fiber.yield
      unpacker.read
    end
    one = made.unpacker.feed(ext(2, "\xAB#{"x" * 11}"))
    fiber = Fiber.new { one.read }
    fiber.resume
    one.reset
    one.feed(ext(1, "\x05"))
    assert_raises(MP::MalformedFormatError, RuntimeError) { fiber.resume }
    assert_raises(MP::MalformedFormatError) { left.read }
    assert_equal Shell.new(5), one.read
  end

  # ---- bytes of a payload whose read a Fiber abandoned ----

  # Each test runs in a separate process, because reading freed memory may crash. `$left` has Unpackers that outlive their reads.
  LEFT = <<~'RUBY'
    MP = Penstock::MessagePack
    $left = []
    def ext(type, payload) = "\xC9".b + [payload.bytesize, type].pack("L>c") + payload.b
    MADE = MP::Factory.new
    def type(number, &) = MADE.register_type(number, Class.new, packer: nil, recursive: true, unpacker: Proc.new(&))
    def leave(unpacker)
      $left << unpacker
      Fiber.yield
    end
    SIZE = ARGV[0].to_i
    LONG = MP.pack("x" * SIZE)
    at_exit do
      other = Array.new(300) { "y" * (SIZE + 8) }
      found = $left.map { |unpacker| unpacker.read.to_s.delete("x") rescue "" }
      print $left.size, " ", found.uniq.inspect if other
    end
  RUBY

  def assert_nothing_freed_is_read(size, program)
    assert_equal '30 [""]', ruby!(LEFT + program, size.to_s, seconds: 60)
  end

  def test_the_bytes_around_a_payload_stay_allocated_after_reset_while_its_unpacker_lives
    assert_nothing_freed_is_read 1_000_000, <<~'RUBY'
      type(1) { |unpacker| unpacker.read; leave(unpacker) }
      type(2) { |unpacker| unpacker.reset; 1 }
      document = ext(1, ext(2, "") + LONG)
      30.times { Fiber.new { MADE.load(document + "") }.resume }
      10.times { GC.start }
    RUBY
  end

  def test_the_bytes_around_a_fed_payload_stay_allocated_while_its_unpacker_lives
    assert_nothing_freed_is_read 1_000_000, <<~'RUBY'
      type(1) { |unpacker| unpacker.read; leave(unpacker) }
      type(2) { |unpacker| unpacker.feed("\x01" * 5000); 5000.times { unpacker.read }; 1 }
      document = ext(1, ext(2, "") + LONG)
      30.times { Fiber.new { MADE.load(document + "") }.resume }
      10.times { GC.start }
    RUBY
  end

  def test_a_reset_ends_payloads_within_fed_bytes
    assert_nothing_freed_is_read 3000, <<~'RUBY'
      type(1) { |unpacker| [unpacker.read, unpacker.feed(ext(2, LONG)).read] }
      type(2) { |unpacker| leave(unpacker) }
      left = Array.new(30) { MADE.unpacker.feed(ext(1, "\x01")).tap { |one| Fiber.new { one.read }.resume } }
      left.each(&:reset)
    RUBY
  end

  def test_the_end_of_a_payload_ends_payloads_within_its_fed_bytes
    assert_nothing_freed_is_read 3000, <<~'RUBY'
      type(1) { |unpacker| unpacker.read; unpacker.feed(ext(2, LONG)); Fiber.new { unpacker.read }.resume }
      type(2) { |unpacker| leave(unpacker) }
      30.times { MADE.unpacker.feed(ext(1, "\x01")).read rescue 0 }
    RUBY
  end

  # ---- freeze ----

  class Own
    attr_reader :parts

    def initialize = @parts = []

    def freeze
      @parts.freeze
      super
    end
  end

  def test_freeze_calls_the_freeze_method_of_values_that_unpackers_return
    made = factory { |unpacker| [unpacker.read, +"made"] }
    made.register_type(3, Own, packer: nil, unpacker: ->(_) { Own.new })
    made.register_type(4, Proc, packer: nil, unpacker: ->(data) { data })
    data = "\x94".b + ext(2, "\x91\xA1a") + ext(3, "") + ext(4, "b") + ext(1, "\xA1c")
    ways(made, data, freeze: true).each do |way, call|
      pair, own, text, shell = call.call
      assert [pair, pair[0], pair[0][0], own, own.parts, text, shell, shell.inner].all?(&:frozen?), way.to_s
      refute_predicate pair[1], :frozen?, way.to_s # the unpacker owns the parts of its result
    end
    own, = made.load("\x91".b + ext(3, ""))
    refute_predicate own, :frozen?
  end

  def test_freeze_does_not_freeze_classes_and_modules
    klass = Class.new
    made = MP::Factory.new
    made.register_type(5, klass, packer: nil, unpacker: ->(data) { data == "c" ? klass : BasicObject.new })
    assert_same klass, made.load(ext(5, "c"), freeze: true)
    refute_predicate klass, :frozen?
    assert made.load("\x91".b + ext(5, "b"), freeze: true)
  end

  # ---- symbolize_keys ----

  def test_symbolize_keys_symbolizes_bin_keys
    { "abc" => Encoding::US_ASCII, "" => Encoding::US_ASCII, "\xFF\xFE".b => Encoding::BINARY, "é".b => Encoding::BINARY,
      "x" * 300 => Encoding::US_ASCII }.each do |bytes, encoding|
      data = "\x82".b + MP.pack(bytes.b) + "\x01\xC4\x01b\x02".b
      2.times do
        key, second = MP.unpack(data, symbolize_keys: true).keys
        assert_equal [bytes.b.to_sym, encoding, :b], [key, key.encoding, second]
      end
      assert_equal [bytes.b, "b"], MP.unpack(data).keys
    end
    assert_equal({ é: 1, "é".b.to_sym => 2 }, MP.unpack("\x82\xA2é\x01\xC4\x02é\x02".b, symbolize_keys: true))
  end
end
# rubocop:enable Style/StringConcatenation

# frozen_string_literal: true

require "objspace"
require_relative "../test_helper"
require_relative "support/test_case"

# The String that is unpacked. The codec reads its bytes in place until user code runs. The tests check what user code may change,
# and what happens when a continuation comes back.
class MessagePackSourceTest < MessagePackTestCase
  slow(/_continuation_/)

  LONG = "é" * 10_000

  def shares?(string) = ObjectSpace.memsize_of(string) < string.bytesize

  # ---- long Strings at the source's end ----

  def test_a_long_string_at_the_end_shares_its_bytes
    packed = MP.pack(["a", LONG])
    last = MP.unpack(packed).last
    assert shares?(last)
    assert_equal [LONG, Encoding::UTF_8, true], [last, last.encoding, last.valid_encoding?]
    assert_equal ["\xFF".b * 5_000, Encoding::BINARY], MP.unpack(MP.pack("\xFF".b * 5_000)).then { |all| [all, all.encoding] }
  end

  def test_a_string_that_shares_bytes_and_its_source_change_independently
    [MP.pack(LONG), MP.pack(LONG).freeze].each do |packed|
      first, second = Array.new(2) { MP.unpack(packed) }
      first << "!"
      first[0] = "a"
      assert_equal LONG, second
      assert_equal "a#{LONG[1..]}!", first
      next if packed.frozen?

      packed[10..] = "b"
      assert_equal LONG, second
    end
  end

  def test_a_small_part_does_not_keep_a_large_source_alive
    refute shares?(MP.unpack(MP.pack([LONG * 10, "x" * 10_000])).last)
    assert shares?(MP.unpack(MP.pack([LONG, "x" * 10_000])).last)
    first, = MP.unpack(MP.pack([LONG, LONG]))
    refute shares?(first)
  end

  # The codec can tell then that the source's memory is no larger than its bytes.
  def test_a_source_that_holds_more_than_its_bytes_is_not_shared
    packed = MP.pack(LONG)
    slice = (("x" * 1_000_000) + packed).byteslice(1_000_000..)
    assert_equal packed.b, slice
    roomy = String.new(capacity: 1_000_000) << packed
    [slice, slice.dup.freeze, roomy].each { |source| 2.times { refute shares?(MP.unpack(source)) } }
    assert shares?(MP.unpack(String.new(capacity: packed.bytesize * 2) << packed))
  end

  def test_a_source_of_another_class_is_not_shared
    sources = Array.new(2) { Class.new(String).new << MP.pack(LONG) } # one copy each
    [sources[0], sources[1].freeze].each { |source| refute shares?(MP.unpack(source)) }
  end

  def test_the_validity_of_a_binary_source_does_not_apply_to_its_parts
    packed = "\xDB\x00\x00\x07\xD0".b + ("\xFF".b * 2_000)
    assert_predicate packed, :valid_encoding? # as binary
    refute_predicate MP.unpack(packed), :valid_encoding?
    assert MP.unpack(MP.pack("a" * 2_000)).ascii_only?
  end

  def test_equal_frozen_results_are_one_string
    assert_same(*Array.new(2) { MP.unpack(MP.pack(LONG), freeze: true) })
  end

  # ---- user code that changes the source ----

  # Replaces the source, so that its former memory is freed.
  CHANGING = <<~'RUBY'
    MP = Penstock::MessagePack
    $data = +""
    def change
      $data.replace("another")
      $kept = Array.new(1_000) { "y" * 7_300 }
    end
  RUBY

  def test_methods_of_keys_may_change_the_source
    assert_equal "true", ruby!(CHANGING + <<~'RUBY', seconds: 60)
      class Array
        alias_method :hash_of_elements, :hash
        def hash = change && hash_of_elements
      end
      values = Array.new(50) { |i| "value #{i}" * 18 }
      $data << MP.pack([1]).then { |key| "\xDC\x00\x33\x81".b + key + "\xC0".b } + values.map { |value| MP.pack(value) }.join
      print Thread.new { MP.unpack($data) == [{ [1] => nil }] + values }.value
    RUBY
  end

  def test_an_extension_values_initialize_may_change_the_source
    assert_equal "true", ruby!(CHANGING + <<~'RUBY', seconds: 60)
      MP::ExtensionValue.prepend(Module.new { def initialize(*) = change && super })
      values = Array.new(50) { |i| "value #{i}" * 18 }
      $data << "\xDC\x00\x33\xD4\x01p".b + values.map { |value| MP.pack(value) }.join
      print Thread.new { MP.unpack($data, allow_unknown_ext: true).drop(1) == values }.value
    RUBY
  end

  # Small Hashes compare a byte of the hash values first, so only one of 256 keys is compared by eql?.
  COMPARING = <<~'RUBY'
    $ran = 0
    TYPE, METHOD, SECOND = Object.const_get(ARGV[0]), ARGV[1], ARGV[2]
    numbers = Random.new(1)
    documents = (1..3_000).map do |i|
      second = SECOND == "Symbol" ? MP.pack("k#{i}") : MP.pack(numbers.rand(2**20) + 3_001)
      "\x92\x82".b + MP.pack(i) + "\xC0".b + second + "\xC0".b + MP.pack("value #{i} " * 50)
    end
    values = (1..3_000).map { |i| "value #{i} " * 50 }
    TYPE.alias_method :as_before, METHOD
    TYPE.define_method(METHOD) do |other|
      if $armed
        $armed = false
        $ran += 1
        change
      end
      as_before(other)
    end
    wrong = documents.zip(values).reject do |document, value|
      $data = String.new << document # not shared memory
      $armed = true
      found = MP.unpack($data, symbolize_keys: true).last
      $armed = false
      found.eql?(value)
    rescue MP::UnpackError, EOFError
      false
    ensure
      $armed = false
    end
    puts $ran, wrong.size
  RUBY

  { "integers" => %w[Integer == Integer], "a_symbol_with_an_integer" => %w[Symbol eql? Symbol] }.each do |name, arguments|
    define_method("test_comparing_#{name}_may_change_the_source") do
      ran, wrong = ruby!(CHANGING + COMPARING, *arguments, seconds: 60).split.map { |number| Integer(number) }
      assert_operator ran, :>, 0
      assert_equal 0, wrong
    end
  end

  def test_a_short_source_may_be_changed_too
    made = MP::Factory.new
    data = +""
    made.register_type(1, Class.new, packer: ->(_) { "p" }, unpacker: ->(_) { data.replace("\xC1" * 8) })
    data << "\x93\xD4\x01p\x07\xA1q".b
    assert_equal [7, "q"], made.load(data).drop(1)
  end

  # ---- continuations that come back ----

  # What happens when a continuation of an ext type's unpacker comes back to an unpacking.
  COMING_BACK = <<~'RUBY'
    MP = Penstock::MessagePack
    require "continuation"
    factory = MP::Factory.new
    calls = 0
    coming_back = nil
    factory.register_type(1, Class.new, packer: ->(_) { "" }, unpacker: lambda { |_|
      callcc { |here| coming_back ||= here }
      calls += 1
    })
    point = "\xC7\x00\x01".b
    wide = "\xDE\x00\xA0".b + Array.new(80) { |i| MP.pack(i) + point }.join + Array.new(80) { |i| MP.pack("b#{i}") + point }.join
    documents = {
      "small" => "\x92".b + point + point, "wide" => wide, "deep" => ("\x92".b + point) * 60 + point,
      "deep later" => "\x92".b + point + "\x91".b * 60 + point
    }
    unpacker = factory.unpacker
    ways = {
      "load" => ->(data) { factory.load(data) }, "feed" => ->(data) { unpacker.feed(data).full_unpack },
      "piecewise" => ->(data) { unpacker.feed(data[0..-4]).each { raise }; unpacker.feed(data[-3..]).read }
    }
    data = documents.fetch(ARGV[0])
    times = 0
    begin
      ways.fetch(ARGV[1]).call(data)
    rescue RuntimeError => e
      puts e.message
    end
    times += 1
    GC.start
    replaced = Array.new(20_000) { |i| "x" * (i % 500) }
    unpacker.feed(MP.pack([times, "some bytes"] * 10)) if ARGV[1] != "load"
    coming_back.call if times < 5
    puts unpacker.read == [1, "some bytes"] * 10 if ARGV[1] != "load"
    puts calls
  RUBY

  ENDED = "a read that a continuation or Unpacker#reset had ended cannot go on\n"

  ["small", "wide", "deep", "deep later"].product(%w[load feed piecewise]) do |document, way|
    define_method("test_a_continuation_does_not_come_back_to_a_#{document.tr(" ", "_")}_document_of_#{way}") do
      last = { "small" => 2, "wide" => 160, "deep" => 61, "deep later" => 2 }[document] + 4
      expected = "#{ENDED * 4}#{"true\n" if way != "load"}#{last}\n"
      assert_equal expected, ruby!(COMING_BACK, document, way, seconds: 60)
    end
  end

  def test_a_continuation_does_not_come_back_to_a_key_that_was_read_before
    assert_equal ENDED * 3, ruby!(<<~'RUBY', seconds: 60)
      require "continuation"
      coming_back = nil
      armed = false
      key = Class.new
      key.define_method(:hash) do
        callcc { |here| coming_back ||= here } if armed
        1
      end
      factory = Penstock::MessagePack::Factory.new
      factory.register_type(1, key, packer: ->(_) { "" }, unpacker: ->(_) { key.new })
      begun = ("\xDC\x00\x3D".b + ("\xC0".b * 60)) * 3 + "\x81\xC7\x00\x01".b # more values wait than fit on the stack
      unpacker = factory.unpacker.feed(begun)
      unpacker.each { raise }
      armed = true
      times = 0
      begin
        unpacker.feed("\xC0").read
      rescue RuntimeError => e
        puts e.message
      end
      times += 1
      GC.start
      replaced = Array.new(20_000) { |i| "x" * (i % 5_000) }
      coming_back.call if times < 4
    RUBY
  end

  PACKED_AGAIN = <<~'RUBY'
    MP = Penstock::MessagePack
    require "continuation"
    Point = Struct.new(:x)
    document = coming_back = nil
    calls = 0
    factory = MP::Factory.new
    meet = lambda do
      calls += 1
      callcc { |here| coming_back = here } if calls == document.size / 2
    end
    factory.register_type(1, Point, packer: lambda { |point|
      meet.call
      "p" * 100
    })
    Shell = Struct.new(:x)
    factory.register_type(2, Shell, recursive: true, packer: lambda { |shell, packer|
      packer.write("s" * 100)
      meet.call
      packer.write(shell.x)
    })
    Own = Struct.new(:x)
    Own.define_method(:to_msgpack) do |packer|
      meet.call
      packer.write("o" * 100)
    end
    long = "y" * 9_000
    document = { "many" => Array.new(400) { |i| [Point.new(i), "x" * i] },
                 "long Strings" => [long, *Array.new(100) { |i| Point.new(i) }, long],
                 "payloads" => Array.new(100) { |i| Shell.new(Shell.new("x" * i)) },
                 "own methods" => Array.new(100) { |i| [Own.new(i), "x" * i] } }.fetch(ARGV[0])
    times = 0
    packer = factory.packer
    begin
      ARGV[1] == "dump" ? factory.dump(document) : packer.write(document).full_pack
    rescue RuntimeError => e
      puts e.message
    end
    times += 1
    GC.start
    replaced = Array.new(20_000) { |i| "x" * (i % 4_000) }
    coming_back.call if times < 4
  RUBY

  ["many", "long Strings", "payloads", "own methods"].product(%w[dump write]) do |document, way|
    way_too = "_by_a_packer" if way == "write"
    define_method("test_a_continuation_does_not_come_back_to_packing_#{document.tr(" ", "_").downcase}#{way_too}") do
      output = ruby!(PACKED_AGAIN, document, way, seconds: 60)
      assert_match(/\A(a continuation came back .*\n){3}\z/, output)
    end
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"

# The codec under GC.stress around each size at which it allocates more memory: one less, exactly that, and one more. Each test
# runs in a separate process, because a value that the GC cannot see at that moment crashes it. The tests also pass with
# `GC.stress = true`, which takes five minutes.
class MessagePackBoundariesTest < MessagePackTestCase
  slow(/_under_stress_/)

  COMMON = <<~'RUBY'
    MP = Penstock::MessagePack
    Point = Struct.new(:left)
    Tree = Struct.new(:inner)
    Written = Struct.new(:inner) { def to_msgpack(packer) = packer.write(inner) }
    TYPES = MP::Factory.new
    TYPES.register_type(1, Point, packer: ->(point) { point.left }, unpacker: ->(data) { Point.new("#{data} of a point") })
    TYPES.register_type(2, Tree, recursive: true, packer: ->(tree, packer) { packer.write(tree.inner) },
                                 unpacker: ->(unpacker) { Tree.new(unpacker.read) })
    POINT = "\xD4\x01p".b
    FOUND = Point.new("p of a point")

    # Near the border, and first: a String that is not embedded and has no other reference. Elsewhere an immediate value, which
    # keeps these tests fast.
    def value(place) = place < 2 || (place - $border).abs < 3 ? "value #{place} is too long to be embedded" : place
    def values(count) = Array.new(count) { |place| value(place) }

    def near(*borders)
      borders.each { |border| (-1..1).each { |more| yield(($border = border) + more) } }
    end

    def packed(items) = items.map { |item| MP.pack(item) }.join

    def stressed
      GC.stress = 1 # young objects only: only those are at stake here
      yield
    ensure
      GC.stress = false
    end

    # As a whole, in two pieces split near the end, and byte by byte if the document is short.
    WAYS = {
      load: ->(types, data, options) { types.load(data, options) },
      fed: ->(types, data, options) { types.unpacker(options).feed(data).full_unpack },
      halves: ->(types, data, options) { piecewise(types, options, [data[0, data.size / 2], data[(data.size / 2)..]]) },
      last: ->(types, data, options) { piecewise(types, options, [data[0..-2], data[-1]]) },
      thirds: ->(types, data, options) { piecewise(types, options, data.scan(/.{1,#{(data.size / 3) + 1}}/mn)) }
    }.freeze

    def piecewise(types, options, pieces)
      one = types.unpacker(options)
      found = pieces.flat_map { |piece| one.feed_each(piece).to_a }
      found.size == 1 ? found[0] : abort("#{found.size} values")
    end

    def same(name, expected, actual)
      actual == expected or abort "#{name}: #{actual.inspect[0, 300]} instead of #{expected.inspect[0, 300]}"
    end

    def check(name, expected, data, options = {}, types: TYPES, ways: WAYS.keys)
      ways.each do |way|
        found = stressed { WAYS.fetch(way).call(types, data, options) }
        same("#{name}, #{way}, #{options}", expected, found)
      end
    end

    def deep(levels, innermost) = levels.times.inject(innermost) { |inner, level| [value(level % 64), inner] }
  RUBY

  CHECKS = {
    # The stack of values grows at 128, 256 and 512. An Array of up to 64 elements waits on it. Longer ones are nested.
    arrays: <<~'RUBY',
      near(64, 128) { |count| check(count, values(count), MP.pack(values(count))) }
      near(128, 256, 512) do |count|
        nested = values(count).each_slice(60).reverse_each.inject(nil) { |inner, slice| [*slice, inner] }
        check("#{count} nested", nested, MP.pack(nested), ways: %i[load fed thirds])
      end
    RUBY
    hashes: <<~'RUBY',
      near(128, 256, 512) do |count|
        hash = (0..(count / 2)).to_h { |i| ["key #{i}", value(i * 2)] }
        check(count, hash, MP.pack(hash))
      end
      near(8192) { |count| check(count, (0...count).to_h { |i| ["key #{i}", value(i)] }.then { |hash| $hash = hash }, MP.pack($hash), ways: %i[load thirds]) }
    RUBY
    # Objects whose methods Ruby calls while the codec is in the middle of its work.
    own_keys: <<~'RUBY',
      near(128, 256, 512) do |count|
        hash = (0..(count / 2)).to_h { |i| [i, value(i * 2)] }
        check(count, hash, MP.pack(hash), ways: %i[load fed thirds])
      end
      near(8192) { |count| check(count, (0...count).to_h { |i| [i, value(i)] }.then { |hash| $hash = hash }, MP.pack($hash), ways: %i[load thirds]) }
    RUBY
    ext_types: <<~'RUBY',
      near(64, 128, 256) do |count|
        nested = values(count).each_slice(60).reverse_each.inject(nil) { |inner, slice| [*slice, inner] }
        check(count, [FOUND, nested], "\x92".b + POINT + MP.pack(nested))
        check("#{count} in a tree", [Tree.new(nested), 1], TYPES.dump([Tree.new(nested), 1]), ways: %i[load fed last])
        hash = (0...(count / 2)).to_h { |i| ["key #{i}", value(i * 2)] }
        check("#{count} pairs", [FOUND, hash], "\x92".b + POINT + MP.pack(hash), ways: %i[load thirds])
      end
    RUBY
    depths: <<~'RUBY',
      near(32, 64, 128) do |levels|
        innermost = "innermost value, longer than is embedded"
        check(levels, deep(levels, innermost), MP.pack(deep(levels, innermost)), { max_depth: 200 }, ways: %i[load fed thirds])
        data = MP.pack(deep(levels, 0))[0..-2] + POINT
        check(levels, deep(levels, FOUND), data, { max_depth: 200 }, ways: %i[load thirds])
      end
      near(32) do |levels|
        tree = levels.times.inject(value(1)) { |inner, level| Tree.new([level, inner]) }
        check("#{levels} trees", tree, TYPES.dump(tree), { max_depth: 200 }, ways: %i[load last])
      end
    RUBY
    strings: <<~'RUBY',
      near(23, 32, 512, 1024, 4096, 8192, 16_384, 32_768) do |size|
        text = "x" * size
        [text, ["a", text, "last"], { text => text }].each do |document|
          check(size, document, MP.pack(document), ways: %i[load fed thirds])
        end
        check(size, [FOUND, text], "\x92".b + POINT + MP.pack(text), ways: %i[load last])
      end
    RUBY
    options: <<~'RUBY',
      near(128) do |count|
        [{ freeze: true }, { symbolize_keys: true }, { key_cache: true, freeze: true, symbolize_keys: true }].each do |options|
          hash = (0..(count / 2)).to_h { |i| ["key #{i}", value(i * 2)] }
          packed = MP.pack(hash)
          hash = hash.transform_keys(&:to_sym) if options[:symbolize_keys]
          check(count, [FOUND, hash], "\x92".b + POINT + packed, options, ways: %i[load thirds])
        end
      end
    RUBY
    bytes: <<~'RUBY',
      $border = 128
      { [FOUND, *values(130)] => "\xDC\x00\x83".b + POINT + packed(values(130)),
        { FOUND => values(66), 2 => FOUND } => "\x82".b + POINT + MP.pack(values(66)) + "\x02" + POINT }.each do |document, data|
        one = TYPES.unpacker
        found = stressed { data.each_char.flat_map { |byte| one.feed_each(byte).to_a } }
        same("byte by byte", [document], found)
      end
    RUBY
    packing: <<~'RUBY'
      plain = []
      near(64, 1024) { |count| plain << values(count) }
      near(128) { |count| plain << (0...count).to_h { |i| ["key #{i}", value(i)] } }
      near(32, 128) { |levels| plain << deep(levels, value(1)) }
      near(512, 4096, 8192, 16_384, 65_536) { |size| plain << ["a", "x" * size, ["z"]] }
      plain.each do |document|
        expected = MP.pack(document)
        own = [Point.new("p"), Written.new(document), Tree.new([document, Point.new("q")])]
        own_expected = TYPES.dump(own)
        same("pack", expected, stressed { MP.pack(document) })
        same("packer", expected * 2, stressed { MP::Packer.new.write(document).write(document).to_s })
        same("io", expected, stressed { StringIO.new("".b).tap { |io| MP::Packer.new(io, io_buffer_size: 1024).write(document).flush }.string.b })
        same("own", own_expected, stressed { TYPES.dump(own) })
        same("own packer", own_expected, stressed { TYPES.packer.write(own).to_s })
      end
      # Values that objects' own methods create and return while the String with the bytes so far grows.
      made = [Point.new("p" * 60), Written.new("w" * 100), "é".encode("UTF-16LE") * 200, :"a symbol"]
      many = Array.new(300) { |i| i % 50 == 0 ? made : "x" * 60 }
      same("growing", TYPES.dump(many), stressed { TYPES.dump(many) })
    RUBY
  }.freeze

  CHECKS.each do |name, program|
    define_method("test_#{name}_under_stress_where_memory_grows") do
      assert_equal "done", ruby!("require 'stringio'\n#{COMMON}#{program}print 'done'", seconds: 100)
    end
  end
end

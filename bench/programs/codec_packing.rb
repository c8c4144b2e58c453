# frozen_string_literal: true

require "stringio"

# Packing of objects that are not plain values of Ruby's own classes, by the name of the case. Each lambda gets
# Penstock::MessagePack or the gem's MessagePack, and returns a block that packs the same bytes with either.
module CodecPacking
  Point = Struct.new(:x, :y)
  Left = Class.new(Point)
  Right = Class.new(Point)
  Other = Class.new
  Tree = Struct.new(:value, :children)
  Written = Struct.new(:x, :y) { def to_msgpack(packer) = packer.write_array_header(2).write(x).write(y) }
  Node = Struct.new(:value, :left, :right) do
    def to_msgpack(packer) = packer.write_array_header(3).write(value).write(left).write(right)
  end
  Packed = Struct.new(:x, :y) { def to_msgpack(packer) = packer.write([x, y]) }

  MAP = { "id" => 12_345, "name" => "Alice", "active" => true }.freeze
  LONG = ("x" * 20_000).freeze

  def self.points(type, count = 1_000) = Array.new(count) { |i| type.new(i, -i) }
  def self.nested(depth) = Array.new(depth).inject(1) { |inner, _| [inner] }
  def self.nested_maps(depth) = Array.new(depth).inject(1) { |inner, _| { "a" => inner } }
  def self.tree(depth) = Tree.new(depth, depth.zero? ? [] : [tree(depth - 1), tree(depth - 1)])
  def self.nodes(depth) = depth.zero? ? nil : Node.new(depth, nodes(depth - 1), nodes(depth - 1))
  def self.chain(depth, inner) = Array.new(depth).inject(inner) { |child, i| Tree.new(i, child) }

  def self.recursive(codec)
    codec::Factory.new.tap do |factory|
      factory.register_type(2, Tree, recursive: true, packer: ->(tree, packer) { packer.write(tree.value).write(tree.children) },
                                     unpacker: ->(unpacker) { Tree.new(unpacker.read, unpacker.read) })
    end
  end

  def self.factory(codec, type = Point)
    codec::Factory.new.tap do |factory|
      factory.register_type(1, type, packer: ->(point) { [point.x, point.y].pack("l>2") }, unpacker: ->(_) {})
      factory.register_type(3, Other, packer: ->(_) { "" }, unpacker: ->(_) {})
    end
  end

  def self.dump(codec, object) = -> { codec.pack(object) }

  def self.dump_with(factory, object) = -> { factory.dump(object) }

  def self.in_pool(codec, object)
    pool = codec::Factory.new.pool(2)
    -> { pool.packer { |packer| packer.write(object).to_s } }
  end

  def self.to_io(codec, objects)
    io = StringIO.new
    lambda {
      io.truncate(io.rewind)
      packer = codec::Packer.new(io)
      objects.each { |object| packer.write(object) }
      packer.flush
    }
  end

  def self.reused(codec, objects)
    packer = codec::Packer.new
    empty = emptying(packer)
    lambda {
      objects.each { |object| packer.write(object) }
      packer.to_s
      packer.public_send(empty)
    }
  end

  def self.reused_method(codec)
    packer = codec::Packer.new
    empty = emptying(packer)
    lambda {
      100.times { |i| yield packer, i }
      packer.to_s
      packer.public_send(empty)
    }
  end

  # The name that this version of the gem has for it.
  def self.emptying(packer) = packer.respond_to?(:reset) ? :reset : :clear

  CASES = {
    "an own to_msgpack" => ->(codec) { dump(codec, Written.new(1, 2)) },
    "own to_msgpack methods" => ->(codec) { dump(codec, points(Written)) },
    "own to_msgpack, nested" => ->(codec) { dump(codec, points(Packed)) },
    "own to_msgpack, a tree" => ->(codec) { dump(codec, nodes(7)) },
    "own to_msgpack in a factory" => ->(codec) { dump_with(factory(codec), points(Written)) },
    "registered ext" => ->(codec) { dump_with(factory(codec), points(Point)) },
    "alternating subclasses" => ->(codec) { dump_with(factory(codec), points(Left, 500).zip(points(Right, 500)).flatten) },
    "recursive ext" => ->(codec) { dump_with(recursive(codec), tree(7)) },
    "recursive ext, deep" => ->(codec) { dump_with(recursive(codec), chain(100, LONG)) },
    "pool.packer" => ->(codec) { in_pool(codec, MAP) },
    "pool.dump" => ->(codec) { dump_with(codec::Factory.new.pool(2), MAP) },
    "deep arrays" => ->(codec) { dump(codec, nested(100)) },
    "deep maps" => ->(codec) { dump(codec, nested_maps(100)) },
    "write_* of atoms" => lambda { |codec|
      reused_method(codec) { |packer, i| packer.write_nil.write_true.write_int(i).write_float(1.5) }
    },
    "write_* of texts" => lambda { |codec|
      reused_method(codec) { |packer, _| packer.write_string("text").write_symbol(:text).write_bin("text") }
    },
    "write_* of containers" => lambda { |codec|
      reused_method(codec) { |packer, _| packer.write_array_header(3).write_array([]).write_hash(MAP).write_map_header(0) }
    },
    "write_ext" => ->(codec) { reused_method(codec) { |packer, _| packer.write_ext(1, "payload") } },
    "Packer#write of atoms" => ->(codec) { reused(codec, [1, nil, "text", 1.5, :symbol, true] * 100) },
    "Packer to an IO" => ->(codec) { to_io(codec, [MAP] * 100) },
    "Packer to an IO, long strings" => ->(codec) { to_io(codec, [LONG] * 100) },
    "a reused Packer" => ->(codec) { reused(codec, [MAP]) },
    "a reused Packer, a long string" => ->(codec) { reused(codec, [LONG]) },
    "a new Packer" => ->(codec) { -> { codec::Packer.new.write(MAP).to_s } },
    "a long string" => ->(codec) { dump(codec, LONG) },
    "a very long string" => ->(codec) { dump(codec, "x" * 1_000_000) },
    "symbols" => ->(codec) { dump(codec, %i[one two three four] * 250) },
    "binary strings" => ->(codec) { dump(codec, ["\xFF binary".b] * 1_000) },
    "medium strings" => ->(codec) { dump(codec, ["x" * 100] * 1_000) },
    "maps with Symbol keys" => ->(codec) { dump(codec, [{ id: 1, name: "Alice", active: true }] * 100) }
  }.freeze

  # Cases that older versions of the gem do not support.
  SINCE = ["recursive ext", "recursive ext, deep", "pool.packer", "pool.dump"].to_h { |name| [name, "1.5.0"] }.freeze

  # Takes the place of the rest of codec.rb.
  def self.run(name, codec, version)
    packing = CASES.fetch(name)[codec]
    $stdout.sync = true
    puts JSON.generate(ready: "#{version}, Ruby #{RUBY_VERSION}", differs: [])
    while $stdin.gets
      GC.start
      cost = cost { packing.call }
      puts JSON.generate(seconds: cost / 1e6, delivered: 1, failed: 0, packing: cost)
    end
    exit
  end
end

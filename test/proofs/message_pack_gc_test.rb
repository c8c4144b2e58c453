# frozen_string_literal: true

require "objspace"
require_relative "../test_helper"
require_relative "../message_pack/support/test_case"
require_relative "../support/gc_pressure"

# What the garbage collector may do at any moment, and what objects leave behind.
class MessagePackGCTest < MessagePackTestCase
  Point = Struct.new(:left, :right) do
    def self.from_msgpack_ext(data) = new(*data.unpack("l>2"))
    def to_msgpack_ext = to_a.pack("l>2")
  end
  Tree = Struct.new(:value, :children)
  VALUE = { "key" => ["text", 1, 1.5, nil, "\xFF".b, { "inner" => [] }, 2**63] }.freeze
  RICH = [Point.new(1, -2), Tree.new("v", [Tree.new(1, [])]), { "k" => Point.new(3, 4) }].freeze

  def self.factory
    MP::Factory.new.tap do |made|
      made.register_type(1, Point)
      made.register_type(2, Tree, recursive: true, packer: ->(tree, packer) { packer.write(tree.value).write(tree.children) },
                                  unpacker: ->(unpacker) { Tree.new(unpacker.read, unpacker.read) })
    end
  end

  def teardown
    GCPressure.release
    super
  end

  def self.fed(data, **options) = MP::Unpacker.new(**options).feed(data)

  # ---- each entry point, with a collection at each allocation ----

  STRESSED = {
    pack: -> { MP.unpack(MP.pack(VALUE)) == VALUE },
    pack_to_io: -> { StringIO.new.tap { |io| MP.pack(VALUE, io) }.string.b == MP.pack(VALUE) },
    load_from_io: -> { MP.load(StringIO.new(MP.pack(VALUE))) == VALUE },
    load_byte_by_byte: -> { MP.load(Dripping.new(MP.pack(VALUE))) == VALUE },
    options: lambda {
      all = [{ symbolize_keys: true }, { freeze: true }, { key_cache: true }, { freeze: true, symbolize_keys: true }]
      all.all? { |options| MP.unpack(MP.pack({ "k" => %w[v v] }), **options).values == [%w[v v]] }
    },
    packer: lambda {
      one = MP::Packer.new
      one.write_array_header(7).write_nil.write_int(2**63).write_string("é".encode("UTF-16LE")).write_symbol(:s)
      one.write_bin("b").write_hash({ 1 => [2] }).write_ext(5, "ab")
      one.to_a.join == one.to_s && MP.unpack(one.full_pack, allow_unknown_ext: true)[2] == "é"
    },
    unpacker: lambda {
      one = fed(MP.pack([1, { "a" => 2 }, [nil]]))
      [one.read_array_header, one.read, one.skip, one.read_array_header, one.skip_nil] == [3, 1, nil, 1, true]
    },
    each: -> { fed(MP.pack(VALUE) * 2).each.to_a == [VALUE, VALUE] },
    feed_each_byte: lambda {
      one = MP::Unpacker.new
      MP.pack(VALUE).each_char.flat_map { |byte| one.feed_each(byte).to_a } == [VALUE]
    },
    full_unpack: -> { fed(MP.pack(VALUE)).full_unpack == VALUE },
    factory: -> { factory.load(factory.dump(RICH)) == RICH },
    factory_copies: -> { factory.freeze.dup.then { |one| one.load(one.dump(RICH)) == RICH && one.registered_types.size == 2 } },
    pool: -> { factory.pool(2).then { |pool| pool.load(pool.dump(RICH)) == RICH && pool.packer { |one| one.write(RICH).size } } },
    subclasses: -> { factory.then { |one| one.load(one.dump([Class.new(Point).new(1, 2)])) == [Point.new(1, 2)] } },
    symbols: lambda {
      one = MP::Factory.new
      one.register_type(0, Symbol)
      one.load(one.dump(%i[a é])) == %i[a é]
    },
    own_types: lambda {
      packer = MP::Packer.new
      packer.register_type(1, Range) { |range| range.begin.to_s }
      unpacker = MP::Unpacker.new
      unpacker.register_type(1) { |data| data.to_i..nil }
      unpacker.feed(packer.write([5..6]).to_s).read == [5..nil]
    },
    buffer: lambda {
      one = MP::Buffer.new
      one << "abc" << ("d" * 1000)
      [one.read(2), one.read_all(2), one.skip(1), one.to_a.join.size, one.read.size] == ["ab", "cd", 1, 998, 998]
    },
    buffer_with_io: -> { MP::Buffer.new(Dripping.new("abcdef", 2)).then { |one| [one.read(3), one.read] == %w[abc def] } },
    ext: -> { MP.unpack(MP.pack(MP::ExtensionValue.new(5, "ab")), allow_unknown_ext: true).payload == "ab" },
    timestamps: lambda {
      one = MP::Factory.new
      one.register_type(-1, Time, packer: MP::Time::Packer, unpacker: MP::Time::Unpacker)
      one.load(one.dump(Time.at(2**34, 5, :nsec))).nsec == 5
    },
    bigints: -> { MP::Bigint.from_msgpack_ext(MP::Bigint.to_msgpack_ext(-(2**100))) == -(2**100) },
    errors: lambda {
      [-> { MP.unpack("\xC1") }, -> { MP.unpack("\x92\x01") }, -> { MP.unpack("\x91" * 200) }, -> { MP.pack([2**64]) },
       -> { MP.pack([Object.new]) }, -> { MP.unpack("\xD4\x05a") }, -> { MP.unpack("\x01", unknown: 1) }].all? do |call|
        call.call && false
      rescue StandardError
        true
      end
    }
  }.freeze

  STRESSED.each do |name, call|
    define_method("test_#{name}_with_a_collection_at_each_allocation") do
      assert MessagePackGCTest.class_exec(&call), "without stress"
      assert GCPressure.under_stress(true) { MessagePackGCTest.class_exec(&call) }
    end
  end

  # ---- packing around each boundary, with a collection at each allocation ----

  # What a Packer has inside itself, what its Buffer holds, what a call keeps aside or on its stack, and what has grown.
  BOUNDARIES = [256, 4_096, 8_192, 16_384, 131_072].freeze

  Own = Struct.new(:value) { def to_msgpack(packer) = packer.write(value) }
  TRANSCODED = "é".encode("UTF-16LE").freeze
  Late = Struct.new(:value) do
    def to_msgpack(packer)
      packer.buffer # creates the packer's Buffer
      packer.write([value, Own.new(TRANSCODED)])
    end
  end

  # In each, a value with `size` bytes before it, the tested value in the middle, and a value after it.
  AROUND = {
    a_long_string: ->(size) { ["x" * size, "y" * 9_000, "z"] },
    transcoded: ->(size) { ["x" * size, "é".encode("UTF-16LE") * 9_000, 1] },
    own: ->(size) { ["x" * size, Own.new("y"), "z" * 300] },
    own_of_long_strings: ->(size) { ["y" * 9_000, Own.new("x" * size), "z" * 9_000] },
    late_buffer: ->(size) { ["x" * size, Late.new("y"), Own.new("z")] }, binary: ->(size) { ["x".b * size, "y".b * 9_000] },
    recursive: ->(size) { ["x" * size, Tree.new("y" * 9_000, [Tree.new(Point.new(1, 2), ["z" * size])]), 1] },
    nested: ->(size) { 40.times.inject("x" * size) { |inner, i| i.odd? ? Tree.new(i, [inner]) : Own.new([inner]) } },
    short: ->(size) { Array.new(size / 16) { |i| "text #{i}" } },
    a_map: ->(size) { { "x" * size => Point.new(1, 2), [1] => "y" * 9_000 } }
  }.freeze

  AROUND.each do |name, document|
    define_method("test_packing_#{name}_around_each_boundary_with_a_collection_at_each_allocation") do
      factory = MessagePackGCTest.factory
      BOUNDARIES.map { |size| document[size - 3] }.each do |value| # a str of that length has a header of 3 bytes
        expected = factory.dump(value)
        assert MP.unpack(expected, allow_unknown_ext: true)
        found = GCPressure.under_stress(true) do
          io = StringIO.new("".b)
          [factory.dump(value), factory.packer.write(value).to_s, factory.packer(io).write(value).flush && io.string]
        end
        assert_equal [expected] * 3, found
      end
    end
  end

  # Each level adds only its header.
  def test_120_payloads_within_each_other_are_not_copied_at_each_level
    factory = MessagePackGCTest.factory
    value = 120.times.inject("x" * 10_000_000) { |inner, _| Tree.new(nil, inner) }
    GC.start
    before = resident
    packed = factory.dump(value)
    assert_operator resident - before, :<, 60 * (2**20)
    assert_equal 10_000_000 + 5 + (120 * 7), packed.bytesize
  end

  # ---- random documents, whole, damaged and in pieces, with a collection at each allocation ----

  RANDOM = <<~'RUBY'
    MP = Penstock::MessagePack
    require ARGV[0]
    count, seed = ARGV.drop(1).map { |number| Integer(number) }
    Point = Struct.new(:payload)
    Tree = Struct.new(:all)
    TYPES = MP::Factory.new
    TYPES.register_type(1, Point, packer: nil, unpacker: ->(data) { Point.new(data) })
    TYPES.register_type(2, Tree, recursive: true, packer: nil, unpacker: ->(unpacker) { Tree.new(unpacker.each.to_a) })
    random = MessagePackRandom.new(seed)
    wrapped = ->(type, data) { "\xC9".b + [data.bytesize, type].pack("NC") + data }
    outcome = lambda do |pieces, options|
      one = TYPES.unpacker(allow_unknown_ext: true, max_elements: 10_000, **options)
      pieces.flat_map { |piece| one.feed_each(piece).to_a }
    rescue MP::UnpackError, EOFError => e
      e.class
    end
    count.times do |number|
      data = MP.pack(random.object).b
      data = random.damaged(data).b if number % 3 == 2
      data = "\x92".b + wrapped[2, data + wrapped[1, data[0, 40]]] + "\xC0".b if number.even?
      options = [{}, { freeze: true }, { symbolize_keys: true }][number % 3]
      third = data.size / 3
      [[data], [data[0, third], data[third, third], data[(third * 2)..]]].each do |pieces|
        expected = outcome[pieces, options].inspect
        GC.stress = 1
        found = outcome[pieces, options]
        GC.stress = false
        found.inspect == expected or abort "seed #{seed}, number #{number}: #{data.unpack1("H*")}"
      end
    end
    print "the same"
  RUBY

  def test_random_documents_are_the_same_with_a_collection_at_each_allocation
    seed = Integer(ENV.fetch("MESSAGE_PACK_SEED") { Random.new_seed % (2**32) })
    support = File.expand_path("../message_pack/support/random", __dir__)
    assert_equal "the same", ruby!(RANDOM, support, ENV.fetch("ROUNDS", "60"), seed.to_s, seconds: 300)
  end

  # ---- objects that are begun and not finished ----

  SUSPENDED = <<~'RUBY'
    require ARGV[0]
    MP = Penstock::MessagePack
    GC.auto_compact = true if RUBY_VERSION >= "3.2" # see GCLevel
    Tree = Struct.new(:value, :children)
    factory = MP::Factory.new
    seen = ["kept by the unpacker"]
    factory.register_type(2, Tree, recursive: true, packer: ->(tree, packer) { packer.write(tree.value).write(tree.children) },
                                   unpacker: ->(unpacker) { seen.size == 1 && Tree.new(unpacker.read, unpacker.read) })
    value = [["first #{"x" * 100}", 2**63, 1.1], { "key" => "value", [1] => { "inner" => ["a", "b" * 50] } },
             Tree.new("tree", [Tree.new(1, ["leaf"])]), "last", "y" * 1000]
    data = factory.dump(value)
    pieces = ->(cut) { [data.byteslice(0, cut), data.byteslice(cut..)] }
    cuts = (0..data.bytesize).step(7).to_a
    [{}, { freeze: true }, { symbolize_keys: true }, { key_cache: true }].each do |options|
      expected = factory.load(data, options)
      begun = GCPressure.aside do
        cuts.map do |cut|
          one = factory.unpacker(options)
          found = one.feed_each(pieces[cut][0]).to_a
          [cut, one, found]
        end
      end
      packers = GCPressure.aside { cuts.map { |cut| factory.packer.write_array_header(2).write("begun #{cut}") } }
      buffers = GCPressure.aside { cuts.map { |cut| MP::Packer.new.write("buffer #{cut}").buffer } }
      if options.empty?
        GCPressure.move_everything # once, for the reason in GCLevel
      else
        GCPressure.replace_garbage
        GC.compact
      end
      begun.each do |cut, one, found|
        found += one.feed_each(pieces[cut][1]).to_a
        found == [expected] or abort "cut at #{cut}, #{options}: #{found.inspect}"
      end
      packers.each_with_index do |one, i|
        MP.unpack(one.write([nil]).to_s) == ["begun #{cuts[i]}", [nil]] or abort "packer #{i}"
      end
      buffers.each_with_index { |one, i| one.read == MP.pack("buffer #{cuts[i]}") or abort "buffer #{i}" }
    end
    print "as they were"
  RUBY

  def test_partial_objects_between_two_feeds_survive_collection_and_compaction
    skip "no compaction here" unless GC.respond_to?(:verify_compaction_references)
    assert_equal "as they were", ruby!(SUSPENDED, File.expand_path("../support/gc_pressure", __dir__), seconds: 100)
  end

  # Old objects that get young values: each collection of young objects has to find them.
  def test_young_values_of_an_old_unpacker_and_types_of_an_old_factory_are_kept
    unpackers = Array.new(50) { MP::Unpacker.new }
    made = MP::Factory.new
    GCPressure.grow_old
    unpackers.each { |one| one.feed_each("\x93\xA5young".b) { |_| flunk } }
    GCPressure.aside { made.register_type(1, Point, packer: ->(_) { "proc #{name}" }, unpacker: ->(data) { [data, name] }) }
    GCPressure.replace_young_garbage
    assert_equal [["young", 1, 2]] * 50, (unpackers.map { |one| one.feed("\x01\x02").read })
    assert_equal ["proc #{name}", name], made.load(made.dump(Point.new(1, 2)))
  end

  # ---- user code that raises ----

  RAISING = <<~'RUBY'
    MP = Penstock::MessagePack
    Thing = Struct.new(:number)
    Written = Struct.new(:number) { def to_msgpack(packer) = packer.write(TEXT) && raise(KeyError) }
    TEXT = "x" * 30_000
    def type(**options) = MP::Factory.new.tap { |made| made.register_type(1, Thing, **options) }
    FINE = type(packer: ->(_) { TEXT }, unpacker: ->(data) { data })
    RECURSIVE = type(recursive: true, packer: ->(_, packer) { packer.write(TEXT) }, unpacker: ->(unpacker) { unpacker.read })
    EXT = [TEXT, FINE.load(FINE.dump(Thing.new(1))).to_s, Thing.new(1)]
    DATA = FINE.dump(EXT)
    NESTED = RECURSIVE.dump(EXT)
    IO_THAT_RAISES = Object.new
    def IO_THAT_RAISES.write(_) = raise(KeyError)
    def IO_THAT_RAISES.read(*) = raise(KeyError)
    BAD_KEY = Class.new { def hash = raise(KeyError) }
    POOL = FINE.pool(2)
    PACKING = type(packer: ->(_) { raise KeyError }, unpacker: nil)
    PACKING_NESTED = type(recursive: true, packer: ->(_, packer) { packer.write(TEXT) && raise(KeyError) }, unpacker: nil)
    UNPACKING = type(unpacker: ->(_) { raise KeyError })
    UNPACKING_NESTED = type(recursive: true, packer: nil, unpacker: ->(unpacker) { unpacker.read && raise(KeyError) })
    KEYS = type(unpacker: ->(_) { BAD_KEY.new })
    THROWING = type(unpacker: ->(_) { throw :out })
    HALF = type(packer: ->(_) { throw :out }, unpacker: nil)
    CALLS = {
      packer: -> { PACKING.dump(EXT) }, recursive_packer: -> { PACKING_NESTED.dump(EXT) },
      unpacker: -> { UNPACKING.load(DATA) }, recursive_unpacker: -> { UNPACKING_NESTED.load(NESTED) },
      to_msgpack: -> { MP.pack([TEXT, { TEXT => Written.new(1) }]) },
      io_to_write: -> { MP.pack([TEXT] * 3, IO_THAT_RAISES) }, io_to_read: -> { MP::Unpacker.new(IO_THAT_RAISES).feed(DATA[0..-2]).read },
      each: -> { MP::Unpacker.new.feed(MP.pack(TEXT) * 3).each { |_| raise KeyError } },
      feed_each: -> { MP::Unpacker.new.feed_each(MP.pack(TEXT) * 3) { |_| raise KeyError } },
      key: -> { KEYS.load(["81d40161c0"].pack("H*")) }, pool: -> { POOL.packer { |one| one.write(EXT) && raise(KeyError) } },
      pool_unpacker: -> { POOL.unpacker { |one| one.feed(DATA[0..-2]) && raise(KeyError) } },
      throw_out_of_unpacker: -> { catch(:out) { THROWING.load(DATA) } }, throw_out_of_packer: -> { catch(:out) { HALF.dump(EXT) } },
      cut_short: -> { FINE.load(DATA[0..-2]) }, malformed: -> { FINE.load(DATA + "\xC1".b) }, unknown_type: -> { MP.unpack(DATA) },
      no_to_msgpack: -> { MP.pack([TEXT, Object.new]) }, too_large: -> { MP.pack({ TEXT => 2**64 }) },
      not_an_encoding: -> { MP.pack([TEXT, "\x81".dup.force_encoding("Windows-1252")]) },
      abandoned: -> { MP::Unpacker.new.feed(DATA[0..-2]) && MP::Packer.new.write(TEXT) },
      wrong_options: -> { MP::Unpacker.new(nil, unknown: 1) }
    }
    def resident = File.read("/proc/self/statm").split[1].to_i * 4096
    def loops(call, count)
      count.times { begin; call.call; rescue StandardError, UncaughtThrowError; nil; end }
      GC.start.nil?
    end
    # Memory that grows once and is reused is no leak. A leak grows in every round.
    CALLS.each do |name, call|
      loops(call, 300)
      sizes = Array.new(4) { loops(call, Integer(ARGV[0])) && resident }
      puts "#{name} #{sizes.each_cons(2).map { |before, after| after - before }.min}"
    end
  RUBY

  LOOPS = 1_500 # iterations with 30,000 bytes or more each: a leak of them would add 45 MB in each round
  SLACK = 20 * (2**20)

  def test_user_code_that_raises_and_invalid_input_leak_no_memory
    ruby!(RAISING, LOOPS.to_s, seconds: 110).each_line do |line|
      name, more = line.split
      assert_operator more.to_i, :<, SLACK, name
    end
  end

  # ---- reported sizes ----

  def memsize(object) = ObjectSpace.memsize_of(object)

  def test_packers_buffers_and_unpackers_report_their_memory
    fill = { MP::Packer => ->(one, text) { one.write(text) }, MP::Buffer => ->(one, text) { one << text },
             MP::Unpacker => ->(one, text) { one.feed(text) } }
    fill.each do |type, add|
      one = type.new
      before = memsize(one)
      1_000.times { add[one, "\xDA\x03\xE8#{"x" * 1_000}".b] }
      held = memsize(one) + (one.is_a?(MP::Buffer) ? 0 : memsize(one.buffer))
      assert_operator held, :>=, before + 900_000, type
    end
  end

  def test_an_unpacker_keeps_nothing_of_a_finished_object
    one = MP::Unpacker.new
    3.times do
      one.feed_each("\x92\x01") { flunk }
      assert_equal [1, 2], one.feed("\x02").read
    end
    before = memsize(one)
    1_000.times { one.feed_each("\x92\x01") { flunk } || one.feed("\x02").read }
    assert_equal before, memsize(one)
  end

  def test_a_factorys_reported_size_grows_with_each_type
    sizes = [1, 100].map do |count|
      made = MP::Factory.new
      count.times { |type| made.register_type(type, Class.new(Point)) }
      made.packer
      ObjectSpace.each_object(MP.const_get(:Registry)).map { |one| memsize(one) }.max
    end
    assert_operator sizes[1], :>=, sizes[0] + (99 * 16)
  end

  # All native classes are checked.
  def test_each_native_class_reports_its_memory
    code = Dir[File.expand_path("../../ext/penstock/message_pack/*.c", __dir__)].map { |file| File.read(file) }.join
    types = code.scan(/^static const rb_data_type_t \w+ = \{.*?^\};/m)
    assert_equal %w[Buffer Packer Registry Unpacker], types.map { |type| type[/"Penstock::MessagePack::(\w+)"/, 1] }.sort
    assert types.all? { |type| type.include?(".dsize = ") }
  end

  def test_memory_that_a_packer_held_is_released
    GC.start
    before = resident
    50.times { MP::Packer.new.write("x" * 5_000_000).to_s }
    GC.start
    assert_operator resident - before, :<, 100 * (2**20)
  end
end

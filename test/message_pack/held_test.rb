# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"
require_relative "../support/gc_pressure"

# Objects that only a Registry, Buffer, Packer or Unpacker references stay alive, and are found again after they move. Each test
# fails without the mark, the write barrier or the relocation that it is about.
class MessagePackHeldTest < MessagePackTestCase
  include GCPressure

  slow

  MANY = 20 # one alone may survive by chance: a word on a stack may look like a reference to it
  Point = Struct.new(:left)
  PACKED = "\xD5\x01ab".b

  def setup
    super
    GC.stress = false # each test chooses when to collect
  end

  # Long enough that a Buffer references it instead of copying it.
  def text(number) = format("%05d", number) * 1_000

  def many(&block) = Array.new(MANY, &block)

  def texts = many { |i| text(i) }

  # Each factory has its own procs.
  def factory(number)
    MP::Factory.new.tap do |made|
      made.register_type(1, Point, packer: ->(_) { "p#{number}" }, unpacker: ->(data) { [data, number] })
    end
  end

  # Documents for such a Factory's unpackers, and the values that they read.
  def packed_points = many { |i| MP.pack(MP::ExtensionValue.new(1, "p#{i}")) }
  def unpacked_points = many { |i| ["ab", i] }

  # The unpacker has read the first of an Array's two values.
  def begin_object(unpacker, number) = unpacker.feed_each("\x92".b + MP.pack("value #{number}")) { flunk }
  def begun_objects = many { |i| ["value #{i}", 5] }

  # ---- marks: the only reference, with all other garbage collected ----

  def test_a_registry_keeps_its_packers_and_unpackers
    factories = aside { many { |i| factory(i) } }
    replace_garbage
    %i[packer unpacker].each do |selector|
      listed = factories.map { |one| one.registered_types(selector).map { |type| type.values_at(:type, :class) } }
      assert_equal [[[1, Point]]] * MANY, listed
    end
  end

  def test_a_buffer_keeps_a_long_string
    buffers = aside { many { |i| MP::Buffer.new << text(i) } }
    replace_garbage { "another of the same size".ljust(5_000) }
    assert_equal texts, buffers.map(&:to_s)
  end

  def test_a_buffer_keeps_its_io
    assert_kept { |klass| MP::Buffer.new(klass.new) }
  end

  # Packs objects that pack themselves. The class of each is anonymous and marked with the key.
  def write_own_objects(packers, key)
    packers.each_with_index do |one, i|
      klass = Class.new { define_method(:to_msgpack) { |packer| packer.write(i) } }
      klass.instance_variable_set(:@key, key)
      one.write(klass.new)
    end
  end

  # Ruby itself references the classes whose methods native code has called lately. This makes it forget them.
  def call_others = aside { write_own_objects(Array.new(5_000, MP::Packer.new), nil) && nil }

  def classes_with(key) = ObjectSpace.each_object(Class).count { |klass| klass.instance_variable_get(:@key).equal?(key) }

  def test_a_packer_keeps_the_class_that_it_packed_last
    key = Object.new
    packers = aside { write_own_objects(many { MP::Packer.new }, key) }
    call_others
    replace_garbage
    assert_equal MANY, classes_with(key)
    assert_equal((0...MANY).map { |i| MP.pack(i) }, packers.map(&:to_s))
  end

  def test_an_old_packer_keeps_a_young_class
    key = Object.new
    packers = many { MP::Packer.new }
    grow_old
    aside { write_own_objects(packers, key) && nil }
    call_others
    replace_young_garbage
    assert_equal MANY, classes_with(key)
  end

  def test_a_packer_keeps_its_buffer
    packers = aside { many { |i| MP::Packer.new.write(text(i)).tap(&:buffer) } }
    replace_garbage { MP::Buffer.new << "another" }
    assert_equal(texts.map { |text| MP.pack(text) }, packers.map(&:to_s))
  end

  def test_a_packer_keeps_its_registry
    packers = aside { many { |i| factory(i).packer } }
    replace_garbage { MP::Factory.new.register_type(1, Point) }
    assert_equal(packed_points, packers.map { |one| one.write(Point.new(1)).to_s })
  end

  def test_an_unpacker_keeps_its_buffer
    unpackers = aside { many { |i| MP::Unpacker.new.feed(MP.pack(text(i))) } }
    replace_garbage { MP::Buffer.new << "another" }
    assert_equal texts, unpackers.map(&:read)
  end

  def test_an_unpacker_keeps_the_buffer_that_it_returned
    unpackers = aside { many { |i| MP::Unpacker.new.feed(MP.pack(text(i))).tap(&:buffer) } }
    replace_garbage { MP::Buffer.new << "another" }
    assert_equal texts, unpackers.map(&:read)
  end

  def test_an_unpacker_keeps_its_io
    assert_kept { |klass| MP::Unpacker.new(klass.new) }
  end

  def test_an_unpacker_keeps_its_registry
    unpackers = aside { many { |i| factory(i).unpacker } }
    replace_garbage { MP::Factory.new.register_type(1, Point) }
    assert_equal(unpacked_points, unpackers.map { |one| one.feed(PACKED).read })
  end

  def test_an_unpacker_keeps_the_values_of_an_unfinished_object
    unpackers = aside { many { |i| MP::Unpacker.new.tap { |one| begin_object(one, i) } } }
    replace_garbage
    assert_equal(begun_objects, unpackers.map { |one| one.feed("\x05").read })
  end

  # More values than the stack array holds. They move to the heap, which the GC has to search as well.
  def test_many_values_of_open_containers_stay_alive_during_unpacking
    made = MP::Factory.new
    made.register_type(1, Point, unpacker: ->(_) { replace_garbage && :point })
    within = ->(innermost) { 6.times.inject(innermost) { |inner, i| [*Array.new(55) { |j| "value #{i} #{j}" }, inner] } }
    assert_equal within[:point], made.load(MP.pack(within[MP::ExtensionValue.new(1, "p")]))
  end

  # ---- the arguments of a call ----

  def test_the_source_string_may_change_during_unpacking
    data = +""
    changing = lambda do |_|
      data.replace("another")
      replace_garbage(1_000) { "y" * 7_300 }
    end
    made = MP::Factory.new.tap { |one| one.register_type(1, Point, packer: ->(_) { "p" }, unpacker: changing) }
    values = Array.new(50) { |i| "value #{i}" * 18 }
    aside { data << made.dump([Point.new(1)] + values) }
    assert_equal values, aside { made.load(data).drop(1) }
  end

  # ---- write barriers: an old object references a young one ----

  def test_an_old_buffer_keeps_a_young_long_string
    buffers = old { MP::Buffer.new }
    written_to { buffers.each_with_index { |one, i| one << text(i) } }
    assert_equal texts, buffers.map(&:to_s)
  end

  def test_an_old_buffer_keeps_a_young_io
    klass = Class.new
    buffers = old { MP::Buffer.allocate }
    written_to { buffers.each { |one| one.send(:initialize, klass.new) } }
    assert_equal [klass] * MANY, (buffers.map { |one| one.io.class })
  end

  def test_an_old_packer_keeps_a_young_buffer
    packers = old { MP::Packer.new }
    written_to { packers.each_with_index { |one, i| one.write(text(i)).buffer } }
    assert_equal(texts, packers.map { |one| MP.unpack(one.to_s) })
  end

  def test_an_old_packer_keeps_the_young_buffer_of_its_io
    packers = old { MP::Packer.allocate }
    written_to { packers.each_with_index { |one, i| one.send(:initialize, StringIO.new) && one.write(text(i)) } }
    assert_equal(texts, packers.map { |one| MP.unpack(one.to_s) })
  end

  def test_an_old_packer_keeps_its_own_types
    packers = old { MP::Packer.new }
    written_to { packers.each_with_index { |one, i| one.register_type(1, Point) { |_| "p#{i}" } } }
    assert_equal(packed_points, packers.map { |one| one.write(Point.new(1)).to_s })
  end

  def test_an_old_unpacker_keeps_a_young_buffer
    unpackers = old { MP::Unpacker.new }
    written_to { unpackers.each_with_index { |one, i| one.buffer << MP.pack(text(i)) } }
    assert_equal texts, unpackers.map(&:read)
  end

  def test_an_old_unpacker_keeps_a_young_string_that_was_fed
    unpackers = old { MP::Unpacker.new }
    written_to { unpackers.each_with_index { |one, i| one.feed(MP.pack(text(i))) } }
    assert_equal texts, unpackers.map(&:read)
  end

  def test_an_old_unpacker_keeps_a_young_io
    klass = Class.new
    unpackers = old { MP::Unpacker.allocate }
    written_to { unpackers.each { |one| one.send(:initialize, klass.new) } }
    assert_equal [klass] * MANY, (unpackers.map { |one| one.buffer.io.class })
  end

  def test_an_old_unpacker_keeps_its_own_types
    unpackers = old { MP::Unpacker.new }
    written_to { unpackers.each_with_index { |one, i| one.register_type(1) { |data| [data, i] } } }
    assert_equal(unpacked_points, unpackers.map { |one| one.feed(PACKED).read })
  end

  def test_an_old_unpacker_keeps_young_values
    unpackers = old { MP::Unpacker.new }
    written_to { unpackers.each_with_index { |one, i| begin_object(one, i) } }
    assert_equal(begun_objects, unpackers.map { |one| one.feed("\x05").read })
  end

  # ---- relocations ----

  MOVED = <<~'RUBY'
    require ARGV[0]
    include GCPressure
    MP = Penstock::MessagePack
    MANY = 50
    PACKED = "\xD5\x01ab".b
    def many(&block) = aside { Array.new(MANY, &block) }
    def klass(number) = Struct.new(:left) { define_singleton_method(:from) { |data| [data, number] } }
    def same(expected, actual) = expected == actual || abort("expected #{expected.inspect}, got #{actual.inspect}")
    def text(number) = format("%05d", number) * 1_000
    def packed(number) = MP.pack(MP::ExtensionValue.new(1, "p#{number}"))
    def factory(number, type = klass(number))
      MP::Factory.new.tap { |made| made.register_type(1, type, packer: ->(_) { "p#{number}" }, unpacker: :from) }
    end
    def by_proc(number)
      MP::Factory.new.tap do |made|
        made.register_type(1, Object, packer: ->(_) { "p#{number}" }, unpacker: ->(data) { [data, number] })
      end
    end
  RUBY

  def test_references_of_a_registry_are_updated_after_a_move
    moved(<<~'RUBY')
      factories = many { |i| factory(i) }
      others = many { |i| by_proc(i) }
      move_everything
      factories.each_with_index do |one, i|
        type = one.registered_types(:packer)[0][:class]
        same [packed(i), ["ab", i]], [one.dump(type.new(1)), one.load(PACKED)]
        same [[1, type]], one.registered_types(:unpacker).map { |entry| entry.values_at(:type, :class) }
      end
      others.each_with_index { |one, i| same [packed(i), ["ab", i]], [one.dump(Object.new), one.load(PACKED)] }
    RUBY
  end

  def test_references_of_a_buffer_are_updated_after_a_move_or_pinned
    moved(<<~'RUBY')
      class NamedIO
        attr_reader :number

        def initialize(number) = @number = number
      end
      buffers = many { |i| MP::Buffer.new(NamedIO.new(i)) << text(i) }
      move_everything
      same (0...MANY).to_a, buffers.map { |one| one.io.number }
      same Array.new(MANY) { |i| text(i) }, buffers.map(&:to_s)
    RUBY
  end

  def test_references_of_a_packer_are_updated_after_a_move
    moved(<<~'RUBY')
      packers = many { |i| by_proc(i).packer.write(i).tap(&:buffer) }
      own = many { |i| MP::Packer.new.write(Class.new { define_method(:to_msgpack) { |packer| packer.write(i) } }.new) }
      move_everything
      same Array.new(MANY) { |i| MP.pack(i) }, own.map(&:to_s)
      same Array.new(MANY) { |i| MP.pack(i) }, packers.map { |one| one.buffer.read }
      same Array.new(MANY) { |i| packed(i) }, packers.map { |one| one.write(Object.new).to_s }
    RUBY
  end

  def test_references_of_an_unpacker_are_updated_after_a_move
    moved(<<~'RUBY')
      unpackers = many { |i| by_proc(i).unpacker.tap { |one| one.feed_each("\x93".b + MP.pack("value #{i}")) { abort } } }
      move_everything
      found = unpackers.each_with_index.map { |one, i| one.feed(PACKED + MP.pack(i)).read }
      same Array.new(MANY) { |i| ["value #{i}", ["ab", i], i] }, found
    RUBY
  end

  def test_the_source_of_an_unpacker_is_updated_after_a_move
    moved(<<~'RUBY')
      class NamedIO
        attr_reader :number

        def initialize(number) = @number = number
      end
      unpackers = many { |i| MP::Unpacker.new(NamedIO.new(i)) }
      with_buffers = many { |i| MP::Unpacker.new.feed(text(i)).tap(&:buffer) }
      move_everything
      same (0...MANY).to_a, unpackers.map { |one| one.buffer.io.number }
      same Array.new(MANY) { |i| text(i) }, with_buffers.map { |one| one.buffer.to_s }
    RUBY
  end

  private

  def assert_kept(klass = Class.new)
    kept = aside { many { yield klass } }
    replace_garbage
    assert_equal MANY, count(klass)
    assert_equal MANY, kept.size
  end

  def old(&block) = many(&block).tap { grow_old }

  def written_to(&block)
    aside(&block)
    GC.verify_internal_consistency # reports a missing reference and aborts
    replace_young_garbage
  end

  def moved(program)
    skip "no compaction here" unless GC.respond_to?(:verify_compaction_references)
    ruby!(MOVED + program, File.expand_path("../support/gc_pressure", __dir__), seconds: 60)
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"

# Packing of deeply nested values, of values that contain themselves, and of values that change while they are packed.
class MessagePackDeepTest < MessagePackTestCase
  slow(/too_deep_for_the_stack/)

  # ---- depth ----

  def test_20_000_levels_are_packed_on_the_main_thread
    assert_equal Thread.main, Thread.current
    arrays = nested_arrays(20_000)
    assert MP.pack(arrays) == "#{("\x91".b * 20_000)}\u0001"
    assert MP::Packer.new.write(arrays).to_s == "#{("\x91".b * 20_000)}\u0001"
    maps = Array.new(10_000).inject(1) { |inner, _| { 1 => inner } } # one level more is too deep for Ruby's own construction
    assert MP.pack(maps) == "#{("\x81\x01".b * 10_000)}\u0001"
  end

  def test_20_000_levels_are_unpacked_if_max_depth_allows_them
    value = MP.unpack("#{("\x91".b * 20_000)}\u0001", max_depth: 20_000)
    depth = 0
    depth += 1 while (value = value[0]).is_a?(Array)
    assert_equal [19_999, 1], [depth, value]
  end

  def test_max_depth_limits_packing
    assert_equal "#{"\x91" * 10}\x01".b, MP.pack(nested_arrays(10), max_depth: 10)
    assert_raises(MP::StackError) { MP.pack(nested_arrays(11), max_depth: 10) }
    one = MP::Packer.new(max_depth: 2).write([[1]])
    assert_raises(MP::StackError) { one.write([{ "a" => [1] }]) }
    assert_equal "\x91\x91\x01".b, one.to_s
  end

  Shell = Struct.new(:inner)
  Written = Struct.new(:inner) { def to_msgpack(packer) = packer.write(inner) }

  def test_max_depth_counts_objects_that_write_themselves_and_registered_types
    recursive = MP::Factory.new
    recursive.register_type(1, Shell, recursive: true, packer: ->(shell, packer) { packer.write(shell.inner) })
    { Written => MP::DefaultFactory, Shell => recursive }.each do |type, factory|
      deep = 20.times.inject(1) { |inner, _| type.new(inner) }
      assert_equal factory.dump(deep), factory.dump(deep, max_depth: 20)
      [-> { factory.dump(deep, max_depth: 19) }, -> { factory.packer(max_depth: 19).write(deep) }].each do |call|
        assert_match(/max_depth/, assert_raises(MP::StackError, &call).message)
      end
    end
  end

  # From the second time on, a shorter code path packs objects of the class.
  def test_max_depth_counts_objects_of_a_class_that_was_packed_before
    [1, [1, 2]].each do |innermost|
      levels = innermost.is_a?(Array) ? 5 : 4
      deep = 4.times.inject(innermost) { |inner, _| Written.new(inner) }
      one = MP::Packer.new(max_depth: levels)
      2.times { one.write(deep) }
      one = MP::Packer.new(max_depth: levels - 1)
      3.times { assert_match(/max_depth/, assert_raises(MP::StackError) { one.write(Written.new(nil)).write(deep) }.message) }
    end
  end

  def test_max_depth_counts_types_that_write_to_the_packer_that_packs_them
    one = MP::Packer.new(max_depth: 50)
    one.register_type(1, Shell) { |shell| one.write(shell).to_s }
    assert_match(/max_depth/, assert_raises(MP::StackError) { one.write(Shell.new) }.message)
  end

  def test_a_value_that_contains_itself_raises_and_leaves_no_bytes
    array = [1]
    array << array
    hash = { "a" => 1 }
    hash["b"] = hash
    first = []
    second = {}
    first << second
    second[1] = first
    [array, hash, first, second].each do |value|
      one = MP::Packer.new.write("before")
      assert_raises(MP::StackError) { one.write(value) }
      assert_equal "\xA6before".b, one.to_s
    end
  end

  def test_an_object_that_writes_itself_endlessly_raises_wherever_it_is
    endless = Object.new
    def endless.to_msgpack(packer) = packer.write_array([self])
    [endless, [endless], [[endless]]].each do |value|
      assert_raises(MP::StackError) { MP.pack(value) }
      one = MP::Packer.new.write("before")
      assert_raises(MP::StackError) { one.write(value) }
      assert_equal "\xA6before".b, one.to_s
    end
  end

  # In each, every deep value must end in an error, and the packer must work afterwards.
  SMALL_STACKS = <<~'RUBY'
    MP = Penstock::MessagePack
    Shell = Struct.new(:inner)
    Written = Struct.new(:inner) { def to_msgpack(packer) = packer.write(inner) }
    FACTORY = MP::Factory.new
    FACTORY.register_type(1, Shell, recursive: true, packer: ->(shell, packer) { packer.write(shell.inner) },
                                    unpacker: ->(unpacker) { Shell.new(unpacker.read) })
    def deep(levels = 200_000) = levels.times.inject(1) { |inner, _| yield inner }
    DEEP = { arrays: deep { |inner| [inner] }, maps: deep { |inner| { 1 => inner } }, keys: deep { |inner| {}.compare_by_identity.tap { |map| map[[inner]] = 1 } },
             shells: deep { |inner| Shell.new(inner) }, written: deep { |inner| Written.new(inner) },
             mixed: deep { |inner| [{ 1 => Shell.new([Written.new(inner)]) }] } }
    EXTS = 20_000.times.inject("\x05".b) { |inner, _| ["c9"].pack("H*") + [inner.bytesize, 1].pack("L>c") + inner }
    OUTER = "\x91".b * 1_000_000

    def ended
      yield
      "nothing was raised"
    rescue MP::StackError, SystemStackError => e
      e.class.name
    end

    def all
      results = DEEP.map { |name, value| "#{name} #{ended { FACTORY.dump(value) }}" }
      results << "exts #{ended { FACTORY.load(EXTS, max_depth: 1_000_000) }}"
      value = begin
        MP.unpack(OUTER + "\x01", max_depth: 1_000_001) && "read"
      rescue MP::StackError, SystemStackError
        "read"
      end
      results << "outer #{value}"
      results << "afterwards #{FACTORY.load(FACTORY.dump([Shell.new([1])])) == [Shell.new([1])]}"
    end
    puts instance_eval(ARGV[0])
  RUBY

  ENDED = /\A(\w+) (Penstock::MessagePack::StackError|SystemStackError|read|true)\z/

  { a_fiber: "Fiber.new { all }.resume", a_thread: "Thread.new { all }.value",
    a_fiber_of_a_thread: "Thread.new { Fiber.new { all }.resume }.value", the_main_thread: "all",
    an_enumerator: "Enumerator.new { |to| to << all }.next" }.each do |name, call|
    define_method("test_a_value_too_deep_for_the_stack_of_#{name}_raises_an_error") do
      lines = ruby!(SMALL_STACKS, call, seconds: 100).lines(chomp: true)
      assert_equal 9, lines.size
      lines.each { |line| assert_match ENDED, line }
      lines.grep(/\A(arrays|maps|exts) /).each { |line| assert_match(/MessagePack::StackError/, line) }
    end
  end

  thorough slow def test_the_smallest_stacks_of_ruby_are_large_enough_to_raise_the_error
    with_small_stacks do
      ["Fiber.new { all }.resume", "Thread.new { all }.value"].each do |call|
        ruby!(SMALL_STACKS, call, seconds: 100).each_line(chomp: true) { |line| assert_match ENDED, line }
      end
    end
  end

  # Otherwise, Ruby itself crashes when its stack ends in the middle of a collection. Each allocation collects, but only from the
  # deepest level on that can still call a method: from the first level on, this took half a minute with Ruby 3.4.
  slow def test_a_collection_near_the_end_of_the_stack_has_enough_stack_left
    output = with_small_stacks { ruby!(<<~'RUBY') }
      MP = Penstock::MessagePack
      MOST = 4_000 # levels, more than the stack has space for
      Written = Struct.new(:inner) { def to_msgpack(packer) = packer.write(inner) }
      Stressing = Class.new(Written) { def to_msgpack(packer) = (GC.stress = 1) && packer.write(inner) }
      KINDS = { arrays: ->(inner, stress) { [stress ? Stressing.new(1) : "é".encode("UTF-16LE"), inner] },
                written: ->(inner, stress) { (stress ? Stressing : Written).new(inner) } }
      PACKS = [MP.method(:pack), ->(value) { MP::Packer.new.write(value) }]

      # @param stress_at [Integer, nil] the level, counted from the outermost one
      def nested(kind, levels, stress_at = nil) = levels.downto(1).inject(1) { |inner, level| kind.call(inner, level == stress_at) }

      # @return [Boolean] whether the stack ended
      def ends?(pack, value)
        Fiber.new do
          pack.call(value)
          false
        rescue MP::StackError
          true
        ensure
          GC.stress = false
        end.resume
      end

      KINDS.each_value.to_a.product(PACKS) do |kind, pack|
        calling = (1..MOST).bsearch { |levels| ends?(pack, nested(kind, levels, levels)) } - 1
        value = nested(kind, MOST, calling - 2)
        before = GC.count
        puts ends?(pack, value) && GC.count > before
      end
    RUBY
    assert_equal "true\n" * 4, output
  end

  def with_small_stacks
    sizes = { "RUBY_FIBER_MACHINE_STACK_SIZE" => "131072", "RUBY_THREAD_MACHINE_STACK_SIZE" => "131072" }
    before = sizes.keys.to_h { |key| [key, ENV.fetch(key, nil)] }
    ENV.update(sizes)
    yield
  ensure
    ENV.update(before)
  end

  # ---- values that change while they are packed ----

  # Runs the block when it is packed.
  class Doing
    def initialize(&block) = @block = block

    def to_msgpack(packer)
      @block.call
      packer.write(1)
    end
  end

  def test_a_hash_that_changes_its_size_raises_and_leaves_no_bytes
    [->(hash) { hash["new"] = 1 }, ->(hash) { hash.delete("z") }, proc(&:clear),
     ->(hash) { hash.replace((1..1000).to_h { |i| [i, i] }) }].each do |change|
      hash = {}
      hash.update("a" => 1, "b" => Doing.new { change[hash] }, "z" => 3)
      one = MP::Packer.new.write(5)
      assert_raises(RuntimeError) { one.write([1, hash]) }
      assert_equal "\x05", one.to_s
    end
  end

  def test_an_array_that_changes_its_size_raises_and_leaves_no_bytes
    [->(array) { array << 1 }, proc(&:pop), proc(&:clear),
     ->(array) { array.replace([1] * 1000) }].each do |change|
      array = []
      array.push(1, Doing.new { change[array] && GC.start }, 3, 4)
      one = MP::Packer.new.write(5)
      assert_raises(RuntimeError) { one.write([1, array]) }
      assert_equal "\x05", one.to_s
    end
  end

  # A hundred elements each: anything read beyond the end is not a value.
  def test_an_array_that_gets_shorter_is_not_read_beyond_its_end
    20.times do
      array = Array.new(100) { |i| "value #{i}" }
      array[1] = Doing.new { array.replace([]) && GC.start }
      assert_raises(RuntimeError) { MP.pack(array) }
    end
  end

  # A long String is copied last.
  def test_a_long_string_is_written_as_it_was_before_a_later_change
    text = "a" * 100_000
    shorter = Doing.new { text.replace("b") }
    assert_equal ["a" * 100_000, 1, "b"], MP.unpack(MP.pack([text, shorter, text]))
    text.replace("a" * 100_000)
    assert_equal ["a" * 100_000, 1, "b"], MP.unpack(MP::Packer.new.write([text, shorter, text]).to_s)
    text.replace("a" * 100_000)
    registered = MP::Factory.new # this type's packer gets no Packer to write to, so long Strings are kept aside
    registered.register_type(1, Shell, packer: ->(_) { text.replace("b") }, unpacker: ->(data) { data })
    assert_equal ["a" * 100_000, "b", "b"], registered.load(registered.dump([text, Shell.new, text]))
  end

  def test_a_replaced_element_is_written_with_its_new_value
    array = [nil, "old", "old"]
    array[0] = Doing.new { array[1] = "new" }
    assert_equal [1, "new", "old"], MP.unpack(MP.pack(array))
  end

  def test_a_packer_stays_usable_when_objects_being_packed_use_it
    one = MP::Packer.new
    meddling = %i[reset clear full_pack to_s flush].map { |method| Doing.new { one.public_send(method) } }
    meddling.each do |value|
      one.write([1, value, 2])
    rescue StandardError
      nil # the packer may raise
    ensure
      one.reset
      assert_equal "\x07", one.write(7).full_pack
    end
  end
end

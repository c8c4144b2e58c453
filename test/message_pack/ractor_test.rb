# frozen_string_literal: true

require_relative "../test_helper"

# The programs run in separate processes: a Ractor changes a process permanently, and Ruby warns that Ractors are experimental.
class MessagePackRactorTest < PenstockTest
  STORM = File.expand_path("support/storm.rb", __dir__)
  # Ruby 3.1 itself sometimes crashes when Ractors call methods from C during a compaction:
  # test/message_pack/support/control.rb.
  COMPACT = RUBY_VERSION < "3.2" ? "no" : "yes"

  def test_many_ractors_pack_and_unpack_at_once_beside_collections
    size = GCLevel.slow? ? "100" : "3000"
    includes = LIBRARIES.flat_map { |path| ["-I", path] }
    output, errors, status = Limited.capture3(RbConfig.ruby, "-w", *includes, STORM, "4", size, COMPACT)
    assert status.success?, "#{status}: #{output}#{errors}"
    assert_match(/\Amessage_pack storm: 4 Ractors, \d+ round trips, 0 mismatches; [1-9]\d* collections/, output.lines.last)
  end

  PRELUDE = <<~'RUBY'
    Warning[:experimental] = false
    MP = Penstock::MessagePack
    Point = Struct.new(:left, :right)

    # Returns a Ractor's value, or raises its error. It polls for the end: see test/support/ractor_wakeups.rb.
    def value_of(ractor)
      sleep 0.001 until ractor.inspect.end_with?(" terminated>")
      ractor.respond_to?(:value) ? ractor.value : ractor.take
    rescue Ractor::RemoteError => e
      raise e.cause, cause: nil
    end

    # Procs are shareable if their `self` is shareable.
    module Procs
      POINT = Ractor.make_shareable(->(point) { [point.left, point.right].pack("l>2") })
      TO_POINT = Ractor.make_shareable(->(data) { Point.new(*data.unpack("l>2")) })
      LARGE = Ractor.make_shareable(->(number) { MP::Bigint.to_msgpack_ext(number) })
      TO_LARGE = Ractor.make_shareable(->(data) { MP::Bigint.from_msgpack_ext(data) })
    end

    def of_points
      MP::Factory.new.tap { |made| made.register_type(1, Point, packer: Procs::POINT, unpacker: Procs::TO_POINT) }
    end

    def error_of
      yield
      "nothing was raised"
    rescue Exception => e
      e.class.name
    end
  RUBY

  # @return [Object] the value that the program prints in its last line
  def ractors(program, seconds: 60)
    *lines, last = program.lines.map(&:chomp).reject(&:empty?)
    output = ruby!("#{PRELUDE}\n#{lines.join("\n")}\nrequire \"json\"\nputs JSON.generate(#{last})", seconds:)
    JSON.parse(output.lines.last)
  end

  def test_the_module_methods_and_the_default_factory_work_in_a_ractor
    assert_equal [true, [1, { "a" => nil }], [2], [3]], ractors(<<~'RUBY')
      made = Ractor.new do
        value = [1, { "a" => nil }]
        [MP.pack(value) == MP.dump(value), MP.unpack(MP.pack(value)), MP.load(MP::DefaultFactory.dump([2])),
         MP::DefaultFactory.load(MP.pack([3]))]
      end
      value_of(made)
    RUBY
  end

  def test_packers_unpackers_factories_pools_and_buffers_work_in_a_ractor
    assert_equal [[1, 2], "P7", "abc", [5, -6], [5, -6]], ractors(<<~'RUBY')
      made = Ractor.new do
        unpacker = MP::Unpacker.new
        own = MP::Factory.new
        own.register_type(1, Point, packer: ->(point) { "P#{point.left}" }, unpacker: ->(data) { data })
        other = of_points
        pool = other.pool(2)
        [unpacker.feed(MP::Packer.new.write([1, 2]).to_s).read, own.load(own.dump(Point.new(7))), (MP::Buffer.new << "abc").read,
         other.load(other.dump(Point.new(5, -6))).to_a, pool.load(pool.dump(Point.new(5, -6))).to_a]
      end
      value_of(made)
    RUBY
  end

  def test_one_shareable_factory_and_its_pool_serve_all_ractors_at_once
    assert_equal [[true, true], 0], ractors(<<~'RUBY')
      factory = Ractor.make_shareable(of_points)
      pool = factory.pool(2)
      made = Array.new(4) do |number|
        Ractor.new(factory, pool, number) do |factory, pool, number|
          (0...2_000).count do |i|
            value = [Point.new(number, i), "text #{i}"]
            factory.load(factory.dump(value)) != value || pool.load(pool.dump(value)) != value ||
              factory.unpacker.feed(factory.packer.write(value).to_s).read != value
          end
        end
      end
      [[factory, pool].map { |one| Ractor.shareable?(one) }, made.sum { |ractor| value_of(ractor) }]
    RUBY
  end

  # Each Ractor caches its own lookups, so that no Ractor writes where another one reads.
  def test_ractors_may_use_their_own_subclasses_with_a_shared_factory
    assert_equal 0, ractors(<<~'RUBY')
      factory = Ractor.make_shareable(of_points)
      made = Array.new(4) do |number|
        classes = Ractor.make_shareable(Array.new(500) { Class.new(Point) })
        Ractor.new(factory, number, classes) do |factory, number, classes|
          (0...2_000).count do |i|
            factory.load(factory.dump(classes[i % 500].new(number, i))) != Point.new(number, i)
          end
        end
      end
      made.sum { |ractor| value_of(ractor) }
    RUBY
  end

  def test_a_factory_with_an_unshareable_proc_cannot_be_shared_and_stays_usable
    assert_equal ["Ractor::IsolationError", "7"], ractors(<<~'RUBY')
      outside = +"changes"
      factory = MP::Factory.new
      factory.register_type(1, Point, packer: ->(point) { outside << "!"; point.left.to_s }, unpacker: ->(data) { data })
      [error_of { Ractor.make_shareable(factory) }, factory.load(factory.dump(Point.new(7)))]
    RUBY
  end

  def test_the_default_factory_is_shareable_and_immutable_in_a_ractor_too
    assert_equal [true, "FrozenError"], ractors(<<~'RUBY')
      made = Ractor.new { error_of { MP::DefaultFactory.register_type(1, Point) } }
      [Ractor.shareable?(MP::DefaultFactory), value_of(made)]
    RUBY
  end

  def test_options_work_in_a_ractor
    assert_equal ["a", 1, true, "da0020", 5, "ArgumentError"], ractors(<<~'RUBY')
      made = Ractor.new do
        [MP.unpack(MP.pack({ "a" => 1 }), symbolize_keys: true).keys[0], MP.unpack(MP.pack({ "a" => 1 }), key_cache: true)["a"],
         MP.unpack(MP.pack(["a"]), freeze: true)[0].frozen?, MP.pack("a" * 32, compatibility_mode: true)[0, 3].unpack1("H*"),
         MP.unpack("\xD4\x05a".b, allow_unknown_ext: true).type, error_of { MP.unpack("\x01", symbolise: true) }]
      end
      value_of(made)
    RUBY
  end

  def test_errors_are_raised_in_a_ractor_too
    names = %w[MalformedFormatError MalformedFormatError StackError UnexpectedTypeError UnknownExtTypeError LimitError]
    names.map! { |name| "Penstock::MessagePack::#{name}" }
    assert_equal [*names, "EOFError", "NoMethodError", "RangeError"], ractors(<<~'RUBY')
      made = Ractor.new do
        [error_of { MP.unpack("\xC1") }, error_of { MP.unpack("\x01\x01") }, error_of { MP.unpack("\x91" * 200) },
         error_of { MP::Unpacker.new.feed("\x01").read_array_header }, error_of { MP.unpack("\xD4\x05a") },
         error_of { MP.unpack("\x93\x01\x02\x03", max_elements: 2) }, error_of { MP.unpack("\x92") },
         error_of { MP.pack(Object.new) }, error_of { MP.pack(2**64) }]
      end
      value_of(made)
    RUBY
  end

  def test_values_unpacked_with_freeze_are_shareable
    assert_equal [true, { "a" => ["text", 1] }], ractors(<<~'RUBY')
      value = MP.unpack(MP.pack({ "a" => ["text", 1] }), freeze: true)
      made = Ractor.new(value) { |got| [got.object_id, got] }
      id, got = value_of(made)
      [id == value.object_id, got]
    RUBY
  end

  def test_time_symbol_and_bigint_types_work_in_a_shared_factory
    assert_equal [true, true, true], ractors(<<~'RUBY')
      factory = MP::Factory.new
      factory.register_type(-1, Time, packer: MP::Time::Packer, unpacker: MP::Time::Unpacker)
      factory.register_type(0, Symbol)
      factory.register_type(17, Integer, packer: Procs::LARGE, unpacker: Procs::TO_LARGE, oversized_integer_extension_type: true)
      made = Ractor.new(Ractor.make_shareable(factory)) do |factory|
        values = [Time.at(5), :a, -(2**70)]
        values.zip(factory.load(factory.dump(values))).map { |value, found| value == found }
      end
      value_of(made)
    RUBY
  end

  def test_a_ractor_that_ends_during_packing_does_not_disturb_the_others
    assert_equal 0, ractors(<<~'RUBY')
      factory = Ractor.make_shareable(of_points)
      pool = factory.pool(1)
      leaving = Array.new(4) do
        Ractor.new(factory, pool) do |factory, pool|
          factory.unpacker.feed("\x93\x01")
          pool.packer { |packer| packer.write(1) && break }
          factory.dump([1, Point.new(1, 2)])
        end
      end
      leaving.each { |ractor| value_of(ractor) }
      GC.start
      (0...1_000).count { |i| pool.load(pool.dump(Point.new(i, i))) != Point.new(i, i) }
    RUBY
  end
end

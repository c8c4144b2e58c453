# frozen_string_literal: true

# Many Ractors that pack and unpack, in every way, during garbage collection and compaction. To run it as a program:
#
#   ruby -Ilib test/message_pack/support/storm.rb [RACTORS [ROUND TRIPS OF EACH [COMPACT: yes or no]]]
#
# Its last line is the figure. It fails when a value comes back changed. control.rb shows whether Ruby by itself does
# so, or crashes.

require "stringio"
require "penstock/message_pack"
require_relative "random"

Warning[:experimental] = false

# The work of one Ractor, and the objects that all share.
class MessagePackStorm
  MP = Penstock::MessagePack
  VALUES = 300 # in each Ractor; each is packed and unpacked many times
  # Packed as an ext. All Ractors use its packer and unpacker at once.
  Point = Struct.new(:left, :right)
  # Packed as a recursive ext.
  Tree = Struct.new(:value, :children)

  def self.factory
    made = MP::Factory.new
    made.register_type(1, Point, packer: Ractor.make_shareable(->(point) { [point.left, point.right].pack("l>2") }),
                                 unpacker: Ractor.make_shareable(->(data) { Point.new(*data.unpack("l>2")) }))
    made.register_type(2, Tree, recursive: true,
                                packer: Ractor.make_shareable(->(tree, packer) { packer.write(tree.value).write(tree.children) }),
                                unpacker: Ractor.make_shareable(->(unpacker) { Tree.new(unpacker.read, unpacker.read) }))
    made.register_type(-1, Time, packer: MP::Time::Packer, unpacker: MP::Time::Unpacker)
    Ractor.make_shareable(made)
  end

  WAYS = %i[module_methods shared_factory shared_pool in_pieces through_an_io frozen symbolized of_its_own errors].freeze

  # Runs in a Ractor.
  class Part
    # @return [Array<String>] the values that came back changed
    def self.run(number, size, factory, pool) = new(number, factory, pool).run(size)

    def initialize(number, factory, pool)
      random = MessagePackRandom.new(number, exact: true)
      @number = number
      @factory = factory
      @pool = pool
      @values = Array.new(VALUES) { random.object(3) }
      @packed = @values.map { |value| MP.pack(value) }
      @packer = MP::Packer.new
      @unpacker = MP::Unpacker.new(allow_unknown_ext: true)
      @wrong = []
    end

    def run(size)
      size.times do |i|
        at = i % VALUES
        way = WAYS[i % WAYS.size]
        send(way, @values[at], @packed[at]) or @wrong << "Ractor #{@number}, #{i}, #{way}: #{@packed[at].unpack1("H*")[0, 100]}"
        GC.start(full_mark: false) if (i % 997).zero?
      end
      @wrong
    end

    private

    def module_methods(value, packed) = MP.pack(value) == packed && MP.unpack(packed, allow_unknown_ext: true) == value

    # With values of the factory's types.
    def rich(value)
      [Point.new(@number, -5), Tree.new(value, [Tree.new("é", []), Tree.new(nil, value)]), Time.at(@number, 5, :nsec), value]
    end

    def shared_factory(value, _packed)
      value = rich(value)
      @factory.load(@factory.dump(value), allow_unknown_ext: true) == value
    end

    def shared_pool(value, _packed)
      value = rich(value)
      @pool.load(@pool.dump(value)) == value
    end

    def in_pieces(value, packed)
      cut = packed.bytesize / 2
      found = []
      @unpacker.feed_each(packed.byteslice(0, cut)) { |one| found << one }
      @unpacker.feed_each(packed.byteslice(cut..)) { |one| found << one }
      found == [value]
    end

    def through_an_io(value, packed)
      # With a String that is not binary, Ruby loads its transcoder. Ruby 3.3 crashes when several Ractors do so.
      io = StringIO.new("".b)
      MP::Packer.new(io).write(value).write(1).flush
      io.rewind
      io.string.b == packed + "\x01".b && MP::Unpacker.new(io, allow_unknown_ext: true).each.to_a == [value, 1]
    end

    def frozen(value, packed)
      found = MP.unpack(packed, freeze: true, key_cache: true, allow_unknown_ext: true)
      found == value && found.frozen?
    end

    def symbolized(_value, _packed)
      MP.unpack(MP.pack({ "key" => @number, "k#{@number}" => 1 }), symbolize_keys: true) == { key: @number, "k#{@number}": 1 }
    end

    def of_its_own(value, _packed)
      made = MP::Factory.new
      made.register_type(3, Point, packer: ->(point) { point.left.to_s }, unpacker: ->(data) { Point.new(data.to_i, @number) })
      made.load(made.dump([Point.new(7, 0), value]), allow_unknown_ext: true) == [Point.new(7, @number), value]
    end

    def errors(value, packed)
      raises?(NoMethodError) { @packer.write([value, Object.new]) } &&
        raises?(RangeError) { @packer.write({ 2**64 => value }) } &&
        raises?(EOFError) { MP.unpack(packed.byteslice(0...-1), allow_unknown_ext: true) } &&
        raises?(MP::MalformedFormatError) { MP.unpack(packed + "\xC1".b, allow_unknown_ext: true) } &&
        @packer.empty? && @packer.write(value).full_pack == packed
    end

    def raises?(error)
      yield
      false
    rescue error
      true
    end
  end

  # @param compact [Boolean] whether the heap is compacted while the Ractors run
  def initialize(ractors, size, compact:)
    @ractors = ractors
    @size = size
    @compact = compact
    @collected = 0
  end

  def run
    start = now
    wrong = storm
    wrong.first(20).each { |problem| puts problem }
    puts figure(wrong, now - start)
    wrong.empty?
  end

  private

  def figure(wrong, seconds)
    "message_pack storm: #{@ractors} Ractors, #{@ractors * @size} round trips, #{wrong.size} mismatches; " \
      "#{@collected} collections#{" with compaction" if @compact}, #{seconds.round(1)} s, Ruby #{RUBY_VERSION}"
  end

  def storm
    factory = MessagePackStorm.factory
    pool = Ractor.make_shareable(factory.pool(4, allow_unknown_ext: true))
    made = Array.new(@ractors) { |number| Ractor.new(number, @size, factory, pool) { |*part| Part.run(*part) } }
    done = false
    collecting = Thread.new { collect { done } }
    wrong = made.flat_map { |ractor| value_of(ractor) }
    done = true
    collecting.join
    wrong
  end

  # Polls for the Ractor's end: see test/support/ractor_wakeups.rb.
  def value_of(ractor)
    sleep 0.01 until ractor.inspect.end_with?(" terminated>")
    ractor.respond_to?(:value) ? ractor.value : ractor.take
  end

  # Collects the Ractors' garbage, so that the places of moved objects are reused.
  def collect
    until yield
      GC.start
      GC.compact if @compact
      Array.new(10_000) { |i| "garbage #{i}" }
      @collected += 1
      sleep 0.02
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

if $PROGRAM_NAME == __FILE__
  ractors, size, compact = ARGV
  exit MessagePackStorm.new(Integer(ractors || 8), Integer(size || 5_000), compact: compact != "no").run
end

# frozen_string_literal: true

require "tempfile"
require "zlib"
require_relative "../test_helper"
require_relative "support/test_case"

# Where an Unpacker reads from.
class MessagePackIOTest < MessagePackTestCase
  VALUES = [1, "a", ["x" * 100_000, { "key" => [nil, 2.5] }], { "a" => 1 }, nil, "\xFF".b * 70_000].freeze
  DATA = VALUES.map { |value| MP.pack(value) }.join.freeze

  # Has only `readpartial`, which may return fewer bytes than requested, and raises at the end.
  class Partial
    def initialize(data, size)
      @io = StringIO.new(data)
      @size = size
    end

    def readpartial(length, buffer = +"")
      buffer.replace(@io.read([length, @size].min) || raise(EOFError, "the end"))
    end
  end

  # Returns the pieces one after the other, or raises a piece that is an Exception.
  class Pieces
    def initialize(*pieces) = @pieces = pieces

    def read(_length = nil, buffer = +"")
      piece = @pieces.shift
      raise piece if piece.is_a?(Exception)

      piece && buffer.replace(piece)
    end
  end

  def unpacker(...) = MP::Unpacker.new(...)

  def test_string_ios_files_and_gzip_readers_are_read_to_their_end
    assert_equal VALUES, unpacker(StringIO.new(DATA)).each.to_a
    Tempfile.create("message_pack") do |file|
      file.binmode
      file.write(DATA)
      file.rewind
      assert_equal VALUES, unpacker(file).each.to_a
    end
    assert_equal VALUES, unpacker(Zlib::GzipReader.new(StringIO.new(Zlib.gzip(DATA)))).each.to_a
  end

  def test_an_io_that_gives_few_bytes_at_a_time_is_read_to_its_end
    small = [1, [2, "abc", { "k" => "é" * 20 }], "x" * 300]
    data = small.map { |value| MP.pack(value) }.join
    [1, 2, 3, 7].each do |size|
      assert_equal small, unpacker(Dripping.new(data, size)).each.to_a, "read, #{size}"
      assert_equal small, unpacker(Partial.new(data, size)).each.to_a, "readpartial, #{size}"
    end
    assert_equal small[1], MP.load(Dripping.new(MP.pack(small[1])))
  end

  def test_each_value_from_a_pipe_is_read_as_soon_as_it_is_complete
    reader, writer = IO.pipe
    one = unpacker(reader.binmode)
    writer.binmode.sync = true
    [1, "a", [1, 2]].each do |value|
      writer.write(MP.pack(value))
      assert_equal value, one.read # the unpacker waits for no further bytes
    end
    writer.write("\x92\x01")
    writing = Thread.new { writer.write("\x02") && writer.close }
    assert_equal [1, 2], one.read
    assert_raises(EOFError) { one.read }
    writing.join
  ensure
    [reader, writer].each(&:close)
  end

  def test_an_unpacker_that_waits_for_a_pipe_blocks_no_other_thread
    reader, writer = IO.pipe
    reading = Thread.new { unpacker(reader).read }
    Thread.pass until reading.status == "sleep"
    writer.write("\x05")
    assert_equal 5, reading.value
  ensure
    [reader, writer].each(&:close)
  end

  def test_a_packer_and_an_unpacker_communicate_through_a_pipe
    reader, writer = IO.pipe
    writing = Thread.new do
      one = MP::Packer.new(writer.binmode)
      VALUES.each { |value| one.write(value) }
      one.flush
      writer.close
    end
    assert_equal VALUES, unpacker(reader.binmode).each.to_a
    writing.join
  ensure
    [reader, writer].each(&:close)
  end

  def test_errors_of_an_io_are_raised_and_no_bytes_are_lost
    data = MP.pack(["abc", { "k" => 5 }])
    (1...data.bytesize).each do |cut|
      one = unpacker(Pieces.new(data.byteslice(0, cut), KeyError.new("in the middle"), data.byteslice(cut..), "\x07"))
      found = []
      begin
        loop { found << one.read }
      rescue KeyError
        retry
      rescue EOFError
        assert_equal [["abc", { "k" => 5 }], 7], found, "cut at #{cut}"
      end
    end
  end

  def test_an_io_that_returns_something_other_than_a_string_raises
    [5, :a, ["a"]].each do |wrong|
      io = Object.new
      io.define_singleton_method(:read) { |_length = nil, _buffer = nil| wrong }
      assert_raises(TypeError, wrong.inspect) { unpacker(io).read }
    end
  end

  # An IO may return more bytes than requested, none, a String in another encoding, a frozen one, or one that it keeps and
  # changes.
  def test_strings_of_any_kind_from_an_io_are_read_correctly
    frozen = Object.new
    frozen.define_singleton_method(:read) { |_length = nil, _buffer = nil| "\x01".b.freeze }
    assert_equal [1, 1, 1], unpacker(frozen).each.first(3)
    long = ["\x01\x02".b * 100_000, nil]
    generous = Object.new
    generous.define_singleton_method(:read) { |_length = nil, _buffer = nil| long.shift }
    assert_equal 200_000, unpacker(generous).each.count
    wide = ["\x92\x01".dup.force_encoding("UTF-16LE"), "\x02".dup.force_encoding("UTF-16LE"), nil]
    encoded = Object.new
    encoded.define_singleton_method(:read) { |_length = nil, _buffer = nil| wide.shift }
    assert_equal [1, 2], unpacker(encoded).read
    kept = "x".b
    changing = Object.new
    numbers = (1..5).each
    changing.define_singleton_method(:read) { |_length = nil, _buffer = nil| kept.replace([numbers.next].pack("C")) }
    assert_equal [1, 2, 3], unpacker(changing).each.first(3)
  end

  def test_an_empty_string_from_an_io_does_not_loop_endlessly
    one = unpacker(Pieces.new("", "\x05", nil))
    values = begin
      Slowness.within(30) { [one.read] }
    rescue EOFError
      []
    end
    assert_includes [[], [5]], values
    never = Object.new
    never.define_singleton_method(:read) { |_length| "" }
    Slowness.within(30) { assert_raises(EOFError) { unpacker(never).read } }
  end

  def test_an_object_without_read_is_rejected
    assert_raises(NoMethodError, ArgumentError, TypeError) { unpacker(Object.new).read }
    assert_raises(NoMethodError, ArgumentError, TypeError) { MP.unpack(5) }
  end

  def test_an_unpacker_may_be_fed_and_have_an_io
    one = unpacker(StringIO.new("\x02\x03"))
    one.feed("\x01")
    assert_equal [1, 2, 3], one.each.to_a
  end

  def test_an_io_that_ends_within_an_object_raises_and_reading_resumes_when_it_grows
    io = StringIO.new(+"\x01\x92".b)
    one = unpacker(io)
    values = []
    assert_raises(EOFError) { one.each { |value| values << value } }
    assert_equal [1], values
    io.string << "\x05\x06"
    assert_equal [5, 6], one.read
  end

  def test_an_io_that_ends_within_a_header_a_string_or_a_skipped_value_raises
    ["\x01\xDA\x00", "\x01\xA5ab"].each do |data|
      values = []
      assert_raises(EOFError) { unpacker(StringIO.new(data.b)).each { |value| values << value } }
      assert_equal [1], values
    end
    skipping = unpacker(StringIO.new("\x92\x01"))
    assert_raises(EOFError) { skipping.skip }
    assert_raises(EOFError) { skipping.each { flunk } }
  end

  # The unpacker reads ahead. The bytes that it has not unpacked are in its buffer.
  def test_bytes_read_ahead_are_in_the_buffer
    one = unpacker(StringIO.new("\x01rest"))
    assert_equal 1, one.read
    assert_equal "rest", one.buffer.read(4)
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"

class MessagePackBufferTest < MessagePackTestCase
  def buffer(...) = MP::Buffer.new(...)

  def of(text) = buffer.tap { |one| one << text }

  # ---- without an IO ----

  def test_written_bytes_are_read_in_order
    one = buffer
    assert_equal 3, one.write("abc")
    assert_same one, one << "de"
    assert_equal [5, false], [one.size, one.empty?]
    assert_equal ["ab", 3, "cde", 0, true], [one.read(2), one.size, one.read, one.size, one.empty?]
  end

  def test_read_returns_the_available_bytes_or_nil
    one = of("abc")
    assert_equal ["", "abc", nil, "", ""], [one.read(0), one.read(10), one.read(1), one.read, one.read(0)]
  end

  def test_read_all_returns_all_requested_bytes_or_raises_and_consumes_nothing
    one = of("abc")
    assert_raises(EOFError) { one.read_all(4) }
    assert_equal ["ab", "c", ""], [one.read_all(2), one.read_all(1), one.read_all(0)]
    assert_raises(EOFError) { one.read_all(1) }
  end

  def test_read_and_read_all_fill_a_given_string
    %i[read read_all].each do |method|
      into = +"something longer before"
      one = of("abc")
      assert_same into, one.public_send(method, 2, into)
      assert_equal %w[ab c], [into, one.to_s]
    end
  end

  def test_an_argument_that_cannot_be_filled_raises_and_nothing_is_consumed
    { FrozenError => "frozen", TypeError => [42, :a, %w[a b c], { a: 1 }, Object.new] }.each do |error, values|
      [*values].product(%i[read read_all]) do |value, method|
        one = of("abc" * 20)
        assert_raises(error, value.inspect) { one.public_send(method, 50, value) }
        assert_equal 60, one.size, value.inspect
      end
    end
  end

  def test_read_returns_binary_strings
    one = of("é" * 3)
    assert_equal [Encoding::BINARY] * 4, [one.to_s, one.read(1), one.read_all(1), one.read].map(&:encoding)
  end

  def test_skip_skips_at_most_the_available_bytes
    one = of("abcde")
    assert_equal [2, "c", 2, 0, 0], [one.skip(2), one.read(1), one.skip(10), one.skip(1), one.skip(0)]
  end

  def test_skip_all_skips_all_requested_bytes_or_raises_and_consumes_nothing
    one = of("abc")
    assert_same one, one.skip_all(2)
    assert_raises(EOFError) { one.skip_all(2) }
    assert_equal "c", one.read
  end

  def test_to_s_and_to_a_return_the_content_without_consuming_it
    one = of("abc")
    one << ("x" * 1_000_000)
    one.skip(1)
    assert_equal [1_000_002] * 4, [one.to_s.bytesize, one.to_str.bytesize, one.to_a.sum(&:bytesize), one.size]
    assert_equal one.to_s, one.to_a.join
    one.to_s << "mine"
    assert_equal 1_000_002, one.size
  end

  def test_clear_discards_the_content
    one = of("abc" * 100_000)
    one.clear
    assert_equal [0, "", true], [one.size, one.to_s, one.empty?]
    assert_equal "x", (one << "x").read
  end

  def test_a_string_may_change_after_it_was_written
    [10, 1000, 1_000_000].each do |size|
      text = "a" * size
      one = of(text)
      text.replace("b" * size)
      assert_equal "a" * size, one.read
    end
  end

  def test_a_long_string_may_change_after_it_was_read
    text = "é#{"a" * 9_998}"
    read = of(text).read
    assert_equal Encoding::BINARY, read.encoding
    read.upcase!
    assert_equal ["é#{"a" * 9_998}", "é#{"A" * 9_998}".b, Encoding::UTF_8], [text, read, text.encoding]
    one = of(text)
    assert_equal ["é".b, "a" * 9_998, nil], [one.read(2), one.read, one.read(1)]
    assert_equal "#{text}b".b, (of(text) << "b").read
  end

  def test_writing_and_reading_in_turn_keeps_the_order
    random = Random.new(1)
    one = buffer
    expected = +""
    found = +""
    2_000.times do
      piece = random.bytes(random.rand([1, 10, 1000, 40_000].sample(random:)))
      expected << piece
      one << piece
      found << one.read(random.rand(1..1500)).to_s
    end
    assert_equal expected, found << one.read
  end

  def test_write_requires_strings_and_read_requires_sizes
    one = of("a")
    [5, nil, :a].each do |wrong|
      assert_raises(TypeError) { one << wrong }
      assert_raises(TypeError) { one.write(wrong) }
    end
    %i[read read_all skip skip_all].each { |method| assert_raises(TypeError, method.to_s) { one.public_send(method, "1") } }
    assert_equal "a", one.to_s
  end

  # ---- with an IO ----

  def test_without_an_io_flush_and_close_do_nothing
    one = of("a")
    assert_nil one.io
    assert_same one, one.flush
    assert_nil one.close
    assert_equal "a", one.to_s
  end

  def test_a_buffer_reads_missing_bytes_from_its_io
    io = StringIO.new("hello, world")
    one = buffer(io)
    assert_same io, one.io
    assert_equal ["he", "llo", 2, "world", nil], [one.read(2), one.read_all(3), one.skip(2), one.read(5), one.read(1)]
    assert_raises(EOFError) { one.read_all(1) }
    assert_raises(EOFError) { one.skip_all(1) }
    assert_equal "all of it", buffer(StringIO.new("all of it")).read
    assert_equal "all of it", buffer(Dripping.new("all of it", 2)).read
    assert_equal "all of it", buffer(Dripping.new("all of it", 2)).read_all(9)
  end

  def test_flush_writes_the_content_to_the_io
    io = StringIO.new
    one = buffer(io) << "hello"
    assert_same one, one.flush
    assert_equal ["hello", true], [io.string, one.empty?]
  end

  def test_close_closes_the_io
    io = StringIO.new("x")
    assert_nil buffer(io).close
    assert_predicate io, :closed?
  end

  def test_write_to_writes_the_content_to_any_io_and_returns_its_size
    io = StringIO.new
    one = of("hello")
    assert_equal [5, "hello", true, 0], [one.write_to(io), io.string, one.empty?, one.write_to(io)]
  end

  def test_errors_of_the_io_are_raised_by_each_method
    io = Object.new
    %i[read readpartial write].each { |method| io.define_singleton_method(method) { |*| raise KeyError } }
    { read: [1], read_all: [1], skip: [1], skip_all: [1] }.each do |method, arguments|
      assert_raises(KeyError, method.to_s) { buffer(io).public_send(method, *arguments) }
    end
    assert_raises(KeyError) { (buffer(io) << "a").flush }
    assert_raises(KeyError) { of("a").write_to(io) }
  end

  def test_options_are_checked_and_unknown_options_rejected
    one = buffer(nil, io_buffer_size: 4096, read_reference_threshold: 256, write_reference_threshold: 512 * 1024)
    assert_equal "a", (one << "a").read
    assert_raises(TypeError, ArgumentError) { buffer(io_buffer_size: "1") }
    assert_match(/size_of_io/, assert_raises(ArgumentError) { buffer(size_of_io: 1) }.message)
  end

  def test_a_buffer_cannot_be_copied
    %i[dup clone].each { |method| assert_raises(NoMethodError, TypeError) { of("a").public_send(method) } }
  end

  # ---- the buffers of packers and unpackers ----

  def test_a_packers_buffer_has_its_written_bytes
    one = MP::Packer.new.write([1, "a"])
    assert_kind_of MP::Buffer, one.buffer
    assert_equal one.to_s, one.buffer.to_s
    one.buffer << "\x05"
    assert_equal "\x92\x01\xA1a\x05".b, one.to_s
    one.buffer.clear
    assert_predicate one, :empty?
  end

  def test_an_unpackers_buffer_has_its_unread_bytes
    one = MP::Unpacker.new.feed("\x01\x02\x03")
    one.read
    assert_equal "\x02\x03", one.buffer.to_s
    one.buffer.skip(1)
    assert_equal 3, one.read
    one.buffer << "\x07"
    assert_equal 7, one.read
  end

  def test_a_buffer_outlives_its_packer_or_unpacker
    kept = Array.new(20) { |i| MP::Packer.new.write("text #{i}").buffer }
    GC.start
    Array.new(1000) { MP::Packer.new.write("x" * 100) }
    assert_equal(Array.new(20) { |i| MP.pack("text #{i}") }, kept.map(&:to_s))
  end
end

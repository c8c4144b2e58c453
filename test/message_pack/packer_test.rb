# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"

class MessagePackPackerTest < MessagePackTestCase
  def packer(...) = MP::Packer.new(...)

  # What one method writes, as hex.
  def written(method, *arguments) = hex(packer.public_send(method, *arguments).to_s)

  # ---- the methods that write ----

  {
    write_nil: [[[], "c0"]], write_true: [[[], "c3"]], write_false: [[[], "c2"]],
    write: [[[nil], "c0"], [[:a], "a161"], [[[1, "a"]], "9201a161"]], pack: [[[{ 1 => 2 }], "810102"]],
    write_int: [[[0], "00"], [[-33], "d0df"], [[(2**64) - 1], "cfffffffffffffffff"]],
    write_float: [[[1.5], "cb3ff8000000000000"], [[1], "cb3ff0000000000000"], [[-0.0], "cb8000000000000000"]],
    write_float32: [[[1.5], "ca3fc00000"], [[1], "ca3f800000"]],
    write_string: [[["é"], "a2c3a9"], [[""], "a0"], [["a".b], "c40161"]],
    write_bin: [[["a"], "c40161"], [["\xFF".b], "c401ff"], [[""], "c400"]],
    write_symbol: [[[:abc], "a3616263"], [[:é], "a2c3a9"]],
    write_array: [[[[]], "90"], [[[1, [2]]], "92019102"]],
    write_hash: [[[{}], "80"], [[{ a: { 1 => nil } }], "81a1618101c0"]],
    write_array_header: [[[0], "90"], [[15], "9f"], [[16], "dc0010"], [[65_535], "dcffff"], [[65_536], "dd00010000"],
                         [[(2**32) - 1], "ddffffffff"]],
    write_map_header: [[[0], "80"], [[15], "8f"], [[16], "de0010"], [[65_535], "deffff"], [[65_536], "df00010000"],
                       [[(2**32) - 1], "dfffffffff"]],
    write_bin_header: [[[0], "c400"], [[255], "c4ff"], [[256], "c50100"], [[65_535], "c5ffff"], [[65_536], "c600010000"],
                       [[(2**32) - 1], "c6ffffffff"]],
    write_ext: [[[5, "ab"], "d5056162"], [[-128, ""], "c70080"], [[127, "abc"], "c7037f616263"]],
    write_extension: [[[MP::ExtensionValue.new(-2, "a")], "d4fe61"]]
  }.each do |method, cases|
    define_method("test_#{method}_writes_its_format_and_returns_the_packer") do
      cases.each { |arguments, encoding| assert_equal encoding, written(method, *arguments), arguments.inspect }
      one = packer
      assert_same one, one.public_send(method, *cases[0][0])
    end
  end

  {
    write_int: ["x", 1.5, nil, :a, [1]], write_float: ["x", nil, [1]], write_string: [:a, 1, nil, ["a"]], write_bin: [:a, 1, nil],
    write_symbol: ["a", 1, nil], write_array: [1, "a", nil, { 1 => 2 }], write_hash: [1, [[1, 2]], nil],
    write_array_header: ["1", nil], write_map_header: ["1", nil], write_bin_header: ["1", nil], write_extension: [5, nil, "a"]
  }.each do |method, values|
    define_method("test_#{method}_raises_for_other_objects_and_writes_nothing") do
      values.each do |value|
        one = packer.write(1)
        assert_raises(TypeError, value.inspect) { one.public_send(method, value) }
        assert_equal "\x01", one.to_s
      end
    end
  end

  def test_write_float32_raises_for_other_objects_than_numbers
    ["x", nil, [1]].each { |value| assert_raises(TypeError, ArgumentError) { packer.write_float32(value) } }
  end

  def test_headers_raise_for_counts_above_32_bits_and_negative_counts
    %i[write_array_header write_map_header write_bin_header].product([2**32, 2**64, -1, -(2**31), -(2**64)]) do |method, count|
      assert_raises(RangeError, "#{method} #{count}") { packer.public_send(method, count) }
    end
  end

  def test_write_ext_raises_for_a_type_outside_a_byte_and_a_payload_that_is_no_string
    [128, -129, 2**40].each { |type| assert_raises(RangeError) { packer.write_ext(type, "a") } }
    assert_raises(TypeError) { packer.write_ext("a", "a") }
    assert_raises(TypeError) { packer.write_ext(1, 5) }
  end

  def test_integers_outside_64_bits_raise
    [2**64, -(2**63) - 1, 2**100, -(2**100)].each do |value|
      assert_raises(RangeError) { MP.pack(value) }
      assert_raises(RangeError) { packer.write_int(value) }
      assert_raises(RangeError) { MP.pack([{ 1 => value }]) }
    end
  end

  def test_the_bytes_after_a_bin_header_are_written_to_the_buffer
    one = packer.write_bin_header(3)
    one.buffer << "abc"
    assert_equal "abc".b, MP.unpack(one.to_s)
  end

  def test_an_array_may_be_written_in_parts_after_its_header
    parts = packer.write_array_header(3).write(1).write([2]).write_map_header(1).write(:a).write_nil
    assert_equal [1, [2], { "a" => nil }], MP.unpack(parts.to_s)
  end

  # ---- strings and their encodings ----

  def test_strings_in_other_encodings_are_written_in_utf8
    %w[UTF-16LE UTF-16BE UTF-32LE ISO-8859-1 Windows-1252].each do |encoding|
      assert_equal "a2c3a9", hex(MP.pack("é".encode(encoding))), encoding
      assert_equal "a2c3a9", hex(MP.pack("é".encode(encoding).to_sym)), encoding
    end
    assert_equal "a3e38182", hex(MP.pack("あ".encode("Shift_JIS")))
    assert_equal "a3e38182", hex(MP.pack("あ".encode("EUC-JP")))
  end

  def test_ascii_strings_of_any_encoding_except_binary_are_written_as_str
    %w[US-ASCII UTF-8 Shift_JIS ISO-8859-1 UTF-16LE].each do |encoding|
      assert_equal "a3616263", hex(MP.pack("abc".encode(encoding))), encoding
    end
    assert_equal "c403616263", hex(MP.pack("abc".b))
  end

  def test_a_string_that_cannot_be_transcoded_raises_and_leaves_no_bytes
    one = packer.write(1)
    ["\x81".dup.force_encoding("Windows-1252"), "abc".dup.force_encoding("UTF-16LE"),
     "\x81".dup.force_encoding("Shift_JIS")].each do |text|
      assert_raises(EncodingError, text.encoding.to_s) { one.write([1, text]) }
    end
    assert_equal "\x01", one.to_s
  end

  def test_packing_does_not_change_a_string
    text = "é".encode("UTF-16LE").freeze
    MP.pack([text, { text => text }])
    assert_equal Encoding::UTF_16LE, text.encoding
  end

  # ---- compatibility with the specification's older form ----

  def test_compatibility_mode_writes_neither_bin_nor_str8
    { "a" * 31 => "bf", "a" * 32 => "da0020", "a" * 255 => "da00ff", "a" * 65_535 => "daffff", "a" * 65_536 => "db00010000" }
      .each do |text, header|
      [text, text.b].each do |one|
        packed = MP.pack(one, compatibility_mode: true)
        assert_equal header, hex(packed[0, header.size / 2]), text.size
        assert_equal text.size + (header.size / 2), packed.bytesize
      end
    end
    assert_predicate packer(compatibility_mode: true), :compatibility_mode?
    refute_predicate packer, :compatibility_mode?
  end

  # ---- objects of other classes ----

  Point = Struct.new(:left, :right) do
    def to_msgpack(packer) = packer.write_array_header(2).write(left).write(right)
  end

  def test_an_object_with_to_msgpack_writes_itself_anywhere
    assert_equal [1, 2], MP.unpack(MP.pack(Point.new(1, 2)))
    assert_equal [[[1, 2]], { "a" => [3, [4, 5]] }], MP.unpack(MP.pack([[Point.new(1, 2)], { a: Point.new(3, Point.new(4, 5)) }]))
    assert_equal({ [1, 2] => 3 }, MP.unpack(MP.pack({ Point.new(1, 2) => 3 })))
  end

  def test_an_object_without_to_msgpack_raises_an_error_that_names_its_class
    [Object.new, 1..2, 1r, 1i, Object, Time.now, Struct.new(:a).new(1)].each do |object|
      error = assert_raises(NoMethodError) { MP.pack(object) }
      assert_match(/to_msgpack/, error.message)
    end
  end

  def test_subclasses_of_core_classes_are_written_like_their_superclass
    [[String, "abc", "a3616263"], [Array, [1], "9101"], [Hash, { 1 => 2 }, "810102"]].each do |base, value, encoding|
      one = Class.new(base).new.replace(value)
      assert_equal encoding, hex(MP.pack(one)), base
      assert_equal "91#{encoding}", hex(MP.pack([one])), base
    end
  end

  def test_only_the_pairs_of_a_hash_are_written
    assert_equal "810102", hex(MP.pack(Hash.new { |hash, key| hash[key] = 1 }.update(1 => 2)))
    by_identity = {}.compare_by_identity
    2.times { |i| by_identity["a".dup] = i }
    assert_equal "82a16100a16101", hex(MP.pack(by_identity))
  end

  # ---- an error discards the bytes of its write ----

  def failing
    deep = Object.new
    deep.define_singleton_method(:to_msgpack) { |packer| packer.write_array_header(2).write("half") && raise("enough") }
    self_containing = []
    self_containing << 1 << self_containing
    { NoMethodError => Object.new, RangeError => 2**64, EncodingError => "\x81".dup.force_encoding("Windows-1252"),
      RuntimeError => deep, MP::StackError => self_containing }
  end

  def test_after_an_error_the_packer_keeps_earlier_bytes_and_stays_usable
    failing.each do |error, value|
      one = packer.write("before")
      [value, [1, 2, [value]], { "a" => 1, "b" => value }, { value => 1 }, ["x" * 100_000, value]].each do |object|
        assert_raises(error, error.name) { one.write(object) }
        assert_equal "\xA6before".b, one.to_s, error
      end
      assert_equal "\xA6before\xC0".b, one.write(nil).to_s
    end
  end

  Silent = Struct.new(:value) do
    def to_msgpack(_packer) = MP.pack(value)
  end

  def test_an_object_that_writes_nothing_to_its_packer_raises
    assert_raises(RuntimeError) { MP.pack([1, Silent.new(2)]) }
    one = packer.write("before")
    assert_raises(RuntimeError) { one.write([1, Silent.new(2)]) }
    assert_equal "\xA6before".b, one.to_s
  end

  def test_after_an_error_no_byte_of_the_object_is_in_the_io
    failing.each do |error, value|
      io = StringIO.new
      one = packer(io, io_buffer_size: 1024).write(1)
      assert_raises(error) { one.write(["x" * 10, value]) }
      one.write(2).flush
      assert_equal "\x01\x02", io.string, error
    end
  end

  def test_after_an_error_only_earlier_bytes_that_were_not_consumed_remain
    taking = { "" => [:reset.to_proc, :full_pack.to_proc, :flush.to_proc, ->(packer) { packer.buffer.read }],
               "fore" => [->(packer) { packer.buffer.read(3) }, ->(packer) { packer.buffer.skip(3) }] }
    taking.each do |left, calls|
      calls.each do |call|
        failing = Object.new
        failing.define_singleton_method(:to_msgpack) do |packer|
          call[packer]
          packer.write("later" * 10)
          raise KeyError
        end
        one = packer(StringIO.new).write("before")
        assert_raises(KeyError) { one.write([failing]) }
        assert_equal left, one.to_s
      end
    end
  end

  # An object that packs itself by calling the block.
  def own(&block) = Object.new.tap { |made| made.define_singleton_method(:to_msgpack, &block) }

  def test_each_write_starts_at_depth_zero_however_the_previous_write_ended
    one = packer(max_depth: 2)
    3.times do
      assert_raises(KeyError) { one.write([own { |_| raise KeyError }]) }
      one.write([own { |packer| packer.write(1) }])
    end
    assert_equal "\x91\x01".b * 3, one.to_s
  end

  # ---- what has been written ----

  def test_size_empty_to_s_and_to_a_describe_the_content
    one = packer
    assert_predicate one, :empty?
    assert_equal [0, "", ""], [one.size, one.to_s, one.to_a.join]
    one.write([1, "é" * 50_000])
    refute_predicate one, :empty?
    assert_equal [one.size] * 4, [one.to_s, one.to_str, one.to_a.join, MP.pack([1, "é" * 50_000])].map(&:bytesize)
    assert_equal Encoding::BINARY, one.to_s.encoding
    assert_equal one.to_s, one.to_a.join
  end

  def test_to_s_returns_an_independent_string
    one = packer.write(1)
    one.to_s << "changed"
    early = one.to_s
    one.write(2)
    assert_equal ["\x01", "\x01\x02"], [early, one.to_s]
  end

  def test_reset_and_clear_discard_the_content
    %i[reset clear].each do |method|
      one = packer.write("x" * 100_000)
      one.public_send(method)
      assert_predicate one, :empty?
      assert_equal "\x05", one.write(5).to_s
    end
  end

  def test_full_pack_returns_the_content_and_empties_the_packer
    one = packer.write(1)
    assert_equal ["\x01", "", "\x02"], [one.full_pack, one.full_pack, one.write(2).full_pack]
  end

  def test_write_to_an_io_returns_the_number_of_bytes_and_empties_the_packer
    io = StringIO.new
    one = packer.write([1, "x" * 100_000])
    assert_equal MP.pack([1, "x" * 100_000]).bytesize, one.write_to(io)
    assert_equal [MP.pack([1, "x" * 100_000]), true], [io.string.b, one.empty?]
  end

  def test_a_packer_cannot_be_copied
    %i[dup clone].each { |method| assert_raises(NoMethodError, TypeError) { packer.write(1).public_send(method) } }
  end

  def test_a_packer_cannot_be_initialized_twice
    one = packer.write(1)
    assert_raises(RuntimeError) { one.send(:initialize) }
    assert_equal "\x01", one.to_s
  end

  def test_an_uninitialized_packer_raises
    { write: [1], write_nil: [], to_s: [], flush: [], reset: [], register_type: [1, Range, :to_s], buffer: [] }
      .each do |method, arguments|
      error = assert_raises(ArgumentError, method.to_s) { MP::Packer.allocate.public_send(method, *arguments) }
      assert_match(/initialized/, error.message)
    end
  end

  # ---- with an IO ----

  def test_flush_writes_the_content_to_the_io
    io = StringIO.new
    one = packer(io).write(1).write("a")
    assert_same one, one.flush
    assert_equal ["\x01\xA1a".b, true], [io.string.b, one.empty?]
    assert_equal "\x01\xA1a\x02".b, one.write(2).flush.buffer.io.string.b
  end

  def test_flush_without_an_io_keeps_the_content
    assert_equal "\x01", packer.write(1).flush.to_s
  end

  def test_an_io_requires_write_or_shovel
    { write: ->(text) { (@got << text) && text.bytesize }, "<<": ->(text) { @got << text } }.each do |name, body|
      io = Object.new
      io.instance_variable_set(:@got, +"")
      io.define_singleton_method(name, &body)
      packer(io).write([1, "x" * 100_000]).flush
      assert_equal MP.pack([1, "x" * 100_000]), io.instance_variable_get(:@got).b, name
    end
  end

  def test_content_beyond_io_buffer_size_is_written_to_the_io_automatically
    io = StringIO.new
    one = packer(io, io_buffer_size: 1024)
    100.times { |i| one.write([i, "x" * 100]) }
    assert_operator io.string.bytesize, :>, 5_000
    assert_operator one.size, :<, 5_000
    one.flush
    assert_equal Array.new(100) { |i| [i, "x" * 100] }, MP::Unpacker.new.feed(io.string).each.to_a
  end

  def test_errors_of_the_io_are_raised_by_flush
    io = Object.new
    io.define_singleton_method(:write) { |_| raise IOError, "gone" }
    assert_equal "gone", assert_raises(IOError) { packer(io).write(1).flush }.message
  end

  def test_bytes_that_the_io_did_not_accept_are_kept
    failing_io = Object.new
    failing_io.define_singleton_method(:write) { |text| text.clear && raise(KeyError) }
    text = "x" * 10_000
    { flush: [], full_pack: [], write_to: [failing_io], write: [text], write_nil: [] }.each do |method, arguments|
      one = packer(failing_io, io_buffer_size: 21_000).write(text)
      assert_raises(KeyError) { one.buffer.write("y" * 9_000) && one.public_send(method, *arguments).write(text) }
      assert one.to_s.start_with?("\xDA\x27\x10#{text}#{"y" * 9_000}".b), method
    end
  end

  def test_bytes_that_the_io_adds_during_a_write_are_kept
    one = nil
    io = Object.new
    io.define_singleton_method(:write) { |text| text.bytesize.tap { one.write(2) if text == "\x01" } }
    one = packer(io)
    { flush: [], full_pack: [], write_to: [io] }.each do |method, arguments|
      one.write(1).public_send(method, *arguments)
      assert_equal "\x02", one.to_s, method
      one.reset
    end
  end

  def test_an_io_may_use_the_packer_that_writes_to_it
    got = +"".b
    one = nil
    io = Object.new
    io.define_singleton_method(:write) do |text|
      got << text
      one.write(2).flush if text == "\x01"
      raise KeyError if text == "\x03" && one.write(4)
    end
    one = packer(io)
    one.write(1).flush
    assert_equal ["\x01\x02", ""], [got, one.to_s]
    assert_raises(KeyError) { one.write(3).flush }
    assert_equal "\x03\x04", one.to_s
  end

  # ---- a long String goes to the IO without a copy ----

  # Calls the block with each text that it receives, and keeps a copy of the text.
  def recording(&block)
    got = []
    io = Object.new
    io.define_singleton_method(:write) do |text|
      got << text.dup
      block&.call(text, got.size)
      text.bytesize
    end
    [io, got]
  end

  LONG_TEXT = "é" * 10_000
  LONG_HEADER = "\xDA\x4E\x20".b

  def test_a_long_string_is_written_to_the_io_separately_and_in_order
    { write: LONG_TEXT, write_string: LONG_TEXT, write_symbol: LONG_TEXT.to_sym, write_bin: LONG_TEXT.b }.each do |method, text|
      io, got = recording
      packer(io).write(1).public_send(method, text).write(2).flush
      header = method == :write_bin ? "\xC5\x4E\x20".b : LONG_HEADER
      assert_equal ["\x01".b + header, LONG_TEXT.b, "\x02"], got, method
      assert_equal [Encoding::BINARY], got.map(&:encoding).uniq, method
    end
  end

  def test_an_io_that_changes_a_long_string_changes_only_its_own_copy
    texts = [LONG_TEXT.dup, LONG_TEXT.dup.freeze]
    texts.each do |text|
      io, got = recording { |given| given.upcase! && given.clear }
      packer(io).write(text)
      assert_equal [LONG_HEADER, LONG_TEXT.b, LONG_TEXT], [*got, text]
    end
  end

  def test_a_long_string_is_written_unchanged_though_the_io_changes_the_original
    text = LONG_TEXT.dup
    io, got = recording { text.replace("x" * 20_000) }
    packer(io).write(text)
    assert_equal [LONG_HEADER, LONG_TEXT.b], got
  end

  def test_bytes_that_the_io_writes_to_the_packer_follow_a_long_string
    %i[itself flush].each do |then_call|
      one = nil
      io, got = recording { |_, count| one.write(2).public_send(then_call) if count == 1 }
      one = packer(io)
      one.write(LONG_TEXT).flush
      assert_equal "#{LONG_HEADER}#{LONG_TEXT.b}\x02".b, got.join, then_call
      assert_empty one
    end
  end

  def test_a_long_string_that_the_io_did_not_accept_is_kept
    [1, 2].each do |failing|
      io, got = recording { |text, count| text.clear && raise(KeyError) if count == failing }
      one = packer(io).write(1)
      assert_raises(KeyError) { one.write(LONG_TEXT) }
      assert_equal failing == 1 ? "\x01#{LONG_HEADER}#{LONG_TEXT.b}".b : LONG_TEXT.b, one.to_s
      one.write(2).flush
      got.delete_at(failing - 1)
      assert_equal "\x01#{LONG_HEADER}#{LONG_TEXT.b}\x02".b, got.join
    end
  end

  def test_within_another_object_a_long_string_stays_in_the_buffer
    io, got = recording
    failing = own { |to| to.write(LONG_TEXT) && raise(KeyError) }
    assert_raises(KeyError) { packer(io).write([failing]) }
    assert_empty got
  end

  def test_pack_with_an_io_writes_to_it_and_returns_nil
    io = StringIO.new
    assert_nil MP.pack([1, 2], io)
    assert_nil MP.dump("a" * 40, io, compatibility_mode: true)
    assert_equal "\x92\x01\x02\xDA\x00(#{"a" * 40}".b, io.string.b
  end

  # ---- options ----

  def test_options_are_a_hash_or_keywords_with_or_without_an_io
    hash = { compatibility_mode: true }
    [packer(hash), packer(**hash), packer(nil, hash), packer(nil, **hash), packer(StringIO.new, hash),
     packer(StringIO.new, **hash)].each { |one| assert_predicate one, :compatibility_mode? }
  end

  def test_unknown_options_raise_an_error_that_lists_the_valid_ones
    [-> { packer(compat: true) }, -> { MP.pack(1, compat: true) }, -> { MP.pack(1, StringIO.new, compat: true) },
     -> { packer(nil, { compat: true }) }].each do |call|
      error = assert_raises(ArgumentError, &call)
      assert_match(/compat\b.*compatibility_mode/m, error.message)
    end
  end

  def test_options_of_other_classes_are_rejected
    [-> { packer(freeze: true) }, -> { MP.pack(1, symbolize_keys: true) }, -> { MP.unpack("\x01", compatibility_mode: true) },
     -> { MP::Buffer.new(max_depth: 5) }].each { |call| assert_match(/unknown/, assert_raises(ArgumentError, &call).message) }
  end

  def test_the_gems_buffer_options_are_accepted_and_checked
    one = packer(StringIO.new, io_buffer_size: 4096, read_reference_threshold: 512, write_reference_threshold: 600_000)
    assert_equal "\x01", one.write(1).to_s
    %i[io_buffer_size read_reference_threshold write_reference_threshold].each do |option|
      assert_raises(TypeError, ArgumentError, option.to_s) { packer(option => "many") }
      assert_raises(TypeError, ArgumentError, option.to_s) { MP.pack(1, option => "many") }
      assert_equal ["\x01".b, 1], [MP.pack(1, option => 4096), MP.unpack("\x01", option => 4096)], option
    end
  end

  def test_option_names_must_be_symbols
    assert_raises(TypeError) { MP.pack(1, nil, 5) }
    assert_match(/unknown/, assert_raises(ArgumentError) { MP.pack(1, nil, { "max_depth" => 5 }) }.message)
  end

  def test_numbers_outside_their_range_are_rejected
    [-1, 0, 2**32, 2**63].each { |depth| assert_raises(ArgumentError, depth.to_s) { packer(max_depth: depth) } }
    [0, 1023, 2**31].each { |size| assert_raises(ArgumentError, size.to_s) { packer(io_buffer_size: size) } }
  end

  # ---- a packer's own types ----

  def test_register_type_accepts_a_method_name_or_a_block
    one = packer
    one.register_type(1, Range, :to_s)
    assert_equal "d601#{hex("1..2")}", hex(one.write(1..2).to_s)
    by_block = packer
    by_block.register_type(1, Range) { |range| range.begin.to_s }
    assert_equal "d40137", hex(by_block.write(7..9).to_s)
    assert by_block.type_registered?(Range)
    assert by_block.type_registered?(1)
    refute by_block.type_registered?(2)
    assert_equal [[1, Range]], by_block.registered_types.map { |type| type.values_at(:type, :class) }
  end

  def test_register_type_rejects_a_method_name_together_with_a_block
    assert_raises(ArgumentError) { packer.register_type(1, Range, :to_s) { "a" } }
    assert_raises(ArgumentError) { MP::Unpacker.new.register_type(1, Range, :new) { "a" } }
  end

  def test_an_unpackers_register_type_requires_a_class_or_a_block
    [[], [nil], [nil, :from_msgpack_ext]].each do |arguments|
      one = MP::Unpacker.new
      assert_raises(ArgumentError, arguments.inspect) { one.register_type(1, *arguments) }
      assert_raises(MP::UnknownExtTypeError) { one.feed("\xD4\x01a").read }
    end
  end

  def test_a_frozen_packer_rejects_types
    assert_raises(FrozenError) { packer.freeze.register_type(1, Range, :to_s) }
  end

  # ---- payloads of recursive types ----

  Shell = Struct.new(:doing)

  # The packer of a Shell calls the Proc in it.
  def with_shells(io = nil)
    one = packer(io)
    one.send(:registry=, MP::Factory.new.tap do |made|
      made.register_type(1, Shell, recursive: true, packer: ->(shell, to) { shell.doing.call(to) })
    end.send(:registry))
    one
  end

  SIZES = [0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 255, 256, 65_535, 65_536].freeze

  def test_payloads_of_each_size_get_their_header_and_enclosing_values_are_kept
    SIZES.each do |size|
      value = ["before", Shell.new(->(to) { to.buffer << ("p" * size) }), "after"]
      expected = MP.pack(["before", MP::ExtensionValue.new(1, "p" * size), "after"])
      assert_equal expected, with_shells.write(value).to_s, size
      assert_equal expected, with_shells.send(:registry).pack(value), size
    end
  end

  def test_while_a_payload_is_written_only_the_payload_is_accessible
    seen = []
    meddling = lambda do |to|
      to.write("abc")
      seen << to.to_s << to.size << to.buffer.read(2) << to.buffer.to_s << to.flush.size << to.full_pack << to.empty?
      to.write(7)
    end
    io = StringIO.new
    [with_shells, with_shells(io)].each do |one|
      one.write([nil, Shell.new(meddling)])
      assert_equal "\x92\xC0\xD4\x01\x07".b, io.equal?(one.buffer.io) ? one.flush && io.string.b : one.to_s
    end
    assert_equal ["\xA3abc".b, 4, "\xA3a".b, "bc".b, 2, "bc".b, true], seen.first(7)
  end

  def test_values_within_a_failed_payload_are_discarded_with_it
    [->(to) { to.write("x" * 10_000) && raise(KeyError) }, ->(to) { to.write([1, 2**64]) },
     ->(to) { to.write(Shell.new(proc { raise KeyError })) }, ->(to) { to.buffer.read && raise(KeyError) }].each do |failing|
      one = with_shells.write("before")
      2.times { assert_raises(KeyError, RangeError) { one.write([1, Shell.new(failing)]) } }
      assert_equal "\xA6before\x05".b, one.write(5).to_s
    end
  end

  def test_a_reset_within_a_payload_discards_the_whole_object
    one = with_shells.write("before")
    assert_raises(RuntimeError) { one.write([1, Shell.new(->(to) { to.write(2).reset })]) }
    assert_equal "\x05", one.write(5).to_s
  end

  def test_an_error_that_an_object_rescues_leaves_no_bytes_of_the_failed_part
    one = with_shells
    fallback = lambda do |to|
      to.write(["half", 2**64])
    rescue RangeError
      to.write("whole")
    end
    assert_equal "\x92\x00\xC7\x06\x01\xA5whole".b, one.write([0, Shell.new(fallback)]).to_s
    silent = lambda do |to|
      to.write(1).write([2, 2**64])
    rescue RangeError
      nil
    end
    one.reset
    assert_equal "\xD4\x01\x01".b, one.write(Shell.new(silent)).to_s
  end

  def test_an_error_that_an_enclosing_object_rescues_leaves_no_bytes_of_the_failed_object
    failing = Doing.new { |to| to.write("half") && raise(KeyError) }
    rescuing = Doing.new do |to|
      to.write([1, failing])
    rescue KeyError
      to.write("whole")
    end
    assert_equal "\x92\xA5whole\x02".b, MP.pack([rescuing, 2])
    assert_equal "\x92\xA5whole\x02".b, packer.write([rescuing, 2]).to_s
  end

  # From the second time on, a shorter code path packs objects of the class.
  def test_objects_of_a_class_that_was_packed_before_leave_no_bytes_when_they_raise
    failing = Doing.new { |to| to.write("half") && raise(KeyError) }
    rescuing = Doing.new do |to|
      to.write(failing)
    rescue KeyError
      to.write("whole")
    end
    one = packer(max_depth: 2)
    5.times do
      one.write("before")
      assert_raises(KeyError) { one.write(failing) }
      assert_equal "\xA6before\xA5whole".b, one.write(rescuing).to_s
      one.reset
    end
  end

  def test_an_array_with_other_values_after_integers_is_written_once
    [[1, 2, "x"], [-1, nil], [[]], [1, [2]], [2**40, 1.5], []].each do |value|
      assert_equal MP.pack(value), packer.write(value).to_s
    end
  end

  def test_the_buffer_has_no_bytes_of_a_write_that_raised
    one = packer.write("before")
    buffer = one.buffer
    assert_raises(RangeError) { one.write([1, 2**64]) }
    assert_equal "\xA6before".b, buffer.to_s
  end

  def test_a_type_registered_later_is_used_from_then_on
    one = packer
    object = Doing.new { |to| to.write("own") }
    one.write(object).register_type(1, Doing) { "ext" }
    assert_equal "\xA3own\xC7\x03\x01ext".b, one.write(object).to_s
  end

  def test_a_registered_module_that_is_included_later_applies
    named = Module.new
    made = MP::Factory.new.tap { |factory| factory.register_type(1, named, packer: ->(_) { "ext" }) }
    type = Class.new { def to_msgpack(packer) = packer.write("own") }
    one = made.packer.write(type.new)
    type.include(named)
    assert_equal "\xA3own\xC7\x03\x01ext".b, one.write(type.new).to_s
  end

  def test_reset_makes_a_packer_usable_after_a_fiber_was_abandoned_in_a_payload
    one = with_shells
    fiber = Fiber.new { one.write([1, Shell.new(->(to) { to.write(2) && Fiber.yield })]) }
    fiber.resume
    one.reset
    assert_equal "\x07", one.write(7).full_pack
    assert_raises(RuntimeError) { fiber.resume }
    assert_equal "\x08", one.write(8).full_pack
  end

  def test_fibers_that_use_one_packer_alternately_raise_and_leave_no_bytes
    one = with_shells
    waiting = Shell.new(->(to) { to.write("x" * 300) && Fiber.yield && to.write(2) })
    fibers = Array.new(3) do
      Fiber.new do
        one.write([1, waiting, Shell.new(->(to) { to.write(3) })])
      rescue RuntimeError => e
        e.class
      end
    end
    ended = 4.times.flat_map { fibers.select(&:alive?).map { |fiber| fiber.resume(true) } }
    assert_operator ended.count(RuntimeError), :>=, 2
    one.reset
    assert_equal "\x07", one.write(7).full_pack
  end

  def test_the_buffer_may_be_requested_during_a_write
    [1, 100, 300, 5_000].each do |size|
      value = ["x" * size, Shell.new(->(to) { to.buffer << MP.pack(2) }), Doing.new { |to| to.buffer << MP.pack(3) }, "y" * size]
      one = with_shells
      expected = MP.pack(["x" * size, MP::ExtensionValue.new(1, "\x02"), 3, "y" * size])
      assert_equal expected, one.write(value).to_s, size
      assert_equal expected, one.buffer.to_s
    end
  end

  Doing = Struct.new(:block) do
    def initialize(&block) = super(block)
    def to_msgpack(packer) = block.call(packer)
  end

  def test_packing_into_a_packer_writes_the_value_once
    one = packer.write_array_header(3)
    MP.pack([1], one)
    packer(one).write({}).flush
    packer.write(nil).write_to(one)
    assert_equal "\x93\x91\x01\x80\xC0".b, one.to_s
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"
require_relative "support/cases"

# The specification, format by format and byte for byte.
class MessagePackFormatTest < MessagePackTestCase
  Cases = MessagePackCases

  Cases.all.each do |one|
    define_method("test_#{one.title}_is_written_as_specified") do
      written = MP.pack(one.value)
      assert_equal Encoding::BINARY, written.encoding
      assert_equal one.written.bytesize, written.bytesize
      assert_equal hex(one.written), hex(written) unless one.written == written # avoids a failure message of megabytes
    end

    define_method("test_#{one.title}_is_read_from_each_of_its_encodings") do
      one.encodings.each do |encoding|
        assert_same_value one.value, MP.unpack(encoding, allow_unknown_ext: true), hex(encoding.byteslice(0, 20))
      end
    end
  end

  def test_the_cases_cover_every_first_byte_except_the_reserved_one
    firsts = Cases.all.flat_map(&:encodings).map { |encoding| encoding.getbyte(0) }
    families = [0x00..0x7f, 0x80..0x8f, 0x90..0x9f, 0xa0..0xbf, 0xe0..0xff]
    families.each { |family| assert(firsts.any? { |first| family.cover?(first) }, family.inspect) }
    assert_equal (0xc0..0xdf).to_a - [0xc1], firsts.uniq.sort & (0xc0..0xdf).to_a
  end

  def test_every_positive_and_negative_fixint_is_one_byte
    ((-32)..127).each do |value|
      assert_equal [value & 0xff].pack("C"), MP.pack(value)
      assert_equal value, MP.unpack([value & 0xff].pack("C"))
    end
  end

  def test_every_fixstr_fixarray_and_fixmap_has_its_size_in_its_first_byte
    32.times { |size| assert_equal "x" * size, MP.unpack([0xa0 | size].pack("C") + ("x" * size)) }
    16.times do |size|
      assert_equal [0x90 | size].pack("C") + ("\x01" * size), MP.pack([1] * size)
      pairs = (0...size).to_h { |i| [i, i] }
      packed = [0x80 | size].pack("C") + (0...size).map { |i| [i, i].pack("CC") }.join
      assert_equal packed, MP.pack(pairs)
      assert_equal pairs, MP.unpack(packed)
    end
  end

  def test_integers_around_every_power_of_two_round_trip
    (0..64).flat_map { |power| [-1, 0, 1].flat_map { |more| [(2**power) + more, -(2**power) + more] } }.each do |value|
      next unless (-(2**63)...(2**64)).cover?(value)

      assert_same_value value, MP.unpack(MP.pack(value))
    end
  end

  # ---- floats ----

  def test_a_nan_is_written_as_64_bits_and_read_from_both_widths
    assert_equal "cb#{hex([Float::NAN].pack("G"))}", hex(MP.pack(Float::NAN))
    %w[cb7ff8000000000000 cbfff8000000000000 cb7ff0000000000001 ca7fc00000 caffc00000 ca7f800001].each do |encoding|
      assert_predicate MP.unpack(bytes(encoding)), :nan?, encoding
    end
  end

  def test_write_float32_rounds_to_32_bits
    { 0.1 => "ca3dcccccd", 1.0 => "ca3f800000", -0.0 => "ca80000000", Float::INFINITY => "ca7f800000",
      1e300 => "ca7f800000", 1e-300 => "ca00000000", 3 => "ca40400000" }.each do |value, encoding|
      assert_equal encoding, hex(MP::Packer.new.write_float32(value).to_s)
    end
    assert_predicate MP.unpack(MP::Packer.new.write_float32(Float::NAN).to_s), :nan?
  end

  # ---- encodings of strings ----

  def test_str_is_read_as_utf8_and_bin_as_binary
    assert_equal Encoding::UTF_8, MP.unpack("\xa1a").encoding
    assert_equal Encoding::BINARY, MP.unpack("\xc4\x01a").encoding
  end

  def test_invalid_utf8_is_written_and_read_unchanged
    invalid = "a\xFF\xC3"
    assert_equal "a361ffc3", hex(MP.pack(invalid))
    assert_same_value invalid, MP.unpack(MP.pack(invalid))
  end

  # ---- timestamps ----

  def test_timestamps_are_written_in_the_shortest_format_and_read_back
    Cases::TIMESTAMPS.each do |(sec, nsec), encoding|
      payload = MP::Timestamp.to_msgpack_ext(sec, nsec)
      assert_equal encoding.delete(" "), hex(MP::Packer.new.write_ext(-1, payload).to_s), [sec, nsec]
      read = MP::Timestamp.from_msgpack_ext(payload)
      assert_equal [sec, nsec], [read.sec, read.nsec]
    end
  end

  def test_timestamps_are_read_from_longer_formats_too
    { "00000000 5a4af6a5" => [1_514_862_245, 0], "00000000 000000005a4af6a5" => [1_514_862_245, 0],
      "00000001 0000000000000000" => [0, 1] }.each do |payload, (sec, nsec)|
      assert_equal MP::Timestamp.new(sec, nsec), MP::Timestamp.from_msgpack_ext(bytes(payload))
    end
  end

  # ---- the reserved byte ----

  def test_the_reserved_byte_is_malformed_wherever_a_value_begins
    ["c1", "91c1", "92 01 c1", "81c101", "8101c1", "dc0001c1", "df00000001c101"].each do |encoding|
      assert_raises(MP::MalformedFormatError, encoding) { MP.unpack(bytes(encoding)) }
    end
  end

  def test_the_reserved_byte_is_data_within_strings_and_exts
    assert_equal "\xC1\xC1".b, MP.unpack(bytes("c402c1c1"))
    assert_equal Cases.ext(5, "\xC1"), MP.unpack(bytes("d405c1"), allow_unknown_ext: true)
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/test_case"
require_relative "support/cases"

# The built-in types: ExtensionValue, Timestamp, Time and Bigint.
class MessagePackExtTest < MessagePackTestCase
  TIMESTAMPS = MessagePackCases::TIMESTAMPS

  def factory(*types, **options) = MP::Factory.new.tap { |made| made.register_type(*types, **options) }

  # ---- ExtensionValue ----

  def test_an_extension_value_is_a_struct_of_type_and_payload
    value = MP::ExtensionValue.new(5, "ab")
    assert_equal [5, "ab", [5, "ab"]], [value.type, value.payload, value.to_a]
    assert_equal MP::ExtensionValue.new(5, "ab"), value
    assert_kind_of Struct, value
  end

  def test_extension_values_are_written_anywhere_and_read_if_unknown_types_are_allowed
    value = [MP::ExtensionValue.new(-5, "ab"), { MP::ExtensionValue.new(6, "") => MP::ExtensionValue.new(7, "x" * 70_000) }]
    read = MP.unpack(MP.pack(value), allow_unknown_ext: true)
    assert_same_value value, read
    assert_equal Encoding::BINARY, read[0].payload.encoding
  end

  def test_a_subclass_of_extension_value_is_written_by_its_own_to_msgpack_if_defined
    plain = Class.new(MP::ExtensionValue)
    own = Class.new(MP::ExtensionValue) { def to_msgpack(packer) = packer.write("own") }
    assert_equal "\x92\xD4\x05a\xA3own".b, MP.pack([plain.new(5, "a"), own.new(5, "a")])
    assert_equal "\xD4\x05a".b, MP::Packer.new.write_extension(plain.new(5, "a")).to_s
    assert_equal "\xD4\x05a".b, MP::ExtensionValue.new(5, "a").to_msgpack
    assert_equal "\xD4\x05a".b, MP::Packer.new.write(plain.new(5, Struct.new(:to_str).new("a"))).to_s
  end

  def test_an_unknown_type_raises_an_error_that_names_it
    error = assert_raises(MP::UnknownExtTypeError) { MP.unpack(bytes("92 01 d42a00")) }
    assert_match(/42/, error.message)
    assert_raises(MP::UnknownExtTypeError) { MP.unpack(bytes("d6ff00000000")) }
  end

  def test_a_registered_type_is_unpacked_even_if_unknown_types_are_allowed
    made = factory(5, Range, packer: :to_s, unpacker: ->(data) { [:range, data] })
    assert_equal [[:range, "a"], MP::ExtensionValue.new(6, "b")], made.load(bytes("92 d40561 d40662"), allow_unknown_ext: true)
  end

  def test_an_extension_value_with_an_invalid_type_or_payload_is_rejected
    [[128, "a"], [-129, "a"], [nil, "a"], %w[1 a], [1, nil], [1, 5]].each do |type, payload|
      one = MP::Packer.new.write(1)
      [-> { one.write(MP::ExtensionValue.new(type, payload)) }, -> { one.write_extension(MP::ExtensionValue.new(type, payload)) }]
        .each { |call| assert_raises(TypeError, RangeError, [type, payload].inspect, &call) }
      assert_equal "\x01", one.to_s
    end
  end

  # ---- Timestamp ----

  def test_timestamps_round_trip_in_each_format
    made = factory(-1, MP::Timestamp)
    TIMESTAMPS.each do |(sec, nsec), encoding|
      assert_equal encoding.delete(" "), hex(made.dump(MP::Timestamp.new(sec, nsec))), [sec, nsec]
      assert_equal MP::Timestamp.new(sec, nsec), made.load(bytes(encoding))
    end
    assert_equal(-1, MP::Timestamp::TYPE)
  end

  def test_timestamps_compare_by_seconds_and_nanoseconds
    one = MP::Timestamp.new(1, 2)
    assert_equal MP::Timestamp.new(1, 2), one
    [MP::Timestamp.new(1, 3), MP::Timestamp.new(2, 2), nil, 1, [1, 2]].each { |other| refute_equal other, one }
    assert_equal [1, 2], [one.sec, one.nsec]
  end

  def test_a_timestamp_of_another_size_is_malformed
    made = factory(-1, MP::Timestamp)
    ((0..20).to_a - [4, 8, 12] + [255, 300]).each do |size|
      assert_raises(MP::MalformedFormatError, size.to_s) { MP::Timestamp.from_msgpack_ext("\0" * size) }
      data = MP::Packer.new.write_ext(-1, "\0" * size).to_s
      assert_raises(MP::MalformedFormatError, size.to_s) { made.load(data) }
    end
  end

  def test_a_timestamp_with_a_second_or_more_of_nanoseconds_is_malformed
    { [10**9, 5].pack("L>q>") => [999_999_999, 5].pack("L>q>"),
      [(10**9) << 34].pack("Q>") => [999_999_999 << 34].pack("Q>") }.each do |malformed, whole|
      assert_equal 999_999_999, MP::Timestamp.from_msgpack_ext(whole).nsec
      assert_raises(MP::MalformedFormatError) { MP::Timestamp.from_msgpack_ext(malformed) }
      assert_raises(MP::MalformedFormatError) { of_time.load(MP::Packer.new.write_ext(-1, malformed).to_s) }
    end
  end

  # ---- Time ----

  TIMES = [Time.at(0), Time.at(1_514_862_245, 678_901_234, :nanosecond), Time.at(-1, 999_999_999, :nanosecond),
           Time.at(2**34), Time.at(253_402_300_799), Time.at(-62_167_219_200)].freeze

  def of_time = factory(-1, Time, packer: MP::Time::Packer, unpacker: MP::Time::Unpacker)

  def test_times_round_trip_to_the_nanosecond
    TIMES.each do |time|
      back = of_time.load(of_time.dump(time))
      assert_equal [time.to_i, time.nsec], [back.to_i, back.nsec]
      assert_kind_of Time, back
    end
    assert_equal TIMES, of_time.load(of_time.dump(TIMES))
  end

  def test_times_are_written_as_timestamps
    TIMESTAMPS.each do |(sec, nsec), encoding|
      next unless sec.abs < 2**40

      assert_equal encoding.delete(" "), hex(of_time.dump(Time.at(sec, nsec, :nanosecond)))
    end
  end

  def test_fractions_of_nanoseconds_are_truncated
    assert_equal 333_333_333, of_time.load(of_time.dump(Time.at(1r / 3))).nsec
  end

  def test_a_time_that_does_not_fit_is_not_packed
    { 2**63 => false, (2**63) - 1 => true, -(2**63) => true, -(2**63) - 1 => false, 2**64 => false, 10**30 => false }
      .each do |seconds, fits|
        time = Time.at(seconds, 5, :nanosecond)
        if fits
          assert_equal [seconds, 5], of_time.load(of_time.dump(time)).then { |back| [back.to_i, back.nsec] }
        else
          error = assert_raises(RangeError) { of_time.dump(time) }
          assert_match(/seconds must fit into 64 bits/, error.message)
          assert_raises(RangeError) { MP::Timestamp.new(seconds, 0).to_msgpack_ext }
        end
      end
  end

  def test_the_procs_for_times_are_shareable
    assert([MP::Time::Packer, MP::Time::Unpacker, MP::Time::TimestampUnpacker].all? { |one| Ractor.shareable?(one) })
  end

  def test_times_raise_without_a_registered_type
    assert_raises(NoMethodError) { MP.pack(Time.now) }
  end

  # ---- Bigint ----

  def test_bigints_round_trip
    [0, 1, -1, 2**31, 2**32, (2**32) - 1, 2**64, -(2**64), 2**65, 10**100, -(10**100), 2**4096, -(2**4096) + 1].each do |number|
      assert_equal number, MP::Bigint.from_msgpack_ext(MP::Bigint.to_msgpack_ext(number)), number
    end
  end

  # A sign, then 32 bits at a time: the lowest first, each with its highest byte first.
  def test_the_format_of_bigints_is_fixed
    { 2**64 => "00 00000000 00000000 00000001", -(2**64) => "01 00000000 00000000 00000001",
      (2**96) - 1 => "00 ffffffff ffffffff ffffffff", 0x0102030405060708090a0b0c => "00 090a0b0c 05060708 01020304",
      -0x0102030405060708090a0b0c => "01 090a0b0c 05060708 01020304" }.each do |number, payload|
      assert_equal payload.delete(" "), hex(MP::Bigint.to_msgpack_ext(number))
      assert_equal number, MP::Bigint.from_msgpack_ext(bytes(payload))
    end
  end
end

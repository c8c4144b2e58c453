# frozen_string_literal: true

# The formats of MessagePack's specification, byte for byte, in the manner of the public test suite: groups of cases, each with
# its name, its value, the encoding that is written, and other encodings that are read as the same value. Encodings are in hex. A
# long encoding is given as the hex of its header and the bytes after it.
module MessagePackCases
  Case = Struct.new(:group, :name, :value, :written, :others) do
    def title = "#{group}_#{name}".gsub(/\W+/, "_")
    def encodings = [written, *others]
  end

  # A header in hex, and the bytes after it.
  def self.bytes(hex, rest = "") = [hex.delete(" ")].pack("H*") + rest.b

  def self.ext(type, payload) = Penstock::MessagePack::ExtensionValue.new(type, payload.b)

  ATOMS = {
    nil: [nil, "c0"], false => [false, "c2"], true => [true, "c3"]
  }.freeze

  # Integers at every border of every format, and of Ruby's own two kinds of Integer: the shortest encoding.
  INTEGERS = {
    0 => "00", 1 => "01", 126 => "7e", 127 => "7f", 128 => "cc80", 254 => "ccfe", 255 => "ccff", 256 => "cd0100",
    0x7fff => "cd7fff", 0x8000 => "cd8000", 0xfffe => "cdfffe", 0xffff => "cdffff", 0x1_0000 => "ce00010000",
    0x7fff_ffff => "ce7fffffff", 0x8000_0000 => "ce80000000", 0xffff_ffff => "ceffffffff",
    0x1_0000_0000 => "cf0000000100000000", (2**53) + 1 => "cf0020000000000001",
    (2**62) - 1 => "cf3fffffffffffffff", 2**62 => "cf4000000000000000",
    (2**63) - 1 => "cf7fffffffffffffff", 2**63 => "cf8000000000000000", (2**64) - 1 => "cfffffffffffffffff",
    -1 => "ff", -2 => "fe", -31 => "e1", -32 => "e0", -33 => "d0df", -127 => "d081", -128 => "d080", -129 => "d1ff7f",
    -0x7fff => "d18001", -0x8000 => "d18000", -0x8001 => "d2ffff7fff",
    -0x7fff_ffff => "d280000001", -0x8000_0000 => "d280000000", -0x8000_0001 => "d3ffffffff7fffffff",
    -(2**62) => "d3c000000000000000", -(2**62) - 1 => "d3bfffffffffffffff",
    -(2**63) + 1 => "d38000000000000001", -(2**63) => "d38000000000000000"
  }.freeze
  # The first byte, the layout of the rest, and the range that fits.
  INTEGER_FORMATS = [
    ["cc", "C", 0...2**8], ["cd", "S>", 0...2**16], ["ce", "L>", 0...2**32], ["cf", "Q>", 0...2**64],
    ["d0", "c", -2**7...2**7], ["d1", "s>", -2**15...2**15], ["d2", "l>", -2**31...2**31], ["d3", "q>", -2**63...2**63]
  ].freeze

  # As 64 bits, which is written, and as 32 bits if the value is the same.
  FLOATS = {
    zero: [0.0, "cb0000000000000000", "ca00000000"], minus_zero: [-0.0, "cb8000000000000000", "ca80000000"],
    one: [1.0, "cb3ff0000000000000", "ca3f800000"], minus_one: [-1.0, "cbbff0000000000000", "cabf800000"],
    half: [0.5, "cb3fe0000000000000", "ca3f000000"], tenth: [0.1, "cb3fb999999999999a"],
    third: [1.0 / 3, "cb3fd5555555555555"], largest: [Float::MAX, "cb7fefffffffffffff"],
    smallest: [Float::MIN, "cb0010000000000000"],
    subnormal: [5e-324, "cb0000000000000001"],
    largest_of_32_bit: [3.4028234663852886e+38, "cb47efffffe0000000", "ca7f7fffff"],
    smallest_of_32_bit: [1.401298464324817e-45, "cb36a0000000000000", "ca00000001"],
    infinity: [Float::INFINITY, "cb7ff0000000000000", "ca7f800000"],
    minus_infinity: [-Float::INFINITY, "cbfff0000000000000", "caff800000"]
  }.freeze

  # The headers for each kind, shortest first: those that can hold `size`.
  LENGTHS = {
    str: [["a0", 32], ["d9", 2**8], ["da", 2**16], ["db", 2**32]], bin: [["c4", 2**8], ["c5", 2**16], ["c6", 2**32]],
    array: [["90", 16], ["dc", 2**16], ["dd", 2**32]], map: [["80", 16], ["de", 2**16], ["df", 2**32]]
  }.freeze
  BORDERS = { str: [0, 1, 31, 32, 255, 256, 65_535, 65_536], bin: [0, 1, 31, 32, 255, 256, 65_535, 65_536],
              array: [0, 1, 15, 16, 65_535, 65_536], map: [0, 1, 15, 16, 65_535, 65_536] }.freeze

  # @return [Array<String>] all headers for that size
  def self.headers(kind, size)
    LENGTHS.fetch(kind).select { |_, limit| size < limit }.map do |first, limit|
      next [first.hex | size].pack("C") if limit <= 32

      bytes(first) + [size].pack({ 2**8 => "C", 2**16 => "S>", 2**32 => "L>" }.fetch(limit))
    end
  end

  STRINGS = {
    ascii: %w[a a161], ten_digits: %w[1234567890 aa31323334353637383930],
    cyrillic: ["Кириллица", "b2 d09a d0b8 d180 d0b8 d0bb d0bb d0b8 d186 d0b0"],
    hiragana: ["ひらがな", "ac e381b2 e38289 e3818c e381aa"], hangul: ["한글", "a6 ed959c eab880"],
    han: ["汉字", "a6 e6b189 e5ad97"], emoji: ["❤", "a3 e29da4"], emoji_of_four_bytes: ["🍺", "a4 f09f8dba"],
    a_zero_byte: ["a\0b", "a3 61 00 62"]
  }.freeze

  NESTED = {
    array_of_array: [[[]], "91 90"], array_of_map: [[{}], "91 80"], map_of_map: [{ "a" => {} }, "81 a161 80"],
    map_of_array: [{ "a" => [] }, "81 a161 90"], one_two_three: [[1, 2, 3], "93 01 02 03"],
    mixed: [[nil, true, -1, "x", [1.5]], "95 c0 c3 ff a178 91 cb3ff8000000000000"],
    two_pairs_in_their_order: [{ "b" => 1, "a" => 2 }, "82 a162 01 a161 02"],
    keys_of_every_kind: [{ nil => 1, true => 2, 3 => 4, 1.5 => 5, [6] => 7, { "x" => 8 } => 9 },
                         "86 c0 01 c3 02 03 04 cb3ff8000000000000 05 91 06 07 81 a178 08 09"]
  }.freeze

  # A size with its own format is written in it. ext 8, 16 and 32 are read for every size.
  FIXEXT = { 1 => "d4", 2 => "d5", 4 => "d6", 8 => "d7", 16 => "d8" }.freeze
  EXT_SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 32, 255, 256, 65_535, 65_536].freeze
  EXT_TYPES = [-128, -127, -2, 0, 1, 16, 126, 127].freeze # -1 is the timestamp

  def self.ext_encodings(type, payload)
    size = payload.bytesize
    found = FIXEXT.key?(size) ? [bytes(FIXEXT[size]) + [type].pack("c")] : []
    [["c7", "C", 2**8], ["c8", "S>", 2**16], ["c9", "L>", 2**32]].each do |first, format, limit|
      found << (bytes(first) + [size, type].pack("#{format}c")) if size < limit
    end
    found.map { |header| header + payload }
  end

  # [seconds, nanoseconds] => the ext's header, type and payload
  TIMESTAMPS = {
    [0, 0] => "d6ff 00000000", [1, 0] => "d6ff 00000001", [1_514_862_245, 0] => "d6ff 5a4af6a5",
    [1_514_862_245, 678_901_234] => "d7ff a1dcd7c85a4af6a5", [0, 1] => "d7ff 0000000400000000",
    [2_147_483_647, 999_999_999] => "d7ff ee6b27fc7fffffff", [2_147_483_648, 0] => "d6ff 80000000",
    [4_294_967_295, 0] => "d6ff ffffffff", [4_294_967_295, 999_999_999] => "d7ff ee6b27fcffffffff",
    [4_294_967_296, 0] => "d7ff 0000000100000000", [17_179_869_183, 999_999_999] => "d7ff ee6b27ffffffffff",
    [17_179_869_184, 0] => "c70cff 00000000 0000000400000000", [-1, 0] => "c70cff 00000000 ffffffffffffffff",
    [-1, 999_999_999] => "c70cff 3b9ac9ff ffffffffffffffff", [-2_208_988_801, 999_999_999] => "c70cff 3b9ac9ff ffffffff7c55817f",
    [-2_208_988_800, 0] => "c70cff 00000000 ffffffff7c558180", [-62_167_219_200, 0] => "c70cff 00000000 fffffff1868b8400",
    [253_402_300_799, 999_999_999] => "c70cff 3b9ac9ff 0000003afff4417f",
    [(2**63) - 1, 999_999_999] => "c70cff 3b9ac9ff 7fffffffffffffff", [-(2**63), 0] => "c70cff 00000000 8000000000000000"
  }.freeze

  def self.all
    @all ||= named(:atom, ATOMS) + integers + named(:float, FLOATS) + named(:str, STRINGS) + named(:nested, NESTED) + sized + exts
  end

  def self.named(group, cases)
    cases.map do |name, (value, *encodings)|
      written, *others = encodings.map { |hex| bytes(hex) }
      Case.new(group, name, value, written, others)
    end
  end

  def self.integers
    INTEGERS.map do |value, hex|
      formats = INTEGER_FORMATS.select { |_, _, range| range.cover?(value) }
      wider = formats.map { |first, layout, _| bytes(first) + [value].pack(layout) }
      Case.new(:int, value.negative? ? "minus_#{-value}" : value, value, bytes(hex), wider - [bytes(hex)])
    end
  end

  def self.sized
    BORDERS.flat_map do |kind, sizes|
      sizes.map do |size|
        value, content = content_of(kind, size)
        written, *others = headers(kind, size).map { |header| header + content }
        Case.new(kind, "of_#{size}", value, written, others)
      end
    end
  end

  # @return [Array(Object, String)] a value of that kind and size, and its encoding without the header
  def self.content_of(kind, size)
    case kind
    when :str then ["x" * size, "x".b * size]
    when :bin then ["\xFF".b * size, "\xFF".b * size]
    when :array then [Array.new(size, true), bytes("c3") * size]
    when :map
      keys = 0x1_0000...(0x1_0000 + size)
      [keys.to_h { |key| [key, nil] }, keys.map { |key| bytes("ce") + [key].pack("L>") + bytes("c0") }.join]
    end
  end

  def self.exts
    small = EXT_TYPES.map { |type| ["of_type_#{type.to_s.tr("-", "m")}", type, "ab".b] }
    (small + EXT_SIZES.map { |size| ["of_#{size}", 5, "\x5A".b * size] }).map do |name, type, payload|
      written, *others = ext_encodings(type, payload)
      Case.new(:ext, name, ext(type, payload), written, others)
    end
  end
end

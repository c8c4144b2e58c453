# frozen_string_literal: true

# The partitions that Kafka's Java client chooses for keys: the hash and the partitions that it computes itself (Partitions.java
# beside this file, Kafka 4.3.1). To compute them again: ruby test/support/java_partitions.rb
module JavaPartitions
  COUNTS = [1, 2, 3, 7, 100].freeze # of partitions

  KEYS = {
    "empty" => "", "a byte" => "a", "two bytes" => "ab", "three bytes" => "abc", "four bytes" => "abcd", "five bytes" => "abcde",
    "seven bytes" => "1234567", "a word" => "foobar", "a uuid" => "0b3e7a54-5c1f-4a8e-9a27-2c7a8de0b3f1",
    "10 kB" => "0123456789" * 1_000, "10 kB of every byte" => ([*0..255].pack("C*") * 40)[0, 10_000],
    "a zero byte" => "\0", "zero bytes" => "\0\0\0\0\0", "a negative byte" => "\xFF".b, "negative bytes" => "\xFF\x80\xFE".b,
    "binary" => "\x00\xFF\x7F\x80\x01\xFE".b, "Latin in UTF-8" => "é", "Latin in ISO-8859-1" => "é".encode("ISO-8859-1"),
    "Cyrillic in UTF-8" => "ключ", "Cyrillic in KOI8-R" => "ключ".encode("KOI8-R"),
    "Cyrillic in Windows-1251" => "ключ".encode("Windows-1251"), "Japanese in UTF-8" => "日本語",
    "Japanese in UTF-16LE" => "日本語".encode("UTF-16LE"), "Japanese in UTF-16BE" => "日本語".encode("UTF-16BE"),
    "Japanese in Shift_JIS" => "日本語".encode("Shift_JIS"), "Japanese in EUC-JP" => "日本語".encode("EUC-JP"),
    "an emoji" => "👩‍🚀", "invalid UTF-8" => "caf\xE9", "10 kB of Greek" => "ω" * 5_000
  }.freeze

  # key => [murmur2, its partition of each of COUNTS]
  GOLDEN = {
    "empty" => [275_646_681, 0, 1, 0, 2, 81],
    "a byte" => [-1_563_381_124, 0, 0, 1, 5, 24],
    "two bytes" => [316_155_434, 0, 0, 2, 0, 34],
    "three bytes" => [479_470_107, 0, 1, 0, 4, 7],
    "four bytes" => [-1_323_649_548, 0, 0, 2, 5, 0],
    "five bytes" => [461_995_741, 0, 1, 1, 4, 41],
    "seven bytes" => [-605_210_426, 0, 0, 0, 0, 22],
    "a word" => [-790_332_482, 0, 0, 0, 0, 66],
    "a uuid" => [110_731_353, 0, 1, 0, 5, 53],
    "10 kB" => [-414_388_459, 0, 1, 1, 0, 89],
    "10 kB of every byte" => [-435_405_522, 0, 0, 2, 3, 26],
    "a zero byte" => [375_494_588, 0, 0, 2, 0, 88],
    "zero bytes" => [263_274_959, 0, 1, 2, 3, 59],
    "a negative byte" => [-311_467_685, 0, 1, 0, 5, 63],
    "negative bytes" => [957_058_525, 0, 1, 1, 3, 25],
    "binary" => [-2_087_273_141, 0, 1, 0, 0, 7],
    "Latin in UTF-8" => [186_971_271, 0, 1, 0, 4, 71],
    "Latin in ISO-8859-1" => [122_901_908, 0, 0, 2, 3, 8],
    "Cyrillic in UTF-8" => [2_122_343_024, 0, 0, 2, 4, 24],
    "Cyrillic in KOI8-R" => [-608_043_919, 0, 1, 1, 2, 29],
    "Cyrillic in Windows-1251" => [-1_628_173_079, 0, 1, 0, 1, 69],
    "Japanese in UTF-8" => [1_431_860_170, 0, 0, 1, 6, 70],
    "Japanese in UTF-16LE" => [631_858_697, 0, 1, 2, 1, 97],
    "Japanese in UTF-16BE" => [1_308_507_219, 0, 1, 0, 5, 19],
    "Japanese in Shift_JIS" => [1_617_171_041, 0, 1, 2, 3, 41],
    "Japanese in EUC-JP" => [-1_853_717_204, 0, 0, 0, 6, 44],
    "an emoji" => [1_750_928_535, 0, 1, 0, 6, 35],
    "invalid UTF-8" => [-1_225_352_294, 0, 0, 0, 4, 54],
    "10 kB of Greek" => [1_952_415_785, 0, 1, 2, 5, 85]
  }.freeze

  # @return [Hash] GOLDEN, computed by Kafka's jars
  def self.compute
    hex = KEYS.each_value.map { |key| key.unpack1("H*") }
    program = File.join(__dir__, "Partitions.java")
    command = [File.expand_path("../../bin/kafka", __dir__), "java", program, *COUNTS.map(&:to_s)]
    lines = IO.popen(command, "r+") do |java|
      java.puts(hex)
      java.close_write
      java.readlines
    end
    KEYS.keys.zip(lines.map { |line| line.split.map(&:to_i) }).to_h
  end
end

if $PROGRAM_NAME == __FILE__
  JavaPartitions.compute.each do |name, (hash, *partitions)|
    puts "    #{name.inspect} => [#{hash.to_s.gsub(/\B(?=(\d{3})+$)/, "_")}, #{partitions.join(", ")}],"
  end
end

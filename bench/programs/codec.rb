# frozen_string_literal: true

# Packing and unpacking a document: ruby codec.rb SERVERS TOPIC LIBRARY DOCUMENT [SETTING=VALUE...]. Only LIBRARY and DOCUMENT are
# used. LIBRARY is penstock or msgpack (the gem).

require "json"
require_relative "codec_packing"

DOCUMENTS = {
  "a small map" => { "id" => 12_345, "name" => "Alice", "active" => true },
  "a big array" => Array.new(100_000) { |i| i * 7919 % 1_000_003 },
  "a big map" => Array.new(1_000) { |i| ["key #{i}", i] }.to_h,
  "long strings" => Array.new(10) { |i| "é#{i}" * 50_000 },
  "short strings" => Array.new(1_000) { |i| "string number #{i}" },
  "integers" => Array.new(1_000) { |i| [i, i * 1_000, -i * 70_000, i << 40][i * 7 % 4] },
  "floats" => Array.new(1_000) { |i| i * 1.1 },
  "a nested document" => {
    "user" => { "id" => 1, "name" => "Bob", "tags" => %w[a b c], "address" => { "street" => "Main", "geo" => [1.5, 2.5] } },
    "items" => Array.new(20) do |i|
      { "sku" => "s#{i}", "qty" => i, "price" => i * 1.25, "options" => { "gift" => false, "note" => nil } }
    end
  }
}.freeze
# Cases that are only unpacked, with types and with options: several documents in a row.
TREE = Struct.new(:value, :children)
UNPACKED = {
  "recursive ext types" => [Array.new(20) { |i| 5.times.inject(TREE.new(i, [])) { |inner, n| TREE.new(n, [inner]) } }],
  "ext types" => [Array.new(100) { |i| i..i }],
  "deep nesting" => [100.times.inject("x") { |inner, i| i.even? ? [inner] : { "k" => inner } }],
  "unique keys" => Array.new(200) { |n| Array.new(100) { |i| ["unique #{n} #{i} key", i] }.to_h },
  "integer keys" => [Array.new(1_000) { |i| [i, i] }.to_h, Array.new(100) { |i| { 1 => i, 2 => i } }],
  "symbol keys" => [Array.new(100) { |i| { "id" => i, "name" => "x#{i}", "active" => true } }],
  "frozen" => [Array.new(100) { |i| { "id" => i, "name" => "x#{i % 5}", "tags" => %w[a b] } }]
}.freeze
OPTIONS = { "symbol keys" => { symbolize_keys: true }, "frozen" => { freeze: true } }.freeze

# @return [MessagePack::Factory] the library's, with types
def factory(library)
  library::Factory.new.tap do |made|
    made.register_type(1, Range, packer: ->(range) { [range.begin].pack("N") }, unpacker: ->(data) { data.unpack1("N")..nil })
    made.register_type(2, TREE, recursive: true, packer: ->(tree, packer) { packer.write(tree.value).write(tree.children) },
                                unpacker: ->(unpacker) { TREE.new(unpacker.read, unpacker.read) })
  end
end
SECONDS = 0.25 # approximately, for each of the two in a round

def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

# @return [Float] microseconds of CPU time for one: the median of 5 parts
def cost(&block)
  count = 1
  count *= 2 while timed(count, &block) < SECONDS / 5
  Array.new(5) { timed(count, &block) }.sort[2] / count * 1e6
end

def timed(count, &block)
  started = cpu
  count.times(&block)
  cpu - started
end

def kilobytes(name) = File.read("/proc/self/status")[/^#{name}:\s*(\d+)/, 1].to_i

# @return [Integer] kilobytes that one of each adds to the process, at most. Accumulated garbage does not count: a library that
#   makes less garbage is collected less often, and accumulates more.
def memory(codec, document)
  GC.start
  before = kilobytes("VmRSS")
  20.times do
    packed = codec.pack(document)
    GC.start
    codec.unpack(packed) == document or abort "the document does not round-trip"
    GC.start
  end
  kilobytes("VmHWM") - before
end

_servers, _topic, library, name = ARGV
require library
codec = library == "penstock" ? Penstock::MessagePack : MessagePack
version = library == "penstock" ? Penstock::VERSION : MessagePack::VERSION
CodecPacking.run(name, codec, "#{library} #{version}") if CodecPacking::CASES.key?(name)
codec.unpack(codec.pack(1)) # creates what is created only once
if UNPACKED.key?(name)
  codec = factory(codec)
  packed = UNPACKED[name].map { |document| codec.dump(document) }
  options = OPTIONS.fetch(name, {})
  place = 0
else
  document = DOCUMENTS.fetch(name)
  memory = memory(codec, document)
  packed = codec.pack(document)
end

$stdout.sync = true
puts JSON.generate(ready: "#{library} #{version}, Ruby #{RUBY_VERSION}", differs: [])
while $stdin.gets
  GC.start
  packing = document ? cost { codec.pack(document) } : nil
  unpacking = document ? cost { codec.unpack(packed) } : cost { codec.load(packed[(place += 1) % packed.size], options) }
  puts JSON.generate(seconds: (packing.to_f + unpacking) / 1e6, delivered: 1, failed: 0, packing:, unpacking:, memory:)
end

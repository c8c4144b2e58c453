# frozen_string_literal: true

# Objects whose to_msgpack(packer) passes the Packer on to Ruby's own classes, with the msgpack gem in the same program:
#
#   ruby -Ilib test/message_pack/support/beside_gem.rb FILE...
#
# It requires the files in that order. It prints each case in which either library writes other bytes than without passing the
# Packer on, and last the number of cases. It exits with 3 if the gem is missing.

begin
  ARGV.each { |file| require file }
rescue LoadError => e
  warn "#{e.message}: skipped"
  exit 3
end
require "stringio"

# The cases of one program.
class BesideGem
  OURS = Penstock::MessagePack
  GEMS = MessagePack

  Handing = Struct.new(:value) { def to_msgpack(packer) = value.to_msgpack(packer) }
  Asking = Struct.new(:value) do
    def to_msgpack(packer = nil)
      raise "no Packer" unless packer.is_a?(MessagePack::Packer) || packer.is_a?(Penstock::MessagePack::Packer)

      value.to_msgpack(packer)
    end
  end
  Text = Class.new(String)
  List = Class.new(Array)
  Extended = Class.new(OURS::ExtensionValue)

  EXT = "\xD5\x05ab".b
  VALUES = {
    [1, [2, nil]] => "\x92\x01\x92\x02\xC0".b, [] => "\x90".b, { "a" => 1, 2 => [] } => "\x82\xA1a\x01\x02\x90".b,
    "text" => "\xA4text".b, ("x" * 20_000) => "\xDA\x4E\x20#{"x" * 20_000}".b, "\xFF".b => "\xC4\x01\xFF".b, :sym => "\xA3sym".b,
    5 => "\x05".b, (2**63) => "\xCF\x80\0\0\0\0\0\0\0".b, 1.5 => "\xCB\x3F\xF8\0\0\0\0\0\0".b, nil => "\xC0".b, true => "\xC3".b,
    false => "\xC2".b, Text.new("a") => "\xA1a".b, List[1] => "\x91\x01".b,
    GEMS::ExtensionValue.new(5, "ab") => EXT, OURS::ExtensionValue.new(5, "ab") => EXT, Extended.new(5, "ab") => EXT
  }.freeze

  Tree = Struct.new(:value)

  def self.to_io(library, object)
    io = StringIO.new("".b)
    library::Packer.new(io).write(object).flush
    io.string
  end

  WAYS = {
    pack: ->(library, object) { library.pack(object) }, packer: ->(library, object) { library::Packer.new.write(object).to_s },
    io: ->(library, object) { to_io(library, object) }, factory: ->(library, object) { library::Factory.new.dump(object) }
  }.freeze

  def self.written(library, way, object)
    WAYS[way][library, object]
  rescue StandardError => e
    "#{e.class}: #{e.message[0, 100]}"
  end

  def self.cases
    VALUES.to_a.product([OURS, GEMS], WAYS.keys, [Handing, Asking]) do |(value, bytes), library, way, type|
      expected = "\x93\x01".b + bytes + "\x02".b
      yield "#{library} #{way} #{type} #{value.class}", expected, written(library, way, [1, type.new(value), 2])
    end
    VALUES.to_a.product([OURS, GEMS]) do |(value, bytes), library|
      packer = library::Packer.new
      yield "#{library} directly #{value.class}", bytes, value.to_msgpack(packer).equal?(packer) ? packer.to_s : ""
    end
    [OURS::Packer.new, GEMS::Packer.new].each do |packer|
      OURS.pack([1], packer.write_array_header(2))
      OURS::Packer.new(packer).write("a").flush
      yield "our bytes into a #{packer.class}", "\x92\x91\x01\xA1a".b, packer.to_s
    end
  end
end

count = differ = 0
BesideGem.cases do |name, expected, written|
  count += 1
  next if expected == written.b

  differ += 1
  puts "#{name}: #{written[0, 100].inspect}"
end
puts "message_pack beside the gem #{MessagePack::VERSION}: #{count} cases, #{differ} differ"

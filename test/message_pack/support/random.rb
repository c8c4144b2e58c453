# frozen_string_literal: true

# Random values for which MessagePack has a format, with values at the formats' borders more often than by chance. The same seed
# gives the same values. It works in Ractors.
class MessagePackRandom
  # @param extension [Class] the class of ext values, which differs between the gem and Penstock
  # @param exact [Boolean] only values that equal themselves, and nothing else, after a round trip: no NaN, no Symbol
  def initialize(seed, extension: Penstock::MessagePack::ExtensionValue, exact: false)
    @random = Random.new(seed)
    @extension = extension
    @exact = exact
  end

  def object(depth = 4)
    kind = @random.rand(depth.positive? ? 14 : 10)
    case kind
    when 0 then atom
    when 1..3 then integer
    when 4 then float
    when 5..7 then text
    when 8 then binary
    when 9 then ext
    when 10, 11 then Array.new(size) { object(depth - 1) }
    else map(depth - 1)
    end
  end

  # A valid document with some bytes changed, removed or inserted.
  def damaged(data)
    data = data.dup
    @random.rand(1..3).times do
      at = @random.rand(data.bytesize + 1)
      case @random.rand(3)
      when 0 then data.setbyte(at, @random.rand(256)) if at < data.bytesize
      when 1 then data.slice!(at)
      else data.insert(at, [first_byte].pack("C"))
      end
    end
    data
  end

  # Bytes, of which many are headers.
  def bytes(longest)
    Array.new(@random.rand(longest)) { @random.rand(3).zero? ? first_byte : @random.rand(256) }.pack("C*")
  end

  private

  def first_byte = @random.rand(0x80..0xdf)

  def atom = [nil, true, false].sample(random: @random)

  def size
    case @random.rand(30)
    when 0 then @random.rand(14..18)
    when 1 then @random.rand(100)
    else @random.rand(4)
    end
  end

  # All bit lengths are equally likely, so that each format has its share.
  def integer
    bits = @random.rand(65)
    value = [(2**bits) - 1, 2**bits, @random.rand(2**bits)].sample(random: @random)
    value = -value if @random.rand(2).zero?
    value.clamp(-(2**63), (2**64) - 1)
  end

  def float
    special = @random.rand(20)
    return [0.0, -0.0, Float::INFINITY, -Float::INFINITY, Float::MAX, 5e-324][special] if special < 6 && !(@exact && special == 1)

    value = special < 12 ? @random.rand : [@random.rand(2**64)].pack("Q").unpack1("d")
    @exact && value.nan? ? 0.5 : value
  end

  def length
    case @random.rand(100)
    when 0 then @random.rand(65_530..65_540)
    when 1, 2 then @random.rand(250..260)
    when 3..10 then @random.rand(28..36)
    else @random.rand(12)
    end
  end

  def text
    letter = ["a", "é", "あ", "🍺", "\0"].sample(random: @random)
    made = (letter * length) + @random.rand(1000).to_s
    !@exact && @random.rand(10).zero? ? made.to_sym : made
  end

  def binary = @random.bytes(length)

  # Any type except the timestamp's.
  def ext
    size = [0, 1, 2, 4, 8, 16, length].sample(random: @random)
    @extension.new([-128, -2, 0, 5, 127].sample(random: @random), @random.bytes(size))
  end

  def map(depth)
    made = {}
    size.times { made[key(depth)] = object(depth) }
    made
  end

  def key(depth)
    case @random.rand(12)
    when 0..6 then "k#{@random.rand(50)}"
    when 7, 8 then integer
    when 9 then atom
    when 10 then Array.new(@random.rand(3)) { object(depth - 1) if depth.positive? }
    else text.to_s
    end
  end
end

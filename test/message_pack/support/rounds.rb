# frozen_string_literal: true

# Passes random values through Penstock's MessagePack and through the gem "msgpack". Each reads what the other has written:
#
#   ruby -Ilib test/message_pack/support/rounds.rb [ROUNDS [SEED]]
#
# Its last line is the figure. It fails when one value differs. Values are compared by the gem's encoding of them, which shows
# what == does not: 1 and 1.0, a NaN, str and bin, the order of keys. Without the gem it exits with status 3.

require "penstock/message_pack"
begin
  require "msgpack"
rescue LoadError => e
  warn "the gem msgpack is not installed: #{e.message}"
  exit 3
end
require_relative "random"

# Two streams of the same values, because the classes of ext values differ.
class MessagePackRounds
  OURS = Penstock::MessagePack
  GEMS = MessagePack
  SHOWN = 5

  def initialize(rounds, seed)
    @rounds = rounds
    @seed = seed
    @ours = MessagePackRandom.new(seed)
    @gems = MessagePackRandom.new(seed, extension: GEMS::ExtensionValue)
    @wrong = @bytes = 0
  end

  def run
    start = now
    @rounds.times { |number| round(number) }
    puts figure(now - start)
    @wrong.zero?
  end

  private

  def round(number)
    value = @ours.object
    packed = OURS.pack(value)
    expected = GEMS.pack(@gems.object)
    @bytes += packed.bytesize
    check(number, "is written differently", expected) { packed }
    check(number, "is read differently from the gem's", expected) { OURS.pack(OURS.unpack(expected, allow_unknown_ext: true)) }
    check(number, "is read differently by the gem", expected) { GEMS.pack(GEMS.unpack(packed, allow_unknown_ext: true)) }
    check(number, "is frozen differently", expected) do
      OURS.pack(OURS.unpack(expected, allow_unknown_ext: true, freeze: true, key_cache: true))
    end
  end

  def check(number, what, expected)
    found = yield
    return if found == expected

    @wrong += 1
    show(number, what, [expected, found]) if @wrong <= SHOWN
  end

  def show(number, what, both)
    puts "number #{number} #{what}: #{both.map { |data| data.unpack1("H*")[0, 200] }.join(" and ")}"
  end

  def figure(seconds)
    "message_pack rounds: #{@rounds} random values (#{@bytes / 1_000_000} MB) both ways with msgpack #{GEMS::VERSION}, " \
      "#{@wrong} differ; seed #{@seed}, #{seconds.round(1)} s, Ruby #{RUBY_VERSION}"
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

rounds, seed = ARGV
exit MessagePackRounds.new(Integer(rounds || 20_000), Integer(seed || (Random.new_seed % (2**32)))).run

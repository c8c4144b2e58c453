# frozen_string_literal: true

require "zlib"
require_relative "attack"

class HostileBroker
  # Changes good answers at random, in the same way for the same seed and round. It has the interface of Attack.
  class Mutations
    CLIENTS = %i[produce produce_idempotently produce_sasl transact assign subscribe examine].freeze
    NUMBERS = [-2**31, -2, -1, 0, 1, 2, 999, 65_536, 100_001, (2**31) - 1].freeze
    SHARE = 0.35 # of the answers are changed
    SETTINGS = {}.freeze

    # name => bytes => other bytes
    KINDS = {
      bit: lambda do |bytes, random|
        place = random.rand(bytes.bytesize)
        bytes.setbyte(place, bytes.getbyte(place) ^ (1 << random.rand(8)))
      end,
      byte: ->(bytes, random) { bytes.setbyte(random.rand(bytes.bytesize), [0, 1, 127, 128, 254, 255].sample(random:)) },
      number: lambda do |bytes, random|
        bytes[random.rand(bytes.bytesize), 4] = [NUMBERS.sample(random:)].pack("l>")
      end,
      short_number: lambda do |bytes, random|
        bytes[random.rand(bytes.bytesize), 2] = [NUMBERS.sample(random:).clamp(-32_768, 32_767)].pack("s>")
      end,
      cut: ->(bytes, random) { bytes.slice!(random.rand(bytes.bytesize)..) },
      insertion: ->(bytes, random) { bytes.insert(random.rand(bytes.bytesize), random.bytes(1 + random.rand(16))) },
      deletion: ->(bytes, random) { bytes.slice!(random.rand(bytes.bytesize), 1 + random.rand(8)) },
      repetition: ->(bytes, random) { bytes.insert(random.rand(bytes.bytesize), bytes[random.rand(bytes.bytesize), 32]) },
      noise: ->(bytes, random) { bytes[random.rand(bytes.bytesize), 8] = random.bytes(8) }
    }.freeze
    FRAMES = %i[header hang_up silence].freeze

    attr_reader :client, :name, :growth, :settings, :seconds, :counts

    # @param seed [Integer]
    # @param round [Integer]
    def initialize(seed, round)
      @seed = seed
      @round = round
      @client = CLIENTS.sample(random: random("client"))
      @name = "seed #{seed}, round #{round} (#{@client})"
      @growth = 120
      @seconds = Attack::SECONDS
      @settings = SETTINGS
      @lock = Mutex.new
      @counts = Hash.new(0)
      @bodies = {} # the bodies that were sent, by request
    end

    def optional? = true

    # Repeats the round for another client, whose requests come in another order. The tries alternate: the same seed, and then
    # every changed answer again, from the latest or the first one on, for the next request of its kind.
    #
    # @param try [Integer]
    def again(try)
      return self.class.new(@seed, @round) if (try % 3).zero?

      left = @bodies.transform_values { |bodies| try % 3 == 1 ? bodies.reverse : bodies.dup }
      lambda do |exchange|
        body = @lock.synchronize { left[exchange.api]&.shift }
        exchange.respond(body) if body
      end
    end

    # @param api [Symbol]
    # @return [Boolean] whether the body of an answer to this request was changed
    def changed?(api) = @lock.synchronize { @bodies.key?(api) }

    def delivered = @counts.values.sum

    def call(exchange)
      random = random("#{exchange.api} #{exchange.request.count}")
      return unless random.rand < SHARE

      kind = random.rand < 0.08 ? FRAMES.sample(random:) : KINDS.keys.sample(random:)
      @lock.synchronize { @counts[kind] += 1 }
      return send(kind, exchange, random) if FRAMES.include?(kind)

      body = changed(exchange.answer.to_s, kind, random)
      @lock.synchronize { (@bodies[exchange.api] ||= []) << body }
      exchange.respond(body)
    end

    private

    # The seed does not depend on earlier requests, because several connections send requests at once.
    def random(name) = Random.new(Zlib.crc32("#{@seed} #{@round} #{name}"))

    def changed(bytes, kind, random)
      bytes = bytes.b
      (1 + random.rand(3)).times { KINDS.fetch(kind).call(bytes, random) unless bytes.empty? }
      bytes
    end

    def header(exchange, random)
      frame = exchange.frame
      frame.setbyte(random.rand(8), random.rand(256))
      exchange.send(frame)
    end

    def hang_up(exchange, random)
      exchange.send(exchange.frame[0, random.rand(exchange.frame.bytesize)])
      exchange.cut
    end

    def silence(exchange, _random) = exchange.ignore
  end
end

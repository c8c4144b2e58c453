# frozen_string_literal: true

require_relative "attack"

class HostileBroker
  # Lies about the frame around an answer, which apply to every request.
  module Frames
    HUGE = 2**31 - 1
    TOO_LARGE = 100_000_001 # above receive.message.max.bytes' default

    WAYS = {
      "a frame of no bytes" => ->(x) { x.send([0].pack("l>")) },
      "a frame shorter than its header" => ->(x) { x.send("\0\0\0\3abc") },
      "a negative length" => ->(x) { x.send(x.frame(length: -1)) },
      "the least length" => ->(x) { x.send(x.frame(length: -2**31)) },
      "the greatest length" => ->(x) { x.send(x.frame(length: HUGE)) },
      "a length over the limit" => ->(x) { x.send(x.frame(length: TOO_LARGE)) },
      "a length one byte short" => ->(x) { x.send(x.frame(length: x.frame.bytesize - 5)) },
      "a length one byte long" => ->(x) { x.send(x.frame(length: x.frame.bytesize - 3)) },
      "another correlation id" => ->(x) { x.send(x.frame(correlation: x.request.correlation + 1)) },
      "a negative correlation id" => ->(x) { x.send(x.frame(correlation: -1)) },
      "no body" => ->(x) { x.respond("") },
      "half a body" => ->(x) { x.respond(x.answer.to_s[0, x.answer.to_s.bytesize / 2]) },
      "a body without its last byte" => ->(x) { x.respond(x.answer.to_s[0..-2]) },
      "bytes behind the body" => ->(x) { x.respond(x.answer.to_s + ("\xff".b * 4)) },
      "a body of zeros" => ->(x) { x.respond("\0" * 64) },
      "a body of ones" => ->(x) { x.respond("\xff".b * 64) },
      "a body of text" => ->(x) { x.respond("HTTP/1.1 400 Bad Request\r\n\r\n") },
      "another protocol" => ->(x) { x.send("HTTP/1.1 400 Bad Request\r\n\r\n") },
      "a TLS alert" => ->(x) { x.send("\x15\x03\x01\x00\x02\x02\x28".b) },
      "a cut in the length" => ->(x) { x.send(x.frame[0, 2]) || x.cut },
      "a cut in the middle" => ->(x) { x.send(x.frame[0, x.frame.bytesize / 2]) || x.cut },
      "a cut at once" => :cut.to_proc,
      "the answer twice" => ->(x) { x.send(x.frame * 2) },
      "an unrequested answer before it" => ->(x) { x.send(x.frame(correlation: 100_000) + x.frame) },
      "one byte at a time" => ->(x) { x.frame.each_char { |byte| x.send(byte) } },
      "no answer" => :ignore.to_proc
    }.freeze
    AGAIN_AND_AGAIN = [
      "a negative length", "no body", "half a body", "another correlation id", "a cut at once", "no answer"
    ].freeze

    FEW = ["a negative length", "no body", "half a body", "a cut in the middle", "the answer twice"].freeze

    # @return [Array<Attack>]
    def self.attacks(api)
      once = WAYS.map { |name, way| Attack.new(name, api, &way) }
      once + again_and_again(api)
    end

    # @return [Array<Attack>]
    def self.few(api) = FEW.map { |name| Attack.new(name, api, &WAYS.fetch(name)) } + again_and_again(api)

    def self.again_and_again(api)
      AGAIN_AND_AGAIN.map { |name| Attack.new(name, api, times: Attack::ALWAYS, &WAYS.fetch(name)) }
    end
    private_class_method :again_and_again
  end
end

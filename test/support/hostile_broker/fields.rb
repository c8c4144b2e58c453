# frozen_string_literal: true

require_relative "attack"

class HostileBroker
  # Lies in one field of an otherwise good answer.
  module Fields
    ENDLESS = "\xff".b * 12 # a varint that never ends
    HUGE = Answer.varint(2**31)
    NOT_UTF8 = "caf\xE9 \xF0\x9F".b # Latin-1, and a character cut in the middle
    CONTROL = "\e[31m\r\nFAKE LOG LINE\x07\0x" # turns a terminal red, and forges a line

    # type => description => bytes
    VALUES = {
      int8: { "the least" => [-128].pack("c"), "the greatest" => [127].pack("c") },
      int16: { "the least" => [-2**15].pack("s>"), "-1" => [-1].pack("s>"), "the greatest" => [(2**15) - 1].pack("s>") },
      int32: { "the least" => [-2**31].pack("l>"), "-1" => [-1].pack("l>"), "the greatest" => [(2**31) - 1].pack("l>") },
      int64: { "the least" => [-2**63].pack("q>"), "-1" => [-1].pack("q>"), "the greatest" => [(2**63) - 1].pack("q>") },
      error: [-2**15, -200, -2, -1, 999, (2**15) - 1].to_h { |code| [code.to_s, [code].pack("s>")] },
      string: {
        "null" => [-1].pack("s>"), "of a negative length" => [-2].pack("s>"), "of the greatest length" => "\x7f\xffx".b,
        "of 32,767 bytes" => Answer.string("x" * 32_767), "empty" => Answer.string(""), "not UTF-8" => Answer.string(NOT_UTF8),
        "control bytes" => Answer.string(CONTROL)
      },
      compact_string: {
        "null" => "\0", "of a negative length" => ENDLESS, "of the greatest length" => HUGE,
        "of 32,767 bytes" => Answer.string("x" * 32_767, flexible: true), "empty" => Answer.string("", flexible: true),
        "not UTF-8" => Answer.string(NOT_UTF8, flexible: true), "control bytes" => Answer.string(CONTROL, flexible: true)
      },
      array: {
        "of the least count" => [-2**31].pack("l>"), "of a negative count" => [-2].pack("l>"), "null" => [-1].pack("l>"),
        "empty" => [0].pack("l>"), "of one too many" => [2].pack("l>"), "of 100,001" => [100_001].pack("l>"),
        "of the greatest count" => [(2**31) - 1].pack("l>")
      },
      compact_array: {
        "of the least count" => Answer.varint((2**31) + 1), "of a negative count" => ENDLESS, "null" => "\0",
        "empty" => "\x01", "of one too many" => "\x03", "of 100,001" => Answer.varint(100_002), "of the greatest count" => HUGE
      },
      bytes: {
        "null" => [-1].pack("l>"), "of a negative length" => [-2].pack("l>"), "empty" => [0].pack("l>"),
        "of the greatest length" => [(2**31) - 1].pack("l>"), "ones" => "\0\0\0\x20".b + ("\xff".b * 32),
        "two bytes" => "\0\0\0\2\0\0".b
      },
      tags: {
        "an unknown one" => "\1\x7f\2ab".b, "the greatest count" => HUGE, "an endless count" => ENDLESS,
        "one of the greatest size" => "\1\0".b + HUGE
      }
    }.freeze
    RECORDS = VALUES.fetch(:bytes)
    TRANSACTIONAL = [14, 15, 16, 22, 47, 48, 49, 50, 51, 53, 67, 90].freeze # errors that a transaction coordinator may return

    class << self
      # @return [Array<Attack>] each value of each field's type, once
      def attacks(api, clients: [Attack::CLIENTS.fetch(api)])
        fields(api).to_a.product(clients).flat_map do |(name, type), client|
          values(type).each_key.map { |what| attack(name, what, api, client) } + always(name, type, api, client)
        end
      end

      # @return [Array<Attack>] each error that a coordinator may return, and no others
      def transaction_errors
        %i[find_coordinator init_producer_id add_partitions_to_txn end_txn].product(TRANSACTIONAL).map do |api, code|
          name = fields(api).keys.find { |field| field.end_with?("error") }
          attack(name, code.to_s, api, :transact, times: Attack::ALWAYS)
        end
      end

      # @return [Hash{String => Symbol}] name => type, of both versions of Metadata
      def fields(api)
        versions = [GoodAnswers::APIS.values.find { |name, _| name == api }.last, (4 if api == :metadata)].compact
        versions.flat_map { |version| sample(api, version).fields }.to_h { |field| [field.name, field.type] }
      end

      def values(type) = type == :records ? RECORDS : VALUES.fetch(type)

      private

      def sample(api, version)
        GoodAnswers.new(Cluster.new({ 1 => 1 }, 1)).to(Request.new(api, version, 1, GoodAnswers::TOPIC + ("\0" * 20), 1))
      end

      # Some clients never end if an unknown error persists.
      def always(name, type, api, client)
        return [] unless type == :error

        [attack(name, "999", api, client, times: Attack::ALWAYS)]
      end

      # The request's version decides whether a string is compact, and whether the field exists.
      def attack(name, what, api, client, times: 1)
        Attack.new("#{name} is #{what}", api, client:, times:, optional: true) do |exchange|
          index = exchange.answer.fields.index { |field| field.name == name } or next
          type = exchange.answer.fields[index].type
          exchange.respond(exchange.answer.with(index, type == :error ? [Integer(what)].pack("s>") : values(type).fetch(what)))
        end
      end
    end
  end
end

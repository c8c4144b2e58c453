# frozen_string_literal: true

module Penstock
  # Foreign text, such as from exceptions of users' callbacks, made fit for a sentence, a log line or a terminal. Text of brokers
  # is cleaned in C, in the same way: core/base/text.c.
  # @api private
  module Text
    # Control characters, marks that change the direction of text, and line separators. The same as in core/base/text.c.
    STEERING = /[\u0000-\u001F\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/
    SHORT = { "\n" => '\n', "\r" => '\r', "\t" => '\t' }.freeze
    private_constant :STEERING, :SHORT

    # @return [String] such as "1 message" and "2 messages"
    def self.count(number, noun) = "#{number} #{noun}#{"s" unless number == 1}"

    # Any thread and Ractor.
    # @param object [String, Object] in any encoding and with any bytes; of an object that is no String, its `to_s`
    # @return [String] valid UTF-8 with control characters escaped; the String itself if it is that already
    def self.printable(object)
      text = utf8(String === object ? object : "#{object}") # rubocop:disable Style/CaseEquality, Style/RedundantInterpolation
      text = text.scrub unless text.valid_encoding?
      text.match?(STEERING) ? text.gsub(STEERING) { |char| escape(char) } : text
    end

    # @param error [Exception] also one whose `message` raises
    # @return [String] its printable message
    def self.message(error)
      printable(error.message)
    rescue StandardError, SystemStackError => e
      "(no text: #{e.class})"
    end

    # @param step [#call] such as a hook
    # @return [String] its name in a sentence
    def self.name_of(step)
      return step.name || step.inspect if step.is_a?(Module)
      return step.class.name || step.class.inspect unless step.respond_to?(:source_location)

      "#{step.class} at #{step.source_location&.join(":") || "?"}"
    end

    # @param error [Exception]
    # @return [String] its class and its printable message
    def self.describe(error) = "#{printable(error.class)}: #{message(error)}"

    class << self
      private

      # @return [String] the text in UTF-8, or its bytes as if they were UTF-8 if Ruby cannot convert the encoding, such as UTF-7
      def utf8(text)
        case text.encoding
        when Encoding::UTF_8 then text
        when Encoding::BINARY, Encoding::US_ASCII then String.new(text, encoding: Encoding::UTF_8)
        else text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace)
        end
      rescue EncodingError
        String.new(text, encoding: Encoding::UTF_8)
      end

      def escape(char) = SHORT.fetch(char) { format(char.ord < 0x80 ? '\x%02X' : '\u%04X', char.ord) }
    end
  end
end

# frozen_string_literal: true

module Penstock
  # Foreign text, such as from brokers or from exceptions of users' callbacks, made fit for a sentence, a log line or a
  # terminal. See foreign_text.c.
  # @api private
  module Text
    # @return [String] such as "1 message" and "2 messages"
    def self.count(number, noun) = "#{number} #{noun}#{"s" unless number == 1}"

    # @!method self.printable(object)
    #   Any thread and Ractor; blocks nothing.
    #   @param object [String, Object] in any encoding and with any bytes; of an object that is no String, its `to_s`
    #   @return [String] valid UTF-8 with control characters escaped; the String itself if it is that already

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
  end
end

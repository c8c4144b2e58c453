# frozen_string_literal: true

module Penstock
  # What brokers accept as the name of a topic.
  module TopicName
    PATTERN = /\A(?!\.{1,2}\z)[a-zA-Z0-9._-]{1,249}\z/n
    # The same in words.
    FORM = "1 to 249 of the characters a-z A-Z 0-9 . _ -"
    private_constant :PATTERN

    # @param text [String] of any encoding
    # @return [Boolean]
    def self.valid?(text) = text.b.match?(PATTERN)
  end
end

# frozen_string_literal: true

require "did_you_mean"

module Penstock
  # The most similar correct name, for an error about a wrong one.
  module Suggestion
    # @param name [Symbol, String]
    # @param known [Array<Symbol, String>]
    # @return [String] " (did you mean ...?)", or nothing
    def self.hint(name, known)
      text = Text.printable(name)
      return " (these keys are Symbols)" if name.is_a?(String) && known.include?(text.to_sym)

      nearest = DidYouMean::SpellChecker.new(dictionary: known).correct(text).first
      nearest ? " (did you mean #{nearest.inspect}?)" : ""
    end
  end
end

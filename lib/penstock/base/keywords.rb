# frozen_string_literal: true

module Penstock
  # Arguments that a method does not have: the error shows the right form of the call, and the nearest right keyword.
  module Keywords
    # Raises unless both are empty.
    # @param form [String] how the method is called, such as "poll(timeout: 1)"
    # @param known [Array<Symbol>] the method's keywords
    # @param more [Array] positional arguments beyond those that it has
    # @param wrong [Hash] keywords that it does not have
    # @return [nil]
    # @raise [ArgumentError]
    def self.check(form, known, more, wrong)
      return if more.empty? && wrong.empty?

      raise ArgumentError, "#{more.empty? ? unknown(wrong, known) : unexpected(more)}; write #{form}"
    end

    class << self
      private

      def unknown(wrong, known)
        name = wrong.keys.first
        "unknown keyword: #{name.inspect}#{Suggestion.hint(name, known) if name.is_a?(Symbol)}"
      end

      # Not the arguments themselves, which may be secret or long.
      def unexpected(more) = "#{Text.count(more.size, "positional argument")} too many"
    end
  end
end

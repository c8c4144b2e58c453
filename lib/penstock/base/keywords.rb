# frozen_string_literal: true

module Penstock
  # Raises for unknown arguments. The error shows the correct form of the call, and the most similar keyword.
  module Keywords
    # Raises unless both are empty.
    # @param form [String] how the method is called, such as "poll(timeout: 1)"
    # @param known [Array<Symbol>] the method's keywords
    # @param more [Array] surplus positional arguments
    # @param wrong [Hash] unknown keywords
    # @return [nil]
    # @raise [ArgumentError] when there are any
    def self.check(form, known, more, wrong)
      return if more.empty? && wrong.empty?

      raise ArgumentError, "#{more.empty? ? unknown(wrong, known) : unexpected(more)}; write #{form}"
    end

    # Ruby takes a Hash without braces for keywords: `create_partitions("orders" => 12, timeout: 5)`.
    # @param given [Hash] the keywords that the method does not have
    # @return [Array(Array<Hash>, Hash)] the positional argument that was meant, or none; and the keywords
    def self.braced(given)
      keywords, positional = given.partition { |name, _| name.is_a?(Symbol) }
      [positional.empty? ? [] : [positional.to_h], keywords.to_h]
    end

    class << self
      private

      def unknown(wrong, known)
        name = wrong.keys.first
        "unknown keyword: #{name.inspect}#{Suggestion.hint(name, known) if name.is_a?(Symbol)}"
      end

      # Does not show the arguments, which may be secret or long.
      def unexpected(more) = "#{Text.count(more.size, "positional argument")} too many"
    end
  end
end

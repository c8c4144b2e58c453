# frozen_string_literal: true

module Penstock
  class Admin
    # The answers of a call that concerns several things: for each a value, or the {Error} why there is none. Frozen, and
    # shareable between Ractors.
    #
    #     results = admin.delete_topics("a", "b")
    #     results["a"]       # the value; raises the error if there is one
    #     results.errors     # { "b" => #<Penstock::AdminError ...> }
    #     results.raise!.ok  # raises the first error, or returns all values
    #
    # Never blocks. Any thread, fiber and Ractor.
    class Results
      include Enumerable
      include AsJson

      # {Admin} makes them.
      # @param answers [Hash{Object => Object, Error}]
      def initialize(answers)
        @answers = Ractor.make_shareable(answers)
        freeze
      end

      # @param key [Object] of a key that is an Array, its elements: `results[:topic, "a"]`
      # @return [Object] the value for the key
      # @raise [Error] when there is an error for it
      # @raise [KeyError] when the call did not concern it
      def [](*key)
        answer = @answers.fetch(key.size == 1 ? key.first : key)
        answer.is_a?(Error) ? raise_copy(answer) : answer
      end
      alias fetch []

      # @yieldparam key [Object]
      # @yieldparam answer [Object, Error]
      # @return [self, Enumerator]
      def each(&block)
        return to_enum(:each) { size } unless block

        @answers.each_pair(&block)
        self
      end

      # @return [Hash] the values of what succeeded
      def ok = @answers.reject { |_, answer| answer.is_a?(Error) }

      # @return [Hash{Object => Error}] what failed
      def errors = @answers.select { |_, answer| answer.is_a?(Error) }

      # @return [Boolean] whether nothing failed
      def ok? = @answers.none? { |_, answer| answer.is_a?(Error) }

      # @return [self] when nothing failed
      # @raise [Error] the first error
      def raise!
        _, error = errors.first
        error ? raise_copy(error) : self
      end

      # @return [Array] what the call concerned
      def keys = @answers.keys

      # @return [Boolean]
      def key?(key) = @answers.key?(key)

      # @return [Array] the values
      # @raise [Error] when there is an error
      def values = raise!.ok.values

      # @return [Integer]
      def size = @answers.size

      # @return [Boolean]
      def empty? = @answers.empty?

      # @return [Hash] values and errors
      def to_h = @answers

      # @return [Hash] for pattern matching
      def deconstruct_keys(_keys) = { ok:, errors: }

      # @return [Boolean]
      def ==(other) = other.is_a?(Results) && to_h == other.to_h

      # @return [String]
      def inspect = "#<#{self.class} #{@answers.inspect}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(ok: ok.to_a, errors: errors.to_a)

      private

      # The errors here are frozen, so Ruby could not store where they were raised.
      def raise_copy(error) = raise(error.dup)
    end
  end
end

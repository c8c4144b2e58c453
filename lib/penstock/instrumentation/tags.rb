# frozen_string_literal: true

module Penstock
  # Words that a user sticks to a producer, to tell it from others in logs and metrics.
  #
  #     producer.tags.add(:critical)
  #     producer.tags.add(:kind, "payments") # under a name, so that it can be replaced and deleted by it
  #     producer.tags.to_a # => ["critical", "payments"]
  #
  # Symbols and Strings mean the same. Any thread and fiber may use them. Never blocks.
  class Tags
    include AsJson

    def initialize
      @lock = Mutex.new
      @tags = {}.freeze # by name; replaced as a whole, so that reading needs no lock
    end

    # Adds a tag, in place of one with the same name.
    # @param name [String, Symbol]
    # @param tag [String, Symbol] default: the name itself
    # @return [self]
    # @raise [ArgumentError] one is neither String nor Symbol
    def add(name, tag = name)
      name = word(name)
      tag = word(tag)
      change { |tags| tags.merge(name => tag) }
    end

    # @param name [String, Symbol] of a tag; one that is not there is no error
    # @return [self]
    # @raise [ArgumentError] it is neither String nor Symbol
    def delete(name)
      name = word(name)
      change { |tags| tags.except(name) }
    end

    # @return [self]
    def clear = change { {} }

    # @return [Array<String>] each once, in the order their names were added; a copy
    def to_a = @tags.values.uniq

    # @param tag [String, Symbol]
    # @return [Boolean] whether {#to_a} has it
    def include?(tag) = @tags.value?(tag.to_s)

    # @return [String]
    def inspect = "#<#{self.class} #{to_a.map { |tag| Text.printable(tag) }.join(", ")}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(tags: to_a)

    private

    def word(value)
      raise ArgumentError, "a tag is a String or Symbol, not #{value.inspect}" unless value.is_a?(String) || value.is_a?(Symbol)

      value.is_a?(Symbol) ? value.name : value.dup.freeze
    end

    def change
      @lock.synchronize { @tags = yield(@tags).freeze }
      self
    end
  end
end

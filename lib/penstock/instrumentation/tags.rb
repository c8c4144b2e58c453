# frozen_string_literal: true

module Penstock
  # Labels that distinguish producers in logs and metrics.
  #
  #     producer.tags.add(:critical)
  #     producer.tags.add(:kind, "payments") # with a name, by which it can be replaced and deleted
  #     producer.tags.to_a # => ["critical", "payments"]
  #
  # Symbols and Strings are equivalent. Any thread and fiber may use them. Never blocks.
  class Tags
    include AsJson

    def initialize
      @lock = Mutex.new
      @tags = {}.freeze # by name; replaced as a whole, so that reading needs no lock
    end

    # Adds a tag. Replaces the tag of the same name.
    # @param name [String, Symbol]
    # @param tag [String, Symbol] default: the name itself
    # @return [self]
    # @raise [ArgumentError] when an argument is neither String nor Symbol
    def add(name, tag = name)
      name = word(name)
      tag = word(tag)
      change { |tags| tags.merge(name => tag) }
    end

    # @param name [String, Symbol] of a tag; an unknown name is no error
    # @return [self]
    # @raise [ArgumentError] when it is neither String nor Symbol
    def delete(name)
      name = word(name)
      change { |tags| tags.except(name) }
    end

    # @return [self]
    def clear = change { {} }

    # @return [Array<String>] unique, in the order in which their names were added; a copy
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
      unless value.is_a?(String) || value.is_a?(Symbol)
        raise ArgumentError,
              "a tag must be a String or Symbol, not #{value.inspect}"
      end

      value.is_a?(Symbol) ? value.name : value.dup.freeze
    end

    def change
      @lock.synchronize { @tags = yield(@tags).freeze }
      self
    end
  end
end

# frozen_string_literal: true

module Penstock
  # One setting of a configuration: what {ConfigSection} knows of it from its declaration.
  # @api private
  class Setting
    # @return [Symbol]
    attr_reader :name
    # @return [Values] the values that it takes
    attr_reader :values
    # @return [Object] its value in a new configuration
    attr_reader :default

    # @param name [Symbol]
    # @param values [Values]
    # @param default [Object] shareable, because other Ractors make consumers
    def initialize(name, values, default)
      @name = name
      @values = values
      @default = default
      Ractor.make_shareable(self)
    end

    # Any values. The configuration checks them in a method of its own.
    class Values
      # @return [Array<String>] their classes, such as "Integer", "nil"
      attr_reader :types

      # @param types [Array<String>]
      def initialize(types)
        @types = types
      end

      # @return [String, nil] what numbers count: "ms", "bytes"
      def unit = nil

      # @return [String, nil] which of the types' values are valid, for documentation; nil: all
      def range = nil

      # @return [Boolean] whether the setting takes this value
      def valid?(_value) = true
    end

    # Integers of a range, and perhaps others with a meaning of their own.
    class Integers < Values
      # @return [Range<Integer>]
      attr_reader :among
      # @return [String, nil]
      attr_reader :unit

      # @param among [Range<Integer>]
      # @param unit [String, nil]
      # @param zero [String, nil] what 0 means, if it is valid although it is out of the range
      # @param none [String, nil] what nil means, if it is valid
      def initialize(among, unit: nil, zero: nil, none: nil)
        super(none ? %w[Integer nil] : %w[Integer])
        @among = among
        @unit = unit
        @zero = zero
        @none = none
      end

      # (see Values#range)
      def range
        numbers = among.end ? "#{among.begin} to #{among.end}" : "at least #{among.begin}"
        [numbers, ("0: #{@zero}" if @zero), ("nil: #{@none}" if @none)].compact.join("; ")
      end

      # @return [Boolean] whether the setting takes this value
      def valid?(value)
        return !@none.nil? if value.nil?

        Seconds.integer?(value) && (value.between?(among.begin, greatest) || (value.zero? && !@zero.nil?))
      end

      # @param value [Object] one that is not valid
      # @return [String] what it must be
      def expected(value)
        above = Seconds.integer?(value) && value > greatest
        number = above ? "an Integer of at most #{greatest}" : "an Integer of at least #{among.begin}"
        "#{"0 or " if @zero}#{number}#{" (#{unit})" if unit}#{" or nil" if @none}"
      end

      private

      # Larger ones cannot be counted in a double or a C integer without loss.
      def greatest = among.end || (2**53)
    end

    # Some values.
    class Choice < Values
      # @param choices [Array<Object>]
      def initialize(choices)
        @choices = choices
        super(choices == [true, false] ? %w[Boolean] : choices.map { |choice| choice.class.name }.uniq)
      end

      # (see Values#range)
      def range = @choices.map(&:inspect).join(", ")

      # @return [Boolean] whether the setting takes this value
      def valid?(value) = @choices.include?(value)

      # @return [String] what the value must be
      def expected(_value) = "one of #{@choices.map(&:inspect).join(", ")}"
    end

    # nil, and objects with a certain method.
    class Objects < Values
      # @param type [String] such as "Logger"
      # @param method [Symbol]
      # @param expected [String] such as "a Logger"
      def initialize(type, method, expected)
        super([type, "nil"])
        @method = method
        @expected = expected
      end

      # @return [Boolean] whether the setting takes this value
      def valid?(value) = value.nil? || value.respond_to?(@method)

      # @return [String] what the value must be
      def expected(_value) = "#{@expected} or nil"
    end
  end
end

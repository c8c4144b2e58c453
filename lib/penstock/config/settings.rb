# frozen_string_literal: true

module Penstock
  # Facts about librdkafka's settings: which are secret, which names are aliases, and what librdkafka makes of a value.
  # @!method self.secret?(name)
  #   @param name [Symbol, String]
  #   @return [Boolean] whether its value is secret; the list of such names is in core/base/redact.c
  # @!method self.text?(string)
  #   @param string [Object] a {Secret} too
  #   @return [Boolean] whether it is a UTF-8 String without a zero byte, which librdkafka gets unchanged
  # @!method self.read(name, value)
  #   The value in librdkafka's own spelling: "true" for "T" and 1, "ssl" for " SSL".
  #   @param name [Symbol, String]
  #   @param value [Object]
  #   @return [String, nil] nil: librdkafka does not accept the value, or it is secret
  #   @raise [ConfigurationInvalidError] when the value has a class that no setting can have
  # @api private
  module Settings
    # @param name [Symbol, String]
    # @param value [Object]
    # @return [Object] the value, or a {Secret} in its place
    def self.hide(name, value)
      return value unless secret?(name) || pem?(value)

      case value
      when String then Secret.new(value)
      when Integer, Float, true, false then Secret.new(value.to_s)
      else value # config.c raises because of its class
      end
    end

    # @return [Boolean] whether it looks like a certificate or a key
    def self.pem?(value) = value.is_a?(Secret) ? value.pem? : value.is_a?(String) && value.b.include?("-----BEGIN ")

    # @return [Symbol] the name of which the given one is an alias, or the given one
    def self.proper(name) = ALIASES.fetch(name, name)

    # Returns a plain Hash with Symbols as names, also for a subclass of Hash.
    # @param kafka [Hash{Symbol, String => Object}]
    # @return [Hash{Symbol => Object}]
    def self.by_symbols(kafka)
      kafka.keys.to_h { |name| [name.to_sym, kafka[name]] } # transform_keys of a subclass may keep its Strings
    end

    # @param names [Array<Symbol>]
    # @return [Array(Symbol, Symbol), nil] the first two names of the same setting
    def self.twins(names)
      names.group_by { |name| proper(name) }.each_value.find { |same| same.size > 1 }&.first(2)
    end

    # @raise [ConfigurationInvalidError] always: librdkafka has no such setting
    def self.raise_invalid_setting(name) = raise_invalid(SettingTable.without(name))

    # A number, with an optional unit.
    QUANTITY = /\A\s*[-+]?\d[\d._]*(e[-+]?\d+)?\s*([a-z]{1,2}|sec|min|(second|minute|hour|day|byte)s?)?\s*\z/i
    # Separates the words of a value. NUMBERS: how librdkafka prints a range of numbers in its table.
    SEPARATOR = /[\s,;:]+/
    NUMBERS = /\A-?\d+ \.\. -?\d+\z/
    private_constant :QUANTITY, :SEPARATOR, :NUMBERS

    # @raise [ConfigurationInvalidError] when the value is a number and librdkafka read another number
    def self.check_effect(name, given, effective)
      return unless given.match?(/\A\s*[-+]?\d/) && effective.match?(/\A-?\d+(\.\d+)?\z/)
      return if Rational(given, exception: false) == Rational(effective)

      shown = given.match?(QUANTITY) ? given : "the given value"
      raise_invalid("#{name} cannot be #{shown}; librdkafka would read it as #{effective}")
    end

    # For a value that librdkafka rejects. librdkafka quotes it, and it may be a password in the wrong place. So the error repeats
    # it only if it is a number.
    # @param name [String]
    # @param given [String]
    # @param reason [String] the text of librdkafka
    # @raise [ConfigurationInvalidError] always
    def self.raise_invalid_value(name, given, reason)
      words = [given, *given.split(SEPARATOR)].reject { |word| word.empty? || word.match?(QUANTITY) }
      quoted = words.any? { |word| reason.include?(word) }
      problem = quoted ? "the value is not valid#{accepted(name, given)}" : reason.delete_suffix("\\n")
      raise_invalid("#{name}: #{problem}")
    end

    # Values that librdkafka accepts but does not list.
    UNLISTED = { "partitioner" => "random, consistent, consistent_random, murmur2, murmur2_random, fnv1a, fnv1a_random" }.freeze
    private_constant :UNLISTED

    # @return [String] "; librdkafka accepts ... (did you mean ...?)", or "" if librdkafka does not list the values
    def self.accepted(name, given)
      range = range_of(name)
      return "" if range.empty? || range.match?(NUMBERS)

      hints = given.split(SEPARATOR).map { |word| Suggestion.hint(word, range.split(SEPARATOR)) }
      "; librdkafka accepts #{range}#{hints.find { |hint| !hint.empty? }}"
    end

    # @return [String] the values as librdkafka lists them; "": it does not list them
    def self.range_of(name)
      range = SettingTable.rows[name.to_sym]&.first&.range.to_s
      range.empty? ? UNLISTED.fetch(name, "") : range
    end

    def self.raise_invalid(sentence) = raise(ErrorFactory.build(ConfigurationInvalidError, "config.kafka: #{sentence}"))
    private_class_method :accepted, :range_of, :raise_invalid
  end
end

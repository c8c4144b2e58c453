# frozen_string_literal: true

module Penstock
  # What is known of librdkafka's settings by their names: which are secret, which are two names of one, and what librdkafka
  # makes of a value.
  # @!method self.secret?(name)
  #   @param name [Symbol, String]
  #   @return [Boolean] whether nobody may see its value; the one list of such names is in core/base/redact.c
  # @!method self.text?(string)
  #   @param string [Object] a {Secret} too
  #   @return [Boolean] whether librdkafka gets what is meant: a String of UTF-8 without a zero byte
  # @!method self.read(name, value)
  #   What librdkafka makes of a value, in its own spelling: "true" of "T" and of 1, "ssl" of " SSL".
  #   @param name [Symbol, String]
  #   @param value [Object]
  #   @return [String, nil] nil: librdkafka does not take it, or it is secret
  #   @raise [ConfigurationInvalidError] it is no value for a setting
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
      else value # which config.c refuses by its class
      end
    end

    # @return [Boolean] whether it looks like a certificate or a key
    def self.pem?(value) = value.is_a?(Secret) ? value.pem? : value.is_a?(String) && value.b.include?("-----BEGIN ")

    # @return [Symbol] the one of a setting's names that is no alias
    def self.proper(name) = ALIASES.fetch(name, name)

    # Symbols for names, and a plain Hash for any that behaves otherwise.
    # @param kafka [Hash{Symbol, String => Object}]
    # @return [Hash{Symbol => Object}]
    def self.by_symbols(kafka)
      kafka.keys.to_h { |name| [name.to_sym, kafka[name]] } # transform_keys of a subclass may keep its Strings
    end

    # @param names [Array<Symbol>]
    # @return [Array(Symbol, Symbol), nil] the first two that name one setting
    def self.twins(names)
      names.group_by { |name| proper(name) }.each_value.find { |same| same.size > 1 }&.first(2)
    end

    # @raise [ConfigurationInvalidError] saying that librdkafka has no such setting, and which one is nearest
    def self.raise_invalid_setting(name)
      shown = pem?(name) ? Secret::HIDDEN : name.inspect
      hint = Suggestion.hint(name, Native::ProducerClient.setting_names)
      refuse("librdkafka #{Penstock.librdkafka_version} has no setting #{shown}#{hint}")
    end

    # A number, perhaps with a unit.
    QUANTITY = /\A\s*[-+]?\d[\d._]*(e[-+]?\d+)?\s*([a-z]{1,2}|sec|min|(second|minute|hour|day|byte)s?)?\s*\z/i
    # What separates the words of a value, and what librdkafka calls a range of numbers in its table.
    SEPARATOR = /[\s,;:]+/
    NUMBERS = /\A-?\d+ \.\. -?\d+\z/
    private_constant :QUANTITY, :SEPARATOR, :NUMBERS

    # @raise [ConfigurationInvalidError] when a number was given, and librdkafka made another one of it
    def self.check_effect(name, given, effective)
      return unless given.match?(/\A\s*[-+]?\d/) && effective.match?(/\A-?\d+(\.\d+)?\z/)
      return if Rational(given, exception: false) == Rational(effective)

      shown = given.match?(QUANTITY) ? given : "what it was set to"
      refuse("#{name} cannot be #{shown}; librdkafka would make #{effective} of it")
    end

    # For a value that librdkafka rejects. librdkafka quotes it, and it may be a password in the wrong place. So the error repeats
    # it only if it is a number.
    # @param name [String]
    # @param given [String]
    # @param reason [String] librdkafka's words
    # @raise [ConfigurationInvalidError] always
    def self.raise_invalid_value(name, given, reason)
      words = [given, *given.split(SEPARATOR)].reject { |word| word.empty? || word.match?(QUANTITY) }
      quoted = words.any? { |word| reason.include?(word) }
      problem = quoted ? "the value is not valid#{accepted(name, given)}" : reason.delete_suffix("\\n")
      refuse("#{name}: #{problem}")
    end

    # What librdkafka accepts, and does not list.
    UNLISTED = { "partitioner" => "random, consistent, consistent_random, murmur2, murmur2_random, fnv1a, fnv1a_random" }.freeze
    private_constant :UNLISTED

    # @return [String] "; librdkafka accepts ... (did you mean ...?)", or nothing if librdkafka does not say
    def self.accepted(name, given)
      range = range_of(name)
      return "" if range.empty? || range.match?(NUMBERS)

      hints = given.split(SEPARATOR).map { |word| Suggestion.hint(word, range.split(SEPARATOR)) }
      "; librdkafka accepts #{range}#{hints.find { |hint| !hint.empty? }}"
    end

    # @return [String] as librdkafka lists it; "": it does not
    def self.range_of(name)
      rows = Native::ProducerClient.setting_lines.map { |line| line.split("|").map(&:strip) }
      range = rows.find { |row| row[0] == name && row[3] }&.at(2).to_s
      range.empty? ? UNLISTED.fetch(name, "") : range
    end

    def self.refuse(sentence) = raise(ErrorFactory.build(ConfigurationInvalidError, "config.kafka: #{sentence}"))
    private_class_method :accepted, :range_of, :refuse
  end
end

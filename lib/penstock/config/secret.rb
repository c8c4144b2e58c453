# frozen_string_literal: true

module Penstock
  # The value of a secret setting. After the configuration, {Config#kafka} and {ConsumerConfig#kafka} hold a Secret in place
  # of each password, key and token. Its text is always "[hidden]", into whatever Hash it is copied; only librdkafka gets
  # the value.
  #
  # It can be given to another producer or consumer, and to `set_credentials`, in place of the value. Marshal cannot dump
  # it, because the dump would contain the value. Immutable; any Ractor may use it.
  # @!method ==(other)
  #   Blocks: no. Takes the same time wherever the first difference is.
  #   @param other [Secret, String, Object]
  #   @return [Boolean] whether the other has the same value
  # @!method eql?(other)
  #   @param other [Object]
  #   @return [Boolean] whether it is a Secret with the same value
  # @!method hash
  #   @return [Integer] the same for the same value, in this process
  # @!method empty?
  #   @return [Boolean]
  # @!method text?
  #   @return [Boolean] whether librdkafka gets it unchanged: see {Settings.text?}
  # @!method pem?
  #   @return [Boolean] whether it looks like a certificate or a key
  class Secret
    # What stands for the value.
    HIDDEN = "[hidden]"

    # @return [String] {HIDDEN}
    def to_s = HIDDEN
    alias inspect to_s

    # @return [String] {HIDDEN}; for ActiveSupport's JSON
    def as_json(*) = HIDDEN

    # @return [String] {HIDDEN} as JSON
    def to_json(*) = "\"#{HIDDEN}\""

    # @return [self] there is nothing to change in one
    def dup = self

    # @return [self] there is nothing to change in one
    def clone(**) = self

    # {HIDDEN} as YAML.
    def encode_with(coder)
      coder.represent_scalar(nil, HIDDEN)
    end

    # {HIDDEN} for pp.
    def pretty_print(printer) = printer.text(HIDDEN)

    # @raise [TypeError]
    def marshal_dump
      raise TypeError, "a #{self.class} cannot be dumped: a password, key or token must not be stored by accident"
    end
  end
end

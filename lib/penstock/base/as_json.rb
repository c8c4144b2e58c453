# frozen_string_literal: true

module Penstock
  # The JSON of an object of Penstock: its class and a few plain values, never settings, credentials, payloads, keys, labels
  # or connected objects. Without it, ActiveSupport would follow all instance variables: from a producer to its
  # configuration, its events, and back to the producer.
  module AsJson
    # Never blocks.
    # @return [Hash{String => String, Numeric, Boolean, Array, Hash, nil}]
    def as_json(_options = nil) = json

    # @return [String]
    def to_json(*arguments) = as_json.to_json(*arguments)

    # For classes that users subclass: a private method `json` could be theirs.
    # @param object [Object]
    # @return [Hash{String => Object}]
    def self.of(object, **fields) = { "class" => object.class.name, **fields.transform_keys(&:to_s) }

    private

    def json(**fields) = AsJson.of(self, **fields)
  end
end

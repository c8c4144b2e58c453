# frozen_string_literal: true

module Penstock
  # What an object of Penstock's is as JSON: its class and a few plain values, never settings, credentials, payloads, keys or
  # labels, and never what it is connected with. Without it, ActiveSupport would go through all instance variables: from a
  # producer to its configuration, its events, and back to the producer.
  module AsJson
    # Never blocks.
    # @return [Hash{String => String, Numeric, Boolean, Array, Hash, nil}]
    def as_json(_options = nil) = json

    # @return [String]
    def to_json(*arguments) = as_json.to_json(*arguments)

    private

    def json(**fields) = { "class" => self.class.name, **fields.transform_keys(&:to_s) }
  end
end

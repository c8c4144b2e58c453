# frozen_string_literal: true

module Penstock
  # librdkafka's settings by name, as {Config#kafka} has them once the producer is made. A Hash that never shows what is secret.
  class Settings < Hash
    # Names of settings whose values are nobody's business; the same words as in config.c.
    SECRET = /password|secret|\.pem\z|oauthbearer\.config|token|jaas/
    private_constant :SECRET

    # @param name [Symbol, String]
    # @return [Boolean]
    # @api private
    def self.secret?(name) = SECRET.match?(name.to_s) && !name.to_s.end_with?(".url")

    # @return [Hash] with "[hidden]" for what is secret
    def shown = to_h { |name, value| [name, Settings.secret?(name) ? "[hidden]" : value] }

    # @return [String] without secrets
    def inspect = shown.inspect
    alias to_s inspect

    # @return [String] without secrets
    def to_json(*arguments) = shown.to_json(*arguments)

    # @api private
    def pretty_print(printer) = printer.text(inspect)

    # As YAML, without secrets.
    # @api private
    def encode_with(coder)
      coder.tag = nil
      coder.map = shown.transform_keys(&:to_s)
    end
  end
end

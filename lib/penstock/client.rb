# frozen_string_literal: true

module Penstock
  # One librdkafka producer; see ext/penstock/client_class.c. {Producer} is its only user.
  #
  # In a forked child, the first use replaces the parent's client, which is left alone, by a fresh one with the same
  # configuration; one that was closed stays closed.
  # @!method connect
  # @!method produce(message)
  # @!method produce_many(messages, timeout_ms)
  # @!method flush(timeout_ms)
  # @!method timeout_error(text, topic)
  # @!method close(timeout_ms)
  # @!method queue_size
  # @!method partition_count(topic, timeout_ms, max_age_ms)
  # @!method state
  #   @return [:configured, :open, :closing, :closed]
  # @api private
  class Client
    def inspect = "#<#{self.class} #{state}>"
  end
end

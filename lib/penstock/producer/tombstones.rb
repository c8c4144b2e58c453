# frozen_string_literal: true

module Penstock
  # Makes tombstones: messages without payload. In any Ractor.
  # @api private
  module Tombstones
    private

    def tombstones(messages)
      return messages unless messages.is_a?(Array)

      messages.each_with_index.map { |message, index| tombstone(message, "message #{index} of the batch: ") }
    end

    def tombstone(message, where = "")
      raise_invalid_tombstone(where, "a message must be a Hash, not #{message.class}") unless message.is_a?(Hash)

      key, partition = message.values_at(:key, :partition)
      raise_invalid_tombstone(where, "a tombstone requires a non-empty :key") unless key.is_a?(String) && !key.empty?
      unless partition.is_a?(Integer) && !partition.negative?
        raise_invalid_tombstone(where, "a tombstone requires the :partition of the messages with its key")
      end

      message.merge(payload: nil)
    end

    def raise_invalid_tombstone(where, problem) = raise(ErrorFactory.build(MessageInvalidError, "#{where}#{problem}"))
  end
end

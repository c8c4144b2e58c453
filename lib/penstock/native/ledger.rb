# frozen_string_literal: true

module Penstock
  module Native
    # What a consumer's program has got, processed and paused, without a consumer: for {Clients::InMemoryConsumer}. See
    # ledger_class.c. Places are Arrays of topic, partition, offset and leader epoch.
    #
    # @!method hand_out(messages, ends, owner, deserializer)
    #   @param messages [Array<Message>] they are copied
    #   @param ends [Array<Array(String, Integer, Integer)>] see {Batch#ends}
    #   @param owner [Integer] the fiber that gets them
    #   @param deserializer [Deserializer, nil]
    #   @return [Batch] of the current epoch
    # @!method finish(owner)
    #   What was handed out to the owner is processed.
    #   @param owner [Integer] 0: all
    # @!method mark(message)
    #   @return [Boolean, nil] see {Consumer#mark}; nil for a message that a program made
    # @!method owns(message)
    #   @return [Boolean] whether its partition was assigned all the time since
    # @!method processed
    #   @return [Array<Array(String, Integer, Integer, Integer)>] places
    # @!method paused
    #   @return [Array<Array(String, Integer, nil, nil)>] places
    # @!method position(topic, partition)
    #   @return [Integer, nil]
    # @!method seek(topic, partition)
    #   Forgets what was handed out of this partition.
    # @!method pause(topic, partition, paused)
    #   @return [Boolean] whether that is a change
    # @!method assigned
    #   A new epoch begins.
    # @!method revoked(topic, partition)
    #   The same, and the partition's messages cannot be marked any more.
    # @!method committed(topic, partition, offset)
    # @!method committed?(topic, partition, offset, epoch)
    #   @return [Boolean] see {ConsumerClient}
    # @api private
    class Ledger
      include Uncopyable
      include AsJson
    end
  end
end

# frozen_string_literal: true

module Penstock
  # A producer as other Ractors use it: what {Producer#shareable} gives. Frozen and shareable; any number of Ractors,
  # threads and fibers may use one at once. Messages go to librdkafka by the calling Ractor's own hand and have their verdicts
  # from the native poller; no Ruby of the main Ractor is between.
  #
  # It shares the producer's client, queue, order and numbers. When the producer disconnects, the next call has it connect
  # again; after a fatal error its client is replaced as for the producer itself, and what certainly is not in the topic is
  # sent again by itself. Both are done by a Ruby thread of the main Ractor, for which the call waits. When the producer is
  # closed, calls raise {ProducerClosedError}. In a forked child they raise {ForkedError}: ask the producer there for another.
  #
  # Different from the producer: `label` has to be shareable, as listeners in the main Ractor are told it; listeners hear
  # of verdicts ("message.acknowledged", "error.occurred") and not of what calls raise. The producer's
  # {Producer#around}, middleware and listeners of "message.produced_sync" and the like would have to run in the main
  # Ractor: with them calls raise {NotShareableError}, and nothing was sent.
  #
  # Payloads go through the producer's {Config#serializer}, in the Ractor that sends.
  #
  # A {DeliveryHandle} stays in the Ractor that has it, and is waited for there; a {DeliveryReport} may be sent to others.
  class ShareableProducer
    include Resending
    include Tombstones
    include AsJson

    # @!method id
    #   @return [String] the producer's
    # @!method max_wait_timeout
    #   @return [Integer, nil] ms that sync calls wait for verdicts; the producer's, or its variant's
    # @!method closed?
    #   @return [Boolean] whether the producer is closed, or was left to the parent process; never blocks
    # @!method timeout_error(text, topic)
    #   @return [WaitTimeoutError] of a call whose time is up

    # Sends a message and waits for its verdict.
    #
    # Blocks: this thread, or this fiber if it has a scheduler, like {Producer#produce_sync}; other threads and Ractors
    # go on.
    #
    # @param message [Hash] see {Producer}; its label has to be shareable
    # @return [DeliveryReport] of a message that was delivered; shareable
    # @raise [NotShareableError] the producer does what only the main Ractor can; nothing was sent
    # @raise [ForkedError] this is another process's handle; nothing was sent
    # @raise [Error] see {Producer#produce_sync}
    def produce_sync(message) = send_and_wait(ready(message))

    # Sends a message without waiting for its verdict.
    #
    # Blocks: like {Producer#produce_async}; and while the producer has no client, until it has connected.
    #
    # @param message [Hash] see {#produce_sync}
    # @return [DeliveryHandle] for this Ractor
    # @raise [Error] see {#produce_sync}, {Producer#produce_async}
    def produce_async(message) = send_one(ready(message))

    # Sends messages and waits for all their verdicts. All are checked before the first is sent. Blocks: like {#produce_sync}.
    #
    # @param messages [Array<Hash>] see {#produce_sync}
    # @return [Array<DeliveryHandle>] one for each message, in order: all were delivered
    # @raise [Error] see {#produce_sync}, {Producer#produce_many_sync}
    def produce_many_sync(messages) = send_many(ready_many(messages), max_wait_timeout)

    # Sends messages without waiting for their verdicts. Blocks: like {#produce_async}.
    #
    # @param messages [Array<Hash>] see {#produce_sync}
    # @return [Array<DeliveryHandle>] one for each message, in order
    # @raise [Error] see {#produce_sync}, {Producer#produce_many_async}
    def produce_many_async(messages) = send_many(ready_many(messages), false)

    # @param message [Hash] see {Producer#tombstone_sync}
    # @return [DeliveryReport]
    # @raise [Error] see {#produce_sync}
    def tombstone_sync(message) = produce_sync(tombstone(message))

    # @param message [Hash] see {Producer#tombstone_sync}
    # @return [DeliveryHandle]
    # @raise [Error] see {#produce_async}
    def tombstone_async(message) = produce_async(tombstone(message))

    # @param messages [Array<Hash>] see {Producer#tombstone_sync}
    # @return [Array<DeliveryHandle>]
    # @raise [Error] see {#produce_many_sync}
    def tombstone_many_sync(messages) = produce_many_sync(tombstones(messages))

    # @param messages [Array<Hash>] see {Producer#tombstone_sync}
    # @return [Array<DeliveryHandle>]
    # @raise [Error] see {#produce_many_async}
    def tombstone_many_async(messages) = produce_many_async(tombstones(messages))

    # @return [String]
    def inspect = "#<#{self.class} #{Text.printable(id)}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(id:)

    private

    def ready(message) = serializer ? serializer.run(message) : message

    def ready_many(messages) = serializer ? serializer.run_many(messages) : messages

    def send_and_wait(message)
      handle = nil
      handle = send_one(message)
      handle.wait(max_wait_timeout_ms: max_wait_timeout)
    rescue DeliveryError, ProducerFencedError => e
      retry if retry_with_new_client?(nil, handle, e)
      raise
    end

    def send_one(message)
      until (handle = hand_over(message))
        connect
      end
      handle
    rescue Error => e
      retry if retry_with_new_client?(nil, nil, e)
      raise
    end

    def connect
      renew(nil) or raise ErrorFactory.build(ProducerClosedError, "the producer has no connection", producer_id: id)
    end

    def send_many(messages, timeout_ms, tally = nil)
      until (result = hand_over_many(messages, timeout_ms))
        connect
      end
      handles, refused, delivered = result
      return handles if delivered || (refused.nil? && timeout_ms == false)

      after_failure(nil, handles.first, handles, refused, messages, timeout_ms, tally)
    end

    # @param handle [DeliveryHandle, nil] of the client that has failed; nil: the one of the moment
    def retry_with_new_client?(_connection, handle, error) = unsent?(error) && renew(handle)

    def unfinished(_handle, late, size, timeout_ms)
      text = "no delivery result after #{timeout_ms} ms for #{late.size} of #{Text.count(size, "message")}"
      timeout_error(text, late.first.topic)
    end
  end
end

# frozen_string_literal: true

module Penstock
  # A producer for use in other Ractors; see {Producer#shareable}. Frozen and shareable. Any number of Ractors, threads and
  # fibers may use it at once. The calling Ractor hands messages to librdkafka itself, and the native poller sets the
  # delivery results. No Ruby code of the main Ractor runs for a message.
  #
  # It shares the producer's client, queue, order and metrics. If the producer has disconnected, the next call makes it
  # connect again. After a fatal error the client is replaced as for the producer itself, and messages that certainly are
  # not in the topic are sent again. A Ruby thread of the main Ractor does both, and the call waits for it. When the
  # producer is closed, calls raise {ProducerClosedError}. In a fork child they raise {ForkedError}: make another handle
  # there.
  #
  # Differences from the producer: A `label` must be shareable, because listeners in the main Ractor get it. Listeners get
  # delivery results ("message.acknowledged", "error.occurred"), but not the errors that calls raise. {Producer#around},
  # middleware and listeners of events of a call ("message.produced_sync") would have to run in the main Ractor: while the
  # producer has one, calls raise {NotShareableError}, and nothing is sent.
  #
  # The producer's {Config#serializer} runs in the Ractor that sends.
  #
  # A {DeliveryHandle} stays in its Ractor; wait for it there. A {DeliveryReport} may be sent to other Ractors.
  class ShareableProducer
    include Resending
    include Tombstones
    include AsJson

    # @!method id
    #   @return [String] the producer's
    # @!method max_wait_timeout
    #   @return [Integer, nil] ms that sync calls wait for delivery results; the producer's, or its variant's
    # @!method closed?
    #   @return [Boolean] whether the producer is closed, or belongs to the parent process; never blocks
    # @!method timeout_error(text, topic)
    #   @return [WaitTimeoutError] for a call whose time ran out

    # Sends a message and waits for its delivery result.
    #
    # Blocks: this thread, or this fiber if it has a scheduler, like {Producer#produce_sync}; other threads and Ractors
    # continue.
    #
    # @param message [Hash] see {Producer}; its label must be shareable
    # @return [DeliveryReport] of the delivered message; shareable
    # @raise [NotShareableError] when the producer needs Ruby code of the main Ractor; nothing was sent
    # @raise [ForkedError] when the handle belongs to another process; nothing was sent
    # @raise [Error] see {Producer#produce_sync}
    def produce_sync(message) = send_and_wait(ready(message))

    # Sends a message without waiting for its delivery result.
    #
    # Blocks: like {Producer#produce_async}. If the producer has no client, until it has connected.
    #
    # @param message [Hash] see {#produce_sync}
    # @return [DeliveryHandle] for this Ractor
    # @raise [Error] see {#produce_sync}, {Producer#produce_async}
    def produce_async(message) = send_one(ready(message))

    # Sends messages and waits for all their delivery results. Checks all messages before it sends the first.
    # Blocks: like {#produce_sync}.
    #
    # @param messages [Array<Hash>] see {#produce_sync}
    # @return [Array<DeliveryHandle>] one for each message, in order: all were delivered
    # @raise [Error] see {#produce_sync}, {Producer#produce_many_sync}
    def produce_many_sync(messages) = send_many(ready_many(messages), max_wait_timeout)

    # Sends messages without waiting for their delivery results. Blocks: like {#produce_async}.
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
      handles, not_accepted, delivered = result
      return handles if delivered || (not_accepted.nil? && timeout_ms == false)

      after_failure(nil, handles.first, handles, not_accepted, messages, timeout_ms, tally)
    end

    # @param handle [DeliveryHandle, nil] of the client that has failed; nil: the current client
    def retry_with_new_client?(_connection, handle, error) = unsent?(error) && renew(handle)

    def unfinished(_handle, late, size, timeout_ms)
      text = "no delivery result after #{timeout_ms} ms for #{late.size} of #{Text.count(size, "message")}"
      timeout_error(text, late.first.topic)
    end
  end
end

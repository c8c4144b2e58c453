# frozen_string_literal: true

module Penstock
  # The future delivery result of one message. The native poller sets the result without the GVL.
  #
  # Any thread and fiber of the process that produced the message may use it. After a fork, the child can read results that
  # were set before; waiting for any other raises {ForkedError}.
  class DeliveryHandle
    include AsJson

    # @!method wait(timeout: 180)
    #   Waits until the message has its delivery result. `wait(max_wait_timeout_ms: 5_000)`, in ms, works too.
    #
    #   Blocks: this thread, without the GVL, or this fiber if it has a scheduler, until the delivery result or the timeout.
    #   `Thread#raise`, `Timeout` and Ctrl-C interrupt it at once. The message then stays in flight, and the program can
    #   wait for the handle again.
    #   @param timeout [Numeric, nil] seconds to wait; more than an hour must be a Float; nil: no limit
    #   @return [DeliveryReport] of the delivered message
    #   @raise [DeliveryError] when the delivery failed; `retriable?` is true if the message is certainly not in the topic, and
    #     may be sent again
    #   @raise [ProducerFencedError] when another producer with the same `transactional.id` has taken over
    #   @raise [WaitTimeoutError] when the time ran out; the message may still be delivered
    #   @raise [ArgumentError] when the timeout is invalid, or an Integer above an hour, which looks like milliseconds
    # @!method pending?
    #   @return [Boolean] whether there is no delivery result yet; never blocks
    # @!method report
    #   @return [DeliveryReport, nil] the delivery result, nil while pending; never blocks
    # @!method error
    #   @return [DeliveryError, ProducerFencedError, BrokerRejectedError, nil] why the delivery failed; nil while pending and when
    #     it was delivered; never blocks
    # @!method status
    #   Whether the message is in the topic, as {DeliveryReport#status}. Only a message that is not persisted can be sent
    #   again without the risk of a duplicate.
    #   @return [:persisted, :possibly_persisted, :not_persisted, nil] nil while pending; never blocks
    # @!method topic
    #   @return [String]
    # @!method label
    #   @return [Object, nil] the message's label
    # @!method self.await_all(handles, timeout: 180)
    #   Waits until each handle has its delivery result, or the time is up. Blocks like {#wait}.
    #   @param handles [Array<DeliveryHandle, Clients::Handle>]
    #   @param timeout [Numeric, nil] seconds for all together; see {#wait}
    #   @return [Boolean, nil] whether all were delivered; nil when the time ran out first

    # @return [Boolean] whether the message was delivered
    def delivered? = !pending? && error.nil?

    # Does not count as reading the result: a failure that was only printed stays unnoticed ({CloseReport}).
    # @return [String] the topic, and "pending" or the {#status}
    def inspect = "#<#{self.class} topic=#{topic} #{printed_status || "pending"}>"

    # Does not count as reading the result, like {#inspect}. (see AsJson#as_json)
    def as_json(_options = nil) = json(topic:, status: (printed_status || "pending").to_s)
  end
end

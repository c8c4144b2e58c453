# frozen_string_literal: true

module Penstock
  # The promise of a verdict on one message. The poller resolves it without Ruby's help.
  #
  # Any thread and fiber of the process that produced the message may use it. After a fork the child can read
  # verdicts that were in before; waiting for one that was not raises {ForkedError}.
  class DeliveryHandle
    include AsJson

    # @!method wait(timeout: 180)
    #   Waits until the message has its verdict. `wait(max_wait_timeout_ms: 5_000)`, with ms, works too.
    #
    #   Blocks: this thread, without the GVL, or this fiber if it has a scheduler, until the verdict or the timeout.
    #   `Thread#raise`, `Timeout` and Ctrl-C interrupt it at once; the message then stays on its way, and the handle can be
    #   waited for again.
    #   @param timeout [Numeric, nil] seconds to wait, as a Float if it is more than an hour; nil: without limit
    #   @return [DeliveryReport] when the message was delivered
    #   @raise [DeliveryError] when it was not; `retriable?` says whether it is certain not to be in the topic
    #   @raise [ProducerFencedError] another producer with the same `transactional.id` has taken over
    #   @raise [WaitTimeoutError] no verdict yet; the message may still be delivered
    #   @raise [ArgumentError] the timeout is none; or an Integer above an hour, which looks like milliseconds
    # @!method pending?
    #   @return [Boolean] whether the verdict is still to come; never blocks
    # @!method report
    #   @return [DeliveryReport, nil] the verdict, nil while pending; never blocks
    # @!method error
    #   @return [DeliveryError, ProducerFencedError, nil] why it failed; nil while pending and when it was delivered; never blocks
    # @!method status
    #   Whether the message is in the topic, as {DeliveryReport#status}. Only a message that is not persisted can be sent again
    #   without risking a duplicate.
    #   @return [:persisted, :possibly_persisted, :not_persisted, nil] nil while pending; never blocks
    # @!method topic
    #   @return [String]
    # @!method label
    #   @return [Object, nil] what was given as the message's label
    # @!method self.await_all(handles, timeout: 180)
    #   Waits until each handle has its verdict, or the time is up. Blocks like {#wait}.
    #   @param handles [Array<DeliveryHandle>]
    #   @param timeout [Numeric, nil] seconds for all together; see {#wait}
    #   @return [Boolean, nil] whether all were delivered; nil when the time was up first

    # @return [Boolean] delivered for good
    def delivered? = !pending? && error.nil?

    # A failure that was only printed stays unnoticed ({CloseReport}).
    # @return [String] the topic, and "pending" or the {#status}
    def inspect = "#<#{self.class} topic=#{topic} #{printed_status || "pending"}>"

    # A failure that was only serialized stays unnoticed, like with {#inspect}.
    # (see AsJson#as_json)
    def as_json(_options = nil) = json(topic:, status: (printed_status || "pending").to_s)
  end
end

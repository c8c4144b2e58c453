# frozen_string_literal: true

module Penstock
  # Group: a message was not sent, or its delivery failed, or its delivery result is unknown; see the subclasses and the code.
  #
  # A message that is invalid raises {MessageInvalidError} instead, and a producer that was fenced {ProducerFencedError}.
  class ProduceError < Error; end

  # librdkafka holds as many messages or bytes as it may (queue.buffering.max.*). The message was not accepted.
  class QueueFullError < ProduceError; end

  # The message was accepted, and its delivery result is a failure. {#retriable?} says whether it is certain not to be in the
  # topic. With {#fatal?} the producer's fatal error is why, and {#code} is that error's; a producer that was fenced gives
  # {ProducerFencedError} instead.
  class DeliveryError < ProduceError; end

  # message.timeout.ms passed before a broker acknowledged the message.
  #
  # For other messages of the producer that are just being sent again it means that they may get into the topic twice, as
  # librdkafka then begins a new epoch of its producer id (bench/timeout_duplicate.c). That takes an outage of
  # message.timeout.ms, by default 150 seconds. Who cannot bear it sets message.timeout.ms to 0 (without limit), or uses
  # transactions, or gives topics with another patience a producer or variant of their own.
  class MessageTimedOutError < DeliveryError
    include TimeoutError
  end

  # The wait was over before the delivery result came. The message is still on its way and may be delivered later.
  class WaitTimeoutError < ProduceError
    include TimeoutError
  end

  # The brokers can be reached and reject this client: nothing else was heard of them for `config.rejection_timeout`.
  # A producer goes on trying, and new messages are delivered once it is let in; so does a consumer, which raises it too.
  class BrokerRejectedError < ProduceError
    include ConnectionError
  end

  # TLS could not be agreed on: the broker's certificate is not accepted here, or ours is not accepted there, or one of the
  # two does not speak TLS.
  class TlsError < BrokerRejectedError; end

  # The broker does not believe who we are: user name, password, token or mechanism.
  class AuthenticationError < BrokerRejectedError; end

  # The broker hangs up without a word: it expects another `security.protocol` on this port.
  class SecurityProtocolError < BrokerRejectedError; end

  # No broker could be reached for `config.unreachable_timeout`. {#retriable?} says whether the message certainly is not in the
  # topic. A message that was sent before the connection was lost may be there.
  #
  # New messages fail in the same way, at once, until a broker can be reached again. The producer keeps trying by itself.
  class BrokersUnreachableError < ProduceError
    include ConnectionError
  end

  # A batch failed in part.
  class ProduceManyError < ProduceError
    # @return [Array<DeliveryHandle>] one for each message that was accepted, in order
    attr_reader :dispatched

    # @param dispatched [Array<DeliveryHandle>] see {#dispatched}
    # @param attributes [Hash] see {Error#initialize}
    def initialize(message = nil, dispatched: [], **attributes)
      super(message, **attributes)
      @dispatched = dispatched
    end
  end

  # What {#code} and {#message} say has ended the producer for good: it accepts no messages and no transactions any more.
  class FatalError < ProduceError; end
end

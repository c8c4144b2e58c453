# frozen_string_literal: true

module Penstock
  # Group: a message was not sent, or its delivery failed, or its delivery result is unknown; see the subclasses and the code.
  #
  # A message that is invalid raises {MessageInvalidError} instead, and a producer that was fenced {ProducerFencedError}.
  class ProduceError < Error; end

  # librdkafka holds as many messages or bytes as it may (queue.buffering.max.*). The message was not accepted.
  class QueueFullError < ProduceError; end

  # The message was accepted, and its delivery failed. {#retriable?} is true if the message is certainly not in the topic, and
  # sending it again may succeed. It is false for a message that a broker rejects for what it is, such as one that is too large:
  # {DeliveryReport#status} says that it is not in the topic.
  # With {#fatal?} the cause is the producer's fatal error, and {#code} is the code of that error. A producer that was
  # fenced raises {ProducerFencedError} instead.
  class DeliveryError < ProduceError; end

  # message.timeout.ms passed before a broker acknowledged the message.
  #
  # Other messages of the producer that librdkafka is just retrying may be stored twice, because librdkafka then begins a
  # new epoch of its producer id (bench/timeout_duplicate.c). That requires an outage of message.timeout.ms, by default 150
  # seconds. To exclude it, set message.timeout.ms to 0 (no limit), or use transactions. Give topics with another timeout a
  # producer or variant of their own.
  class MessageTimedOutError < DeliveryError
    include TimeoutError
  end

  # The wait ended before the delivery result came. The message is still in flight and may be delivered later.
  class WaitTimeoutError < ProduceError
    include TimeoutError
  end

  # Brokers can be reached and reject this client: for `config.rejection_timeout` they did nothing else. A producer keeps
  # trying, and delivers new messages once brokers accept it. So does a consumer, which raises this error too.
  class BrokerRejectedError < ProduceError
    include ConnectionError
  end

  # TLS failed: one side does not accept the certificate of the other, or does not speak TLS.
  class TlsError < BrokerRejectedError; end

  # The broker rejects the user name, password, token or mechanism.
  class AuthenticationError < BrokerRejectedError; end

  # The broker closes the connection without a reason: it expects another `security.protocol` on this port.
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

  # The producer has ended for good: it accepts no messages and no transactions any more. {#code} and {#message} say why.
  class FatalError < ProduceError; end
end

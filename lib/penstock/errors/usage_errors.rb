# frozen_string_literal: true

module Penstock
  # Group: the program made a call that cannot work in this way, at this time or in this place. The same call fails again
  # until the program changes.
  class UsageError < Error; end

  # The message cannot be sent as it is. Nothing was sent, also of a batch.
  class MessageInvalidError < UsageError; end

  # `config.serializer` raised (its error is the `cause`), or did not return a String. Nothing was sent, also of a batch.
  class SerializationError < MessageInvalidError; end

  # The producer, pool or embedded cluster is closed. Nothing was sent.
  class ProducerClosedError < UsageError; end

  # {Producer#setup} was not called yet. Nothing was sent.
  class ProducerNotConfiguredError < UsageError; end

  # {Producer#setup} was called before. Nothing was changed.
  class ProducerAlreadyConfiguredError < UsageError; end

  # The consumer was closed.
  class ConsumerClosedError < UsageError; end

  # The admin client was closed, perhaps while the call waited. A change may still take effect then.
  class AdminClosedError < UsageError; end

  # The linked librdkafka cannot do this. The message names the first version that can.
  class UnsupportedError < UsageError; end

  # The bytes of a message were read after {Batch#release}.
  class BatchReleasedError < UsageError; end

  # A listener made a call that must wait for the end of the same listener. It listens to the producer's work on its own
  # connection: "producer.reload", or "error.occurred" during a reload. Nothing was sent or begun. Make the call in another
  # thread, or in a listener of "producer.connected". Or it is a rebalance listener that calls {Consumer#assign}.
  class ListenerDeadlockError < UsageError; end

  # The call is not possible in a signal trap; see {Producer}. Nothing was sent, begun or changed.
  class SignalTrapError < UsageError; end

  # The call is possible in the main Ractor only, or the producer cannot be shared; see {Producer#shareable}. Nothing was
  # sent or made.
  class NotShareableError < UsageError; end

  # The object belongs to the parent process. Make a new one in the fork child.
  class ForkedError < UsageError; end

  # There is no event of this name. The message suggests the most similar name.
  class EventUnknownError < UsageError; end

  # A hook of {Producer#around} did not call its {Producer::SendContext}, called it twice, or gave it invalid messages. The
  # error message says whether something was sent.
  class HookError < UsageError; end

  # {ConnectionPool} was used before {ConnectionPool.setup}.
  class PoolNotConfiguredError < UsageError; end
end

# frozen_string_literal: true

module Penstock
  # Group: the program called something in a way, at a time or in a place that cannot work. The same call fails again until
  # the program changes.
  class UsageError < Error; end

  # A message cannot be sent as it is. Nothing was sent, of a batch neither.
  class MessageInvalidError < UsageError; end

  # `config.serializer` raised, then that is the `cause`; or it returned no String. Nothing was sent, of a batch neither.
  class SerializationError < MessageInvalidError; end

  # The producer or cluster was closed. Nothing was sent.
  class ProducerClosedError < UsageError; end

  # {Producer#setup} was not called yet. Nothing was sent.
  class ProducerNotConfiguredError < UsageError; end

  # {Producer#setup} was called before. Nothing was changed.
  class ProducerAlreadyConfiguredError < UsageError; end

  # The consumer was closed.
  class ConsumerClosedError < UsageError; end

  # A listener of what a producer does to its own connection ("producer.reload", and "error.occurred" meanwhile) asked it for
  # something that has to wait for the listener's end. Nothing was sent or begun. Another thread may ask, or a listener of
  # "producer.connected".
  class ListenerDeadlockError < UsageError; end

  # Something was called in a signal trap that cannot be done there; see {Producer}. Nothing was sent, begun or changed.
  class SignalTrapError < UsageError; end

  # Something is for the main Ractor only, or is done by a producer that other Ractors use; see {Producer#shareable}.
  # Nothing was sent or made.
  class NotShareableError < UsageError; end

  # Something belongs to the process this one was forked from.
  class ForkedError < UsageError; end

  # There is no event of this name; the message names the nearest.
  class EventUnknownError < UsageError; end

  # A hook of {Producer#around} did not call the {Producer::SendContext} it got, called it twice, or gave it other messages
  # than it may. The message says whether something was sent.
  class HookError < UsageError; end

  # {ConnectionPool} was used before {ConnectionPool.setup}.
  class PoolNotConfiguredError < UsageError; end
end

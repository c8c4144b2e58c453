# frozen_string_literal: true

module Penstock
  # Group: a call of a transaction failed. To decide what to do, ask {#fatal?}, then {#abortable?}, then {#retriable?}. When
  # all are false, the call was not allowed now or the cluster rejected it, and nothing has changed.
  class TransactionError < Error; end

  # Another producer with the same `transactional.id` has taken over. The code is `:fenced`. Every call on the producer raises
  # this error: `produce_*`, waiting for a handle, and `transaction`. {DeliveryHandle#error} returns it for messages that the
  # producer had not delivered.
  #
  # Readers of committed messages see nothing of the transaction. Do not send again from this producer.
  class ProducerFencedError < TransactionError; end

  # The transaction lasted longer than `transaction.timeout.ms`. So the cluster has aborted it, and fences the producer. Make a
  # new one; {ConnectionPool} does. Readers of committed messages see nothing of the transaction.
  class TransactionTimedOutError < ProducerFencedError
    include TimeoutError
  end

  # The commit was sent, or may have been, and the cluster did not say in time how it has ended: the messages and offsets of the
  # transaction are visible, or will be, or never. Running the transaction again may store its messages twice. {#retriable?} is
  # true only with a consumer: {Producer#transaction} then finds out, and continues or goes back.
  class TransactionOutcomeUnknownError < TransactionError; end

  # It is too late to abort: the transaction has been committed, possibly by a call that was interrupted or timed out.
  class TransactionCommittedError < TransactionError; end

  # The call requires a `transactional.id`, and the producer has none.
  class ProducerNotTransactionalError < TransactionError; end

  # The call requires a running transaction of this fiber.
  class TransactionRequiredError < TransactionError; end

  # {Producer#transaction_mark_as_consumed} got an argument that is no consumed message. Nothing was marked. Or
  # {Producer#transaction} got a batch, and another thread works on earlier messages of the same partition. Nothing was begun.
  class TransactionalOffsetInvalidError < TransactionError; end

  # return, break or throw left the block of a transaction. The transaction was aborted.
  class EarlyTransactionExitNotAllowedError < TransactionError; end

  # {Producer#close} was called inside the producer's own transaction. Nothing was closed.
  class ProducerTransactionalCloseAttemptError < TransactionError; end

  # Another fiber has the producer's transaction and can never end it while this fiber waits. Either it is a fiber of the
  # same thread and there is no scheduler, or its thread has ended inside the block. Nothing was sent or begun.
  # {Producer#close} aborts that transaction.
  class TransactionDeadlockError < TransactionError; end

  # A program raises this inside the block of a transaction to abort it. It does not leave the block's call. It reports no
  # failure, so it is in no group: a `rescue` of a group inside the block must not keep the transaction from being aborted.
  class AbortTransaction < Error; end
end

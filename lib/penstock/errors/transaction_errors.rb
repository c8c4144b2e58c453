# frozen_string_literal: true

module Penstock
  # Group: a transaction call failed. What to do follows from {#fatal?}, {#abortable?} and {#retriable?}, asked in this order;
  # when all are false, the call was not allowed now or the cluster rejects it, and nothing has changed.
  class TransactionError < Error; end

  # Another producer with the same `transactional.id` has taken over, or the cluster has ended a transaction that lasted longer
  # than `transaction.timeout.ms`. The code is `:fenced`. Every call on the producer raises it: `produce_*`, waiting for a handle,
  # and `transaction`. {DeliveryHandle#error} returns it for messages that the producer had not delivered.
  #
  # Nothing of the transaction is visible to readers of committed messages. Do not send again from this producer.
  class ProducerFencedError < TransactionError; end

  # Too late to abort: the transaction has been committed, by a call that was interrupted or out of time, perhaps.
  class TransactionCommittedError < TransactionError; end

  # A transaction was asked of a producer without `transactional.id`.
  class ProducerNotTransactionalError < TransactionError; end

  # Something needs a running transaction of this fiber.
  class TransactionRequiredError < TransactionError; end

  # What was given to {Producer#transaction_mark_as_consumed} is no consumed message. Nothing was marked.
  class TransactionalOffsetInvalidError < TransactionError; end

  # A transaction's block was left by return, break or throw. The transaction was aborted.
  class EarlyTransactionExitNotAllowedError < TransactionError; end

  # {Producer#close} was called inside the producer's own transaction. Nothing was closed.
  class ProducerTransactionalCloseAttemptError < TransactionError; end

  # Another fiber has the producer's transaction and can never end it while this one waits: it is of the same thread, and
  # no fiber scheduler runs; or its thread has ended inside the block. Nothing was sent or begun. {Producer#close} aborts
  # that transaction.
  class TransactionDeadlockError < TransactionError; end

  # To be raised by a program inside a transaction's block: aborts it, and goes no further than the block. It reports no failure,
  # so it is in no group: a `rescue` of a group inside the block must not keep the transaction from being aborted.
  class AbortTransaction < Error; end
end

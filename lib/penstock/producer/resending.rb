# frozen_string_literal: true

module Penstock
  # Sends messages a second time with a new client when the first client failed: only messages that certainly are not in the
  # topic. For classes that have `send_many` and `retry_with_new_client?`, in any Ractor.
  # @api private
  module Resending
    private

    # Some messages were not accepted or not delivered, or have no delivery result yet.
    def after_failure(connection, client, handles, not_accepted, messages, timeout_ms, tally)
      error = not_accepted || first_failure(client, handles, timeout_ms)
      return handles if error.nil? # the last delivery results came just now

      again = resendable(handles, not_accepted, messages.size, timeout_ms)
      again = [] unless again.empty? || may_go_on?(handles, connection, client, error)
      return send_again(again, handles, messages, timeout_ms, tally) if again.any?
      raise error if handles.empty? && unsent?(error) # the same error for all messages
      raise error if error.is_a?(ProducerFencedError) # nothing of the transaction will be visible, whatever was accepted

      raise ErrorFactory.build_many(error, handles, messages.size)
    end

    # If the rest cannot be sent, the caller still gets the handles of the accepted messages.
    def may_go_on?(handles, *failed)
      retry_with_new_client?(*failed)
    rescue Error
      raise if handles.empty? # M:close_keeps_sent_handles

      false
    end

    def first_failure(client, handles, timeout_ms)
      late = handles.select(&:pending?)
      raise unfinished(client, late, handles.size, timeout_ms) if late.any?

      handles.find(&:error)&.error
    end

    # @return [Array<Integer>] the places of the messages that another client may send: those that failed or were not
    #   accepted. Empty if one of them may be in the topic: then only the caller can decide.
    def resendable(handles, not_accepted, size, timeout_ms)
      return [] if not_accepted && !unsent?(not_accepted)

      rest = (handles.size...size).to_a
      return rest if timeout_ms == false # the caller gets the results of the others by their handles

      failed = handles.each_index.reject { |index| handles[index].delivered? }
      failed.all? { |index| handles[index].error && unsent?(handles[index].error) } ? failed + rest : []
    end

    # @return [Array<DeliveryHandle>] of all messages
    def send_again(places, handles, messages, timeout_ms, tally)
      tally&.restart(places)
      sent = send_many(messages.values_at(*places), timeout_ms, tally)
      with_replaced(handles, places, sent)
    rescue WaitTimeoutError
      raise
    rescue Error => e
      taken = e.is_a?(ProduceManyError) ? with_replaced(handles, places, e.dispatched) : handles
      raise if taken.empty?

      raise ErrorFactory.build_many(taken.find(&:error)&.error || e, taken, messages.size)
    end

    def with_replaced(handles, places, newer)
      handles = handles.dup
      places.zip(newer) { |place, handle| handles[place] = handle if handle }
      handles
    end

    # Whether the message certainly is not in the topic: it was not accepted, or its delivery result says so.
    def unsent?(error)
      case error
      when ProducerClosedError then true
      when DeliveryError then error.retriable?
      when WaitTimeoutError, ProduceManyError then false
      else error.fatal?
      end
    end

    def unfinished(client, late, size, timeout_ms)
      text = "no delivery result after #{timeout_ms} ms for #{late.size} of #{Text.count(size, "message")}"
      client.timeout_error(text, late.first.topic)
    end
  end
end

# frozen_string_literal: true

module Penstock
  # What is sent a second time by itself when the first client could not: only what certainly is not in the topic. For whoever
  # has `send_many` and `retry_with_new_client?`, in any Ractor.
  # @api private
  module Resending
    private

    # Some were not taken, or not delivered, or have no verdict yet.
    def after_failure(connection, client, handles, refused, messages, timeout_ms, tally)
      error = refused || first_failure(client, handles, timeout_ms)
      return handles if error.nil? # the last verdicts came in just now

      again = sendable_again(handles, refused, messages.size, timeout_ms)
      again = [] unless again.empty? || may_go_on?(handles, connection, client, error)
      return send_again(again, handles, messages, timeout_ms, tally) if again.any?
      raise error if handles.empty? && unsent?(error) # one error for all of them
      raise error if error.is_a?(ProducerFencedError) # nothing of the transaction will be visible, whatever was accepted

      raise ErrorFactory.build_many(error, handles, messages.size)
    end

    # What keeps the rest from being sent costs nobody the handles of what was.
    def may_go_on?(handles, *failed)
      retry_with_new_client?(*failed)
    rescue Error
      raise if handles.empty?

      false
    end

    def first_failure(client, handles, timeout_ms)
      late = handles.select(&:pending?)
      raise unfinished(client, late, handles.size, timeout_ms) if late.any?

      handles.find(&:error)&.error
    end

    # @return [Array<Integer>] the places of those that another client may send: all that failed or were not taken. None
    #   if one of them may be in the topic: what then is right, only the caller knows.
    def sendable_again(handles, refused, size, timeout_ms)
      return [] if refused && !unsent?(refused)

      rest = (handles.size...size).to_a
      return rest if timeout_ms == false # the verdicts of the others are for those who have their handles

      failed = handles.each_index.reject { |index| handles[index].delivered? }
      failed.all? { |index| handles[index].error && unsent?(handles[index].error) } ? failed + rest : []
    end

    # @return [Array<DeliveryHandle>] of all messages
    def send_again(places, handles, messages, timeout_ms, tally)
      tally&.again(places)
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

    # Certain not to be in the topic: refused, or with a verdict that says so.
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

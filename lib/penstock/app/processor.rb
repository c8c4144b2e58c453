# frozen_string_literal: true

module Penstock
  # What an application does with messages. A subclass has one of these methods:
  #
  # - `process(record)` gets one {Message}. Returning means that it is processed; raising, that it has failed.
  # - `process_batch(batch)` gets a {RecordBatch}; its route has the option `batch`. Returning means that all are processed.
  #
  #     class Orders < Penstock::Processor
  #       def process(order)
  #         return reject("no customer") unless order.value["customer"]
  #
  #         Billing.charge(order.value, idempotency_key: order.id)
  #       end
  #     end
  #
  # With `order: :partition` one object serves an assignment of a partition, one call at a time. Otherwise there are several, each
  # for one call at a time. What they keep in variables is gone with the assignment: use it as a cache.
  #
  # A subclass may also have these methods: `assigned` is called before the first message of an assignment; `revoked` after the
  # last, before another member gets the partition, and when the application stops; `stopping` before that, only when the
  # application stops; `tick` as often as the route's option `tick` says; `caught_up` when everything is processed that the
  # partition had. No message is in work during `stopping` and `revoked`, with `order: :partition` also during the others.
  #
  # The methods run on the application's worker threads.
  class Processor
    # @return [Message, nil] the one in work; nil in `process_batch`, `assigned` and `revoked`
    def record = @penstock_work&.record

    # @return [String] of the partition
    attr_reader :topic
    # @return [Integer]
    attr_reader :partition

    # @return [Integer] 1 at the first try
    def attempt = @penstock_work ? @penstock_work.attempt : 1

    # Whether the work should end soon: the partition is taken away, or the application stops. Never blocks.
    #
    # What is processed when `process` returns counts all the same, if it is in time. When this has returned true in
    # `process_batch`, only the messages that {RecordBatch#done} has named count.
    # @return [Boolean]
    def cancelled?
      cancelled = @penstock_place ? @penstock_place.cancelled? : false
      @penstock_work&.end_early if cancelled
      cancelled
    end

    # Whether the partition was taken away: another member gets its messages again. Never blocks.
    # @return [Boolean]
    def revoked? = @penstock_place ? @penstock_place.revoked? : false

    # Ends the call. The message cannot be processed, now or later, so it is not tried again: it goes to the dead letters, or is
    # treated as the route's `after_retries` says.
    # @param reason [String]
    # @raise [Rejected] always
    # @raise [UsageError] in a hook such as `tick`: it has no message
    def reject(reason)
      penstock_not_in_a_hook("reject")
      raise Rejected, reason
    end

    # Ends the call. The message is tried again after this time, instead of the one that the route's `retry` says.
    # @param seconds [Numeric]
    # @raise [RetryLater] always
    # @raise [UsageError] in a hook such as `tick`: it has no message
    def retry_in(seconds)
      penstock_not_in_a_hook("retry_in")
      raise RetryLater, seconds
    end

    # Ends the call. Until this time is over, no message of the partition is handed out, whatever its key is; then this one comes
    # again. It does not count as a try. For example while another system is down.
    # @param seconds [Numeric]
    # @raise [Paused] always
    # @raise [UsageError] in a hook such as `tick`: it has no message
    def pause(seconds)
      penstock_not_in_a_hook("pause")
      raise Paused, seconds
    end

    # Ends the call. The partition goes on at another place, and what is there is processed again, or left out. Later commits
    # follow, also back. If the partition is taken away before a message from there is processed, the seek is forgotten.
    # @param to [Integer, :beginning, :end, Time] an offset; the first message; behind the last; the first message that is not
    #   older
    # @raise [SeekTo] always
    # @raise [UsageError] unless the route has `order: :partition`, as other keys may be in work; in a hook such as `tick`
    # @raise [ArgumentError] when it is no place
    def seek(to)
      penstock_work_of("seek")
      penstock_not_in_a_hook("seek")
      @penstock_place.route.order == :partition or raise ErrorFactory.build(UsageError, "seek requires order: :partition")
      raise SeekTo, to
    end

    # Ends `process`. The message counts as processed, and the event "message.skipped" says why. (To return says nothing.)
    # @param reason [String]
    # @raise [Skipped] always
    # @raise [UsageError] in `process_batch`, which has {RecordBatch#done}
    def skip(reason)
      penstock_work_of("skip")
      record or raise ErrorFactory.build(UsageError, "skip is for process: process_batch has batch.done")
      raise Skipped, reason
    end

    # With the route's option `offsets: :manual`: commits that this message and all before it need not come again. It happens with
    # the next commit, at the latest when the partition is taken away.
    #
    # Blocks: until what was sent with {#produce} before is delivered. Raises if that fails, and names nothing then.
    #
    # @param message [Message] of this partition; default {#record}
    # @return [Boolean] false: the partition was taken away, so they come again
    # @raise [Error] when a message that was sent before is not delivered
    # @raise [UsageError] without `offsets: :manual`, or in `assigned`
    # @raise [ArgumentError] except in `process`, without a message; when it is of another partition
    def checkpoint(message = record)
      penstock_work_of("checkpoint").checkpoint(message)
    end

    # Sends a message to another topic, with `app.producer` or the application's own, except in `assigned`. The
    # message in work counts as processed only when all that it has sent is delivered; otherwise it has failed. So nothing is
    # lost, but if it is tried again, it sends again: the other topic may have both. In a batch, call {RecordBatch#done} for a
    # message after it has sent.
    #
    # Blocks: like {Producer#produce_async}. The end of the method waits for the delivery.
    #
    # @param message [Hash] see {Producer}
    # @return [DeliveryHandle]
    # @raise [UsageError] in other methods
    # @raise [MessageInvalidError, QueueFullError, ProducerClosedError] see {Producer#produce_async}
    def produce(message)
      penstock_work_of("produce").produce(message)
    end

    # Sends a copy of a message to another topic, with {#produce}: its payload, key and headers as they are.
    #
    #     def process(order) = copy_to(order.value["eu"] ? "orders-eu" : "orders-us")
    #
    # Blocks: like {#produce}.
    #
    # @param topic [String, Symbol]
    # @param message [Message] default {#record}
    # @param changes [Hash] what is different: see {Producer}
    # @return [DeliveryHandle]
    # @raise [ArgumentError] except in `process`, without a message
    # @raise [UsageError, MessageInvalidError, QueueFullError, ProducerClosedError] see {#produce}
    # @overload copy_to(topic, message = record, payload: message.payload, key: message.key, headers: message.headers)
    def copy_to(topic, message = record, **changes)
      penstock_work_of("copy_to")
      message.is_a?(Message) or raise ArgumentError, "copy_to needs a message, not #{message.inspect}"
      produce({ topic:, payload: message.payload, key: message.key, headers: message.headers, **changes })
    end

    # Ruby before 3.4 prints it for each misspelt name, so it shows nothing of the application.
    # @return [String]
    def inspect = "#<#{self.class}#{" #{topic}/#{partition}" if topic}>"

    # What {Processor#reject} raises. A program may raise it, too.
    class Rejected < StandardError; end

    # What {Processor#skip} raises. A program may raise it in `process`, too.
    class Skipped < StandardError; end

    # What {Processor#retry_in} raises.
    class RetryLater < StandardError
      # @return [Numeric] seconds
      attr_reader :seconds

      # @param seconds [Numeric]
      # @raise [ArgumentError] when it is no time
      def initialize(seconds)
        unless seconds.is_a?(Numeric) && seconds.real? && seconds >= 0 && seconds.to_f.finite?
          raise ArgumentError, "the time to wait must be seconds from 0, not #{seconds.inspect}"
        end

        @seconds = seconds
        super("to be tried again in #{seconds} s")
      end
    end

    # What {Processor#pause} raises.
    class Paused < RetryLater; end

    # What {Processor#seek} raises.
    class SeekTo < StandardError
      OFFSETS = (0..(2**63) - 1)
      private_constant :OFFSETS

      # @return [Integer, Symbol, Time]
      attr_reader :to

      # @param to [Integer, :beginning, :end, Time]
      # @raise [ArgumentError] when it is no place
      def initialize(to)
        unless %i[beginning end].include?(to) || (to.is_a?(Time) && to.to_i >= 0) || (to.is_a?(Integer) && OFFSETS.cover?(to))
          raise ArgumentError, "seek needs an offset from 0, :beginning, :end or a Time from 1970, not #{to.inspect}"
        end

        @to = to
        super("to go on at #{to}")
      end
    end

    private

    def penstock_work_of(method)
      text = "#{method} is possible while an application calls process, process_batch, tick, stopping or revoked"
      @penstock_work or raise ErrorFactory.build(UsageError, text, "Test it with Penstock::Testing.drive.")
    end

    def penstock_not_in_a_hook(method)
      hook = @penstock_work&.hook or return
      raise ErrorFactory.build(UsageError, "#{method} is for process and process_batch, not for the hook #{hook}",
                               "Nothing was changed.")
    end

    # Also for subclasses that have an `initialize` of their own.
    def penstock_place_at(place)
      @penstock_place = place
      @topic = place.topic
      @partition = place.number
      self
    end

    def penstock_work_on(work) = @penstock_work = work
  end

  class App
    # For a route to an object with a method `call`.
    # @api private
    class CallProcessor < Processor
      # @param callable [#call]
      def initialize(callable)
        super()
        @callable = callable
      end

      # @param record [Message]
      def process(record) = @callable.call(record)

      # @param batch [RecordBatch]
      def process_batch(batch) = @callable.call(batch)
    end
    private_constant :CallProcessor
  end
end

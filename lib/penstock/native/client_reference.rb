# frozen_string_literal: true

module Penstock
  module Native
    # Where the {ShareableProducer}s of a connection find its client; see ext/penstock/core/produce/slot.c. While there are
    # handles, a Ruby thread of the main Ractor serves them. If a handle has no client, or one with a fatal error, the
    # thread connects, or replaces the client as the producer itself would.
    #
    # @!method client=(client)
    #   @param client [Client, nil] connected if necessary; nil: there is none now
    # @!method barred=(why)
    #   @param why [String, nil] calls raise {NotShareableError} with this reason; nil: calls are allowed
    # @!method handle(id, timeout_ms, serializer)
    #   @return [ShareableProducer]
    # @!method changing=(changing)
    #   @param changing [Boolean] whether this thread is replacing the client: handles that it uses then would wait for
    #     itself
    # @!method close
    #   For good: calls raise {ProducerClosedError}.
    # @!method inherited?
    #   @return [Boolean] whether it belongs to the parent process
    # @!method attend(flag)
    #   @return [Boolean] whether the flag changed
    # @!method await
    #   @return [Integer, nil] the next question; nil: there are no handles any more
    # @!method answer(question, trouble)
    #   @param trouble [String, nil] why there is no client
    # @api private
    class ClientReference
      include Uncopyable
      include AsJson

      # Keeps the producer alive, through its connection, as long as there are handles.
      # @param connection [Producer::Connection]
      def serve(connection)
        start(connection) if attend(true)
      end

      def inspect = "#<#{self.class}>"

      private

      def start(connection)
        thread = Threads.start("penstock.ractors") { attend_to(connection) }
      ensure
        attend(false) if thread.nil? # no thread is available, or this one was interrupted
      end

      def attend_to(connection)
        Thread.current.report_on_exception = false
        while (question = await)
          answer(question, connection.help)
        end
        over = true
        connection.hold_events # while the connection exists: messages of the last handle may still cause events
      ensure
        go_on(connection) unless over
      end

      # The thread was killed while there are handles to serve.
      def go_on(connection)
        attend(false)
        serve(connection)
      rescue ThreadError
        close # the process is ending
      end
    end
  end
end

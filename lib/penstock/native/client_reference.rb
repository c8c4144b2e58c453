# frozen_string_literal: true

module Penstock
  module Native
    # Where the {ShareableProducer}s of a connection find its client; see ext/penstock/core/produce/slot.c. While there are any, a
    # Ruby thread of the main Ractor waits for one that has no client, or one that can do nothing more: it connects, or replaces
    # the client as the producer itself would.
    #
    # @!method client=(client)
    #   @param client [Client, nil] opened if need be; nil: there is none for now
    # @!method barred=(why)
    #   @param why [String, nil] calls raise {NotShareableError} with it; nil: they go through
    # @!method handle(id, timeout_ms, serializer)
    #   @return [ShareableProducer]
    # @!method changing=(changing)
    #   @param changing [Boolean] whether this thread is replacing the client: handles that it uses meanwhile would wait for it
    # @!method close
    #   For good: calls raise {ProducerClosedError}.
    # @!method inherited?
    #   @return [Boolean] whether it is the parent process's
    # @!method attend(flag)
    #   @return [Boolean] whether that is new
    # @!method await
    #   @return [Integer, nil] the next question; nil: nobody is left to ask
    # @!method answer(question, trouble)
    #   @param trouble [String, nil] why there is no client
    # @api private
    class ClientReference
      include Uncopyable
      include AsJson

      # Keeps the producer, by its connection, as long as there are handles.
      # @param connection [Producer::Connection]
      def serve(connection)
        start(connection) if attend(true)
      end

      def inspect = "#<#{self.class}>"

      private

      def start(connection)
        thread = Threads.start("penstock.ractors") { attend_to(connection) }
      ensure
        attend(false) if thread.nil? # there is none to be had, or this one was interrupted
      end

      def attend_to(connection)
        Thread.current.report_on_exception = false
        while (question = await)
          answer(question, connection.help)
        end
        over = true
        connection.hold_events # while there is somebody to do so: what the last handle has sent may still have to be told
      ensure
        go_on(connection) unless over
      end

      # The thread was killed, and there are handles to serve.
      def go_on(connection)
        attend(false)
        serve(connection)
      rescue ThreadError
        close # the process is ending
      end
    end
  end
end

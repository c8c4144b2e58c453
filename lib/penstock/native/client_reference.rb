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
    #   @param changing [Boolean] whether this thread is replacing the client. If it uses a handle meanwhile, it would wait for
    #     itself
    # @!method close
    #   For good: calls raise {ProducerClosedError}.
    # @!method inherited?
    #   @return [Boolean] whether it belongs to the parent process
    # @!method attend(flag)
    #   @param flag [Boolean] whether a thread answers the handles' questions
    #   @return [Boolean] whether the flag changed
    # @!method await
    #   Waits until a handle asks for a client.
    #   @return [Integer, nil] the number of the question; nil: there are no handles any more
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
        attend(false) if thread.nil? # no thread could start, or this thread was interrupted
      end

      def attend_to(connection)
        Thread.current.report_on_exception = false
        while (question = await)
          answer(question, connection.provide_client)
        end
        finished = true
        # M:last_events_held
        connection.hold_events # while this thread keeps it alive: messages of the last handle may still cause events
      ensure
        restart(connection) unless finished # M:slot_thread_restarted
      end

      # Called when the thread was killed while there are handles to serve.
      def restart(connection)
        attend(false)
        serve(connection)
      rescue ThreadError
        close # the process is ending
      end
    end
  end
end

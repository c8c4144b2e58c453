# frozen_string_literal: true

module Penstock
  class App
    # Runs a server in the foreground, until a signal comes.
    # @api private
    class Signals
      include ShortInspect

      STOP = %w[INT TERM QUIT].freeze
      # Seconds for what stdout still has in its buffer. The reader of a pipe may hang.
      FLUSH = 1
      private_constant :STOP, :FLUSH

      # @param server [Server]
      def initialize(server)
        @server = server
        @signals = 0
      end

      # @return [StopReport]
      def run
        former = STOP.to_h { |name| [name, trap(name) { stop }] }
        former["TSTP"] = trap("TSTP") { @server.quiet }
        former["TTIN"] = trap("TTIN") { Thread.new { tell(@server.status) } }
        report = @server.wait
        return report if report.complete?

        tell(report)
        exit(1) if report.status == 1
        Thread.new { flush }.join(FLUSH)
        exit!(report.status) # at_exit could wait for what hangs, for ever
      ensure
        former&.each { |name, handler| trap(name, handler || "DEFAULT") }
      end

      private

      # Also when Ruby's warnings are off.
      def tell(text) = $stderr.write("penstock: #{text}\n")

      # `exit!` drops what is in the buffer: the last lines of a logger on stdout, which say why the process ends.
      def flush
        $stdout.flush
      rescue IOError, SystemCallError
        nil # the reader is gone
      end

      # Of a trap.
      def stop
        @signals += 1
        @signals == 1 ? @server.stop_later : @server.force
      end
    end
    private_constant :Signals
  end
end

# frozen_string_literal: true

module Penstock
  class App
    # Runs a server in the foreground, until a signal comes.
    # @api private
    class Signals
      include ShortInspect

      STOP = %w[INT TERM QUIT].freeze
      private_constant :STOP

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
        # at_exit could wait for what hangs, for ever.
        report.status == 1 ? exit(1) : exit!(report.status)
      ensure
        former&.each { |name, handler| trap(name, handler || "DEFAULT") }
      end

      private

      # Also when Ruby's warnings are off.
      def tell(text) = $stderr.write("penstock: #{text}\n")

      # Of a trap.
      def stop
        @signals += 1
        @signals == 1 ? @server.stop_later : @server.force
      end
    end
    private_constant :Signals
  end
end

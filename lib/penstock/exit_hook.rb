# frozen_string_literal: true

module Penstock
  # Closes what is still open when the process ends, while Ruby can still wait for it.
  # @api private
  module ExitHook
    @armed = false

    class << self
      # At load, so that it runs after the program's own at_exit blocks, which may still produce; and again when a
      # producer is made after it ran, as in a test suite that runs inside at_exit.
      def arm
        return if @armed

        @armed = true
        at_exit { run }
      end

      private

      def run
        @armed = false
        Client.close_all
        Dispatcher.finish(1)
      end
    end
  end
end

# frozen_string_literal: true

require_relative "app_command"

module Penstock
  module CLI
    # `penstock server`
    # @api private
    class Server < AppCommand
      NAME = "server"
      ABOUT = <<~TEXT
        Runs an application until it gets INT, TERM or QUIT: then it finishes what is in work, commits, and
        leaves its groups. A second one of these signals ends it at once. TSTP: it takes no more messages, and
        finishes those in work. TTIN prints what is in work.
        The exit status is 0, 1 after an error that stopped the application, 2 for wrong usage or an invalid
        setting, or 3 if work was left when the time was up.
      TEXT

      private

      # If work was left, or an error has stopped the application, {App#run} ends the process.
      #
      # Ruby keeps up to 8 KB of what a program writes to a pipe or file. Log lines of `Logger.new($stdout)` would come late, and
      # a process that is killed would take the last ones with it.
      def perform_with(app)
        @out.sync = true
        @out.puts "Penstock #{VERSION}: #{Text.count(app.groups.size, "group")}; Ctrl-C or TERM stops it, a second one at once"
        app.run
        0
      rescue ConfigurationError => e # such as a setting that librdkafka does not have, or a probe's port that is in use
        raise UsageError, Text.printable(e.message)
      end
    end
  end
end

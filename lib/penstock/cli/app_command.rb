# frozen_string_literal: true

require_relative "command"
require_relative "../app"

module Penstock
  module CLI
    # A command that needs an application, perhaps with some of its groups only. A subclass has `perform_with(app)`.
    # @api private
    class AppCommand < Command
      USAGE = "[OPTIONS]"
      DEFAULT_FILE = "config/penstock.rb"
      private_constant :DEFAULT_FILE

      def initialize(out)
        super
        @file = DEFAULT_FILE
        @only = @except = nil
      end

      private

      def define(parser)
        parser.on("-r", "--require FILE", "which makes the application (default #{DEFAULT_FILE})") { |file| @file = file }
        parser.on("--only GROUPS", Array, "only these groups, such as billing,audit") { |names| @only = names }
        parser.on("--except GROUPS", Array, "all groups but these") { |names| @except = names }
      end

      def perform(words)
        words.empty? ? perform_with(app) : misused("accepts only options")
      end

      # @return [App]
      # @raise [UsageError] when the file makes no application or several, or has no such group
      def app
        apps = App.__send__(:built_by) { load_file(@file) }
        return restricted(apps.first) if apps.size == 1

        raise UsageError, "#{Text.printable(@file)} must make one application with Penstock.app, not #{apps.size}"
      end

      def load_file(file)
        raise UsageError, "--require: there is no file #{Text.printable(file)}" unless File.file?(file)

        loading(file) { load(File.expand_path(file)) }
      rescue LoadError => e
        raise UsageError, "--require: #{Text.printable(e.path || "a library")} cannot be loaded, which the file requires"
      end

      def restricted(app)
        raise UsageError, "--only and --except exclude each other" if @only && @except
        return app unless @only || @except

        known = app.groups.map(&:id)
        unknown = [*@only, *@except].find { |name| !known.include?(name) }
        raise UsageError, "there is no group #{Text.printable(unknown)}#{Suggestion.hint(unknown, known)}" if unknown

        left = @only || (known - @except)
        raise UsageError, "--except leaves no group" if left.empty?

        app.with_groups(left)
      end
    end
  end
end

# frozen_string_literal: true

module Penstock
  module CLI
    # A command of the executable. A subclass has NAME, USAGE, ABOUT, `define(parser)` with its options, and `perform(words)`,
    # which gets the other arguments and returns the exit status.
    # @api private
    class Command
      LONGEST_TIMEOUT = 3_600 # seconds
      OWN = File.expand_path("..", __dir__).freeze
      private_constant :LONGEST_TIMEOUT, :OWN

      def initialize(out)
        @out = out
      end

      # Arguments without options need no parser, which would be half of the time of `penstock probe`.
      # @param arguments [Array<String>]
      # @return [Integer] the exit status
      def run(arguments)
        words = arguments.grep(/\A-/).empty? ? arguments : parse(arguments)
        @helped ? 0 : perform(words)
      end

      private

      def name = self.class::NAME

      def parse(arguments)
        require "optparse"
        parser.parse(arguments)
      rescue OptionParser::ParseError => e
        raise UsageError, "#{e.reason}: #{CLI.option_in(e.args.first)}"
      end

      def parser
        OptionParser.new do |parser|
          parser.banner = "Usage: penstock #{name} #{self.class::USAGE}"
          parser.separator "\n#{self.class::ABOUT}\n"
          define(parser)
          parser.on("-h", "--help") do
            @out.puts parser
            @helped = true
          end
        end
      end

      def define_timeout(parser, about)
        parser.on("--timeout SECONDS", Float, about) do |seconds|
          unless seconds.between?(0.001, LONGEST_TIMEOUT)
            raise UsageError, "--timeout must be a number of seconds above 0, at most #{LONGEST_TIMEOUT}"
          end

          @timeout = seconds
        end
      end

      # Loads a file of the program. Its errors are shown with the lines of the program, and without Penstock's.
      # @raise [UsageError] if Penstock has rejected a setting or an option that the file has
      # @raise [Failure] if the file raises something else
      # @raise [LoadError]
      def loading(file)
        yield
      rescue LoadError
        raise
      rescue StandardError, ScriptError => e
        lines = program_lines(e)
        raise UsageError, [lines.first.to_s[/\A.+?:\d+/], Text.message(e)].compact.join(": ") if rejected?(e)

        raise Failure, ["#{Text.printable(file)} cannot be loaded: #{text_of(e)}", *lines.map { |line| "    #{line}" }].join("\n")
      end

      def rejected?(error)
        kinds = [ConfigurationError, Penstock::UsageError, ArgumentError]
        kinds.any? { |kind| error.is_a?(kind) } && error.backtrace.first.to_s.start_with?(OWN)
      end

      # With the corrections that Ruby suggests.
      def text_of(error)
        error.respond_to?(:detailed_message) ? error.detailed_message(highlight: false) : "#{error.message} (#{error.class})"
      end

      def program_lines(error)
        error.backtrace.to_a.take_while { |line| !line.start_with?(__dir__) }
             .reject { |line| line.start_with?(OWN, "<internal:") }.map { |line| line.delete_prefix("#{Dir.pwd}/") }
      end

      # @raise [UsageError]
      def misused(problem) = raise(UsageError, "#{name} #{problem}; see penstock #{name} --help")
    end
  end
end

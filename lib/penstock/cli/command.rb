# frozen_string_literal: true

module Penstock
  module CLI
    # A command of the executable. A subclass has NAME, USAGE, ABOUT, `define(parser)` with its options, and `perform(words)`,
    # which gets the other arguments and returns the exit status.
    # @api private
    class Command
      LONGEST_TIMEOUT = 3_600 # seconds
      private_constant :LONGEST_TIMEOUT

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

      # @raise [UsageError]
      def misused(problem) = raise(UsageError, "#{name} #{problem}; see penstock #{name} --help")
    end
  end
end

# frozen_string_literal: true

require "did_you_mean"
require "optparse"
require_relative "version"

module Penstock
  # The `penstock` executable: finds the command, and makes an exit status of what it says.
  # @api private
  module CLI
    # What somebody typed cannot be meant.
    class UsageError < StandardError; end

    USAGE = 2
    INTERRUPTED = 130 # as shells have it: 128 and the signal's number

    # Commands by name: the file in cli/, which is loaded when the command is wanted, and what it does.
    COMMANDS = {
      "doctor" => "looks at Ruby, librdkafka, this machine and a cluster, and says what is wrong"
    }.freeze

    # @param arguments [Array<String>]
    # @return [Integer] the exit status: 0 fine, 1 not, 2 when it could not be understood
    def self.start(arguments, out: $stdout, err: $stderr)
      dispatch(arguments, out, err).tap { out.flush }
    rescue UsageError, OptionParser::ParseError => e
      err.puts "penstock: #{e.message}"
      USAGE
    rescue Interrupt
      INTERRUPTED
    rescue Errno::EPIPE
      1 # who was reading, such as `head`, has seen enough
    end

    # @return [Integer]
    def self.dispatch(arguments, out, err)
      first, *rest = arguments
      case first
      when nil then help(err, USAGE)
      when "-h", "--help" then help(out, 0)
      when "-v", "--version", "version" then version(out)
      when "help" then rest.empty? ? help(out, 0) : run(rest.first, ["--help"], out)
      else run(first, rest, out)
      end
    end

    # @return [Integer]
    def self.run(name, arguments, out)
      raise UsageError, "there is no option #{name}; see penstock --help" if name.start_with?("-")
      raise UsageError, unknown(name) unless COMMANDS.key?(name)

      require_relative "cli/#{name}"
      const_get(name.capitalize).new(out).run(arguments)
    end

    # @return [String]
    def self.unknown(name)
      nearest = DidYouMean::SpellChecker.new(dictionary: COMMANDS.keys).correct(name).first
      hint = nearest ? "did you mean #{nearest}?" : "see penstock --help"
      "there is no command #{name}; #{hint}"
    end

    # @return [Integer] the status
    def self.help(io, status)
      io.puts "Usage: penstock COMMAND [OPTIONS]", "", "Commands:"
      COMMANDS.each { |name, summary| io.puts format("  %-10s %s", name, summary) }
      io.puts "", "penstock COMMAND --help tells more; penstock --version says which Penstock this is."
      status
    end

    # @return [Integer]
    def self.version(out)
      out.puts "penstock #{VERSION}"
      0
    end
    private_class_method :dispatch, :run, :unknown, :help, :version
  end
end

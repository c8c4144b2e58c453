# frozen_string_literal: true

require_relative "version"

module Penstock
  # The `penstock` executable: runs the command, and returns its exit status. Errors about its usage repeat only names of options:
  # any other argument may be a password.
  # @api private
  module CLI
    # The command line is invalid.
    class UsageError < StandardError; end
    # The command could not do what it was asked for.
    class Failure < StandardError; end

    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130 # as shells have it: 128 and the signal's number

    # Commands by name: the file in cli/, which is loaded when the command is wanted, and what it does.
    COMMANDS = {
      "server" => "runs an application",
      "probe" => "asks a running application whether it is alive, ready or started",
      "routes" => "prints the groups, topics and options of an application",
      "topics" => "compares declared topics with a cluster, and makes them so",
      "dead-letters" => "lists dead letters, shows them, and sends them again",
      "doctor" => "checks Ruby, librdkafka, this machine and a cluster, and reports problems"
    }.freeze

    # @param arguments [Array<String>]
    # @return [Integer] the exit status: 0 fine, or the reader of `out` has closed it early; 1 not; 2 when it could not
    #   be understood; others are the command's own
    def self.start(arguments, out: $stdout, err: $stderr)
      dispatch(utf8(arguments), out, err).tap { out.flush }
    rescue UsageError => e
      err.puts "penstock: #{e.message}"
      USAGE
    rescue Failure => e
      err.puts "penstock: #{e.message}"
      FAILED
    rescue Interrupt
      INTERRUPTED
    rescue Errno::EPIPE
      0 # the reader, such as `head`, has seen enough
    end

    # In a locale without UTF-8, too.
    # @return [Array<String>]
    def self.utf8(arguments)
      arguments.map.with_index(1) do |argument, number|
        text = argument.dup.force_encoding(Encoding::UTF_8)
        text.valid_encoding? ? text : raise(UsageError, "argument #{number} is not valid UTF-8")
      end
    end

    # @return [String] the name of the option: of "-Xname=value" only "-X", as nothing says where the name ends
    def self.option_in(argument)
      name = argument.to_s[/\A(?:--[\w-]+|-\w)/] # M:usage_error_repeats_no_value
      name || "an option without a name"
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
      raise UsageError, "unknown option #{option_in(name)}; see penstock --help" if name.start_with?("-")
      raise UsageError, unknown(name) unless COMMANDS.key?(name)

      require_relative "cli/#{name.tr("-", "_")}"
      const_get(name.split("-").map(&:capitalize).join).new(out).run(arguments)
    end

    # @return [String]
    def self.unknown(name)
      require "did_you_mean"
      nearest = DidYouMean::SpellChecker.new(dictionary: COMMANDS.keys).correct(name).first
      "unknown command; #{nearest ? "did you mean #{nearest}?" : "see penstock --help"}"
    end

    # @return [Integer] the status
    def self.help(io, status)
      io.puts "Usage: penstock COMMAND [OPTIONS]", "", "Commands:"
      COMMANDS.each { |name, summary| io.puts format("  %-13s %s", name, summary) }
      io.puts "", "penstock COMMAND --help describes a command; penstock --version prints the version."
      status
    end

    # @return [Integer]
    def self.version(out)
      out.puts "penstock #{VERSION}"
      0
    end
    private_class_method :utf8, :dispatch, :run, :unknown, :help, :version
  end
end

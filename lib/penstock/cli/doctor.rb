# frozen_string_literal: true

require "json"
require_relative "kafka_options"
require_relative "../config/bootstrap_servers"
require_relative "../doctor"

module Penstock
  module CLI
    # `penstock doctor`
    # @api private
    class Doctor
      def initialize(out)
        @out = out
        @kafka = KafkaOptions.new
        @json = false
        @timeout = 5.0
      end

      # @param arguments [Array<String>]
      # @return [Integer] 0: nothing is wrong
      def run(arguments)
        rest = parser.parse(arguments)
        return 0 if @helped
        raise UsageError, "doctor accepts only options; see penstock doctor --help" unless rest.empty?

        check_usage
        report = Penstock::Doctor.examine(servers: @kafka.servers, settings: @kafka.settings, timeout: @timeout)
        @out.puts @json ? JSON.pretty_generate(report.to_h) : report.to_s
        report.fine? ? 0 : 1
      end

      private

      def check_usage
        raise UsageError, "--timeout must be a number of seconds above 0" unless @timeout.positive?

        @kafka.servers.each.with_index(1) do |server, number|
          problem = BootstrapServers.problem_of(server) or next
          raise UsageError, "--bootstrap: broker #{number} #{problem}"
        end
      end

      def parser
        OptionParser.new do |parser|
          parser.banner = "Usage: penstock doctor [OPTIONS]"
          parser.separator <<~TEXT

            Checks Ruby, librdkafka, this machine, and other libraries of the process and the bundle. With
            a cluster, it also connects to its brokers step by step. The exit status is 0 when there is no
            problem, 1 otherwise, 2 for wrong usage.

          TEXT
          @kafka.define(parser)
          parser.on("--timeout SECONDS", Float, "for each step of a connection (default 5)") do |seconds|
            @timeout = seconds
          end
          parser.on("-r", "--require FILE", "load FILE first, like Ruby's -r, to check what it loads") do |file|
            load_file(file)
          end
          parser.on("--json", "print JSON, for programs") { @json = true }
          parser.on("-h", "--help") do
            @out.puts parser
            @helped = true
          end
        end
      end

      def load_file(file)
        require File.exist?(file) ? File.expand_path(file) : file
      rescue LoadError => e
        missing = e.path && e.path != file ? "#{e.path} that it requires" : "it"
        raise UsageError, "--require: #{missing} cannot be loaded"
      end
    end
  end
end

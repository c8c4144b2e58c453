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
        raise UsageError, "doctor takes options only; see penstock doctor --help" unless rest.empty?

        check_usage
        report = Penstock::Doctor.examine(servers: @kafka.servers, settings: @kafka.settings, timeout: @timeout)
        @out.puts @json ? JSON.pretty_generate(report.to_h) : report.to_s
        report.fine? ? 0 : 1
      end

      private

      def check_usage
        raise UsageError, "--timeout takes a number of seconds above 0" unless @timeout.positive?

        @kafka.servers.each.with_index(1) do |server, number|
          problem = BootstrapServers.problem_of(server) or next
          raise UsageError, "--bootstrap: broker #{number} #{problem}"
        end
      end

      def parser
        OptionParser.new do |parser|
          parser.banner = "Usage: penstock doctor [OPTIONS]"
          parser.separator <<~TEXT

            Looks at Ruby, librdkafka, this machine, and what else is in the process and the bundle; with
            a cluster, goes to its brokers step by step. The exit status is 0 when nothing is wrong,
            1 otherwise, 2 for wrong usage.

          TEXT
          @kafka.define(parser)
          parser.on("--timeout SECONDS", Float, "for each step on the way to a broker (default 5)") do |seconds|
            @timeout = seconds
          end
          parser.on("-r", "--require FILE", "load it first, as Ruby's -r does: what it loads is looked at") do |file|
            load_file(file)
          end
          parser.on("--json", "for programs") { @json = true }
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

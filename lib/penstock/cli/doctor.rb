# frozen_string_literal: true

require "json"
require_relative "command"
require_relative "kafka_options"
require_relative "../config/bootstrap_servers"
require_relative "../doctor"

module Penstock
  module CLI
    # `penstock doctor`
    # @api private
    class Doctor < Command
      NAME = "doctor"
      USAGE = "[OPTIONS]"
      ABOUT = <<~TEXT
        Checks Ruby, librdkafka, this machine, and other libraries of the process and the bundle. With
        a cluster, it also connects to its brokers step by step. The exit status is 0 when there is no
        problem, 1 otherwise, 2 for wrong usage.
      TEXT

      def initialize(out)
        super
        @kafka = KafkaOptions.new
        @json = false
        @timeout = 5.0
      end

      private

      def define(parser)
        @kafka.define(parser)
        define_timeout(parser, "for each step of a connection (default 5)")
        parser.on("-r", "--require FILE", "load FILE first, like Ruby's -r, to check what it loads") { |file| load_file(file) }
        parser.on("--json", "print JSON, for programs") { @json = true }
      end

      def perform(words)
        misused("accepts only options") unless words.empty?
        check_servers
        report = Penstock::Doctor.examine(servers: @kafka.servers, settings: @kafka.settings, timeout: @timeout)
        @out.puts @json ? JSON.pretty_generate(report.to_h) : report.to_s
        report.fine? ? 0 : 1
      end

      def check_servers
        @kafka.servers.each.with_index(1) do |server, number|
          problem = BootstrapServers.problem_of(server) or next
          raise UsageError, "--bootstrap: broker #{number} #{problem}"
        end
      end

      def load_file(file)
        loading(file) { require File.exist?(file) ? File.expand_path(file) : file }
      rescue LoadError => e
        missing = e.path && e.path != file ? "#{e.path} that it requires" : "it"
        raise UsageError, "--require: #{missing} cannot be loaded"
      end
    end
  end
end

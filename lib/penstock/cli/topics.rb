# frozen_string_literal: true

require "json"
require_relative "app_command"
require_relative "kafka_options"
require_relative "../config/bootstrap_servers"

module Penstock
  module CLI
    # `penstock topics`
    # @api private
    class Topics < AppCommand
      NAME = "topics"
      USAGE = "plan|apply [FILE] [OPTIONS]"
      ACTIONS = %w[plan apply].freeze
      RUBY = ".rb"
      # The exit status if topics differ from what is declared, or did before `apply`.
      CHANGES = 4
      ABOUT = <<~TEXT
        plan compares declared topics with a cluster, and prints what apply would change. apply creates topics,
        adds partitions, and sets and unsets settings. It deletes nothing, and may run any number of times.

        FILE (default config/penstock.rb) is a Ruby file with an application whose block declares the topics, or
        a YAML file:

            orders:
              partitions: 12
              replication_factor: 3
              config:
                retention.ms: 604800000

        The exit status is 0 if there is nothing to do, 4 if there are changes (apply: it has made them), 1 if
        something failed or cannot be done, 2 for wrong usage.
      TEXT
      private_constant :ACTIONS, :RUBY, :CHANGES

      def initialize(out)
        super
        @kafka = KafkaOptions.new
        @timeout = nil
        @skip_impossible = @json = false
      end

      private

      def define(parser)
        parser.on("-r", "--require FILE", "the same as FILE, as for the other commands") { |file| @file = file }
        @kafka.define(parser)
        define_timeout(parser, "for all of it (default 30)")
        parser.on("--skip-impossible", "apply: do the rest if something cannot be done") { @skip_impossible = true }
        parser.on("--json", "print JSON, for programs") { @json = true }
      end

      def perform(words)
        action, file, *more = words
        misused("requires plan or apply") unless ACTIONS.include?(action)
        misused("accepts one file") unless more.empty?

        @file = file if file
        catalog, kafka = declared
        with_admin(kafka) { |admin| action == "plan" ? plan(admin, catalog) : apply(admin, catalog) }
      end

      # @return [Array(Admin::TopicCatalog, Hash)] and the settings for librdkafka
      def declared
        given = { log_level: 0, **@kafka.settings }
        given[:"bootstrap.servers"] = @kafka.servers.join(",") unless @kafka.servers.empty?
        return [catalog_of_file, given] unless File.extname(@file) == RUBY

        made = app
        raise UsageError, "the application declares no topics: call app.topics { |declare| ... }" if made.topics.none?

        [made.topics, { **made.__send__(:kafka), **given }]
      end

      def catalog_of_file
        raise UsageError, "there is no file #{Text.printable(@file)}" unless File.file?(@file)

        Admin::TopicCatalog.load_file(@file)
      rescue ArgumentError, SystemCallError => e
        raise UsageError, Text.printable(e.message)
      end

      def with_admin(kafka)
        raise UsageError, "no cluster is named: use --bootstrap" if kafka[:"bootstrap.servers"].to_s.empty?

        admin = new_admin(kafka)
        yield admin
      rescue Penstock::Error => e
        raise Failure, e.message
      ensure
        admin&.close(timeout: 1)
      end

      def new_admin(kafka)
        Admin.new { |config| config.kafka = kafka }
      rescue ConfigurationError => e
        raise UsageError, e.message
      end

      def plan(admin, catalog)
        plan = admin.plan(catalog, timeout: @timeout)
        @out.puts @json ? JSON.generate(plan) : plan.to_s
        return 1 if plan.impossible.any?

        plan.empty? ? 0 : CHANGES
      end

      def apply(admin, catalog)
        impossible = @skip_impossible ? admin.plan(catalog, timeout: @timeout).impossible : []
        results = admin.apply(catalog, skip_impossible: @skip_impossible, timeout: @timeout)
        @out.puts @json ? JSON.generate(report(results, impossible)) : lines(results, impossible)
        return 1 unless results.ok? && impossible.empty?

        results.empty? ? 0 : CHANGES
      end

      def report(results, impossible)
        { changes: results.ok.values.flatten(1).map(&:to_h), errors: results.errors.transform_values(&:message),
          impossible: impossible.map(&:to_h) }
      end

      def lines(results, impossible)
        all = [*results.ok.values.flatten(1).map(&:to_s), *impossible.map { |change| "IMPOSSIBLE #{change}" },
               *results.errors.map { |topic, error| "FAILED #{topic}: #{error.message}" }]
        all.empty? ? "nothing to change" : all
      end
    end
  end
end

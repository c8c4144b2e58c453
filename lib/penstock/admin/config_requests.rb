# frozen_string_literal: true

module Penstock
  class Admin
    # What the methods of {ConfigCalls} do. Part of {Internals}.
    # @api private
    module ConfigRequests
      # See {Admin#configs}.
      def configs(*more, topics: [], brokers: [], groups: [], timeout: nil, **wrong)
        Keywords.check("configs(topics: [\"events\"])", %i[topics brokers groups timeout], more, wrong)
        resources = ConfigChanges.resources(topics, brokers, groups)
        require_group_configs if groups.any?
        described = read_configs(resources, deadline_of(timeout))
        results(described.map { |resource, answer| [resource, answer.is_a?(Error) ? answer : answer.to_h { |e| [e.name, e] }] })
      end

      # See {Admin#topic_config}.
      def topic_config(name, *more, timeout: nil, **wrong)
        Keywords.check("topic_config(\"events\")", %i[timeout], more, wrong)
        configs(topics: [name], timeout:).values.first
      end

      # See {Admin#broker_config}.
      def broker_config(id, *more, timeout: nil, **wrong)
        Keywords.check("broker_config(1)", %i[timeout], more, wrong)
        configs(brokers: [id], timeout:).values.first
      end

      # See {Admin#group_config}.
      def group_config(name, *more, timeout: nil, **wrong)
        Keywords.check("group_config(\"billing\")", %i[timeout], more, wrong)
        configs(groups: [name], timeout:).values.first
      end

      # See {Admin#alter_configs}.
      def alter_configs(changes, *more, validate_only: false, timeout: nil, **wrong)
        form = "alter_configs({ topics: { \"events\" => { \"retention.ms\" => 1 } } })"
        Keywords.check(form, %i[validate_only timeout], more, wrong)
        changes = ConfigChanges.of(changes)
        types = changes.keys.map(&:first)
        require_group_configs if types.include?(:group)
        require_support(:incremental_alter_configs, "2.2.0", "change settings of brokers") if types.include?(:broker)
        answers = write_configs(changes, deadline_of(timeout), validate_only:)
        results(answers.map { |resource, error| [resource, error ? without_secrets(error, changes[resource]) : true] })
      end

      private

      # librdkafka's numbers.
      SOURCES = {
        0 => :unknown, 1 => :topic, 2 => :dynamic_broker, 3 => :dynamic_default_broker, 4 => :static_broker, 5 => :default,
        6 => :broker_logger, 7 => :client_metrics, 8 => :group
      }.freeze
      private_constant :SOURCES

      def require_group_configs = require_support(:describe_group_configs, "2.10.0", "read or change settings of groups")

      # @return [Hash{Array => Array<ConfigEntry>, Error}]
      def read_configs(resources, deadline)
        answers = in_requests(resources, deadline) do |rows, brokers|
          sent = options(deadline)
          brokers ? @client.describe_broker_configs(rows, sent) : @client.describe_configs(rows, sent)
        end
        answers.transform_values { |error, settings| error || settings.map { |setting| entry_of(*setting) } }
      end

      # @return [Hash{Array => nil, Error}]
      def write_configs(changes, deadline, validate_only:)
        return merge_configs(changes, deadline, validate_only:) unless @client.respond_to?(:incremental_alter_configs)

        answers = in_requests(changes.keys, deadline) do |rows, brokers, resources|
          rows = with_changes(rows, changes, resources)
          sent = options(deadline, validate_only:)
          brokers ? @client.incremental_alter_broker_configs(rows, sent) : @client.incremental_alter_configs(rows, sent)
        end
        answers.transform_values(&:first)
      end

      # @return [Hash{Array => nil, Error}]
      def merge_configs(changes, deadline, validate_only:)
        merged = read_configs(changes.keys, deadline).to_h do |resource, entries|
          [resource, entries.is_a?(Error) ? entries : ConfigMerge.merge(entries, changes[resource])]
        rescue ConfigMerge::Impossible => e
          [resource, merge_impossible(e.message, resource)]
        end
        possible = merged.reject { |_, settings| settings.is_a?(Error) }
        answers = in_requests(possible.keys, deadline) do |rows, _, resources|
          @client.replace_configs(with_changes(rows, possible, resources), options(deadline, validate_only:))
        end
        merged.to_h { |resource, error| [resource, answers.key?(resource) ? answers[resource].first : error] }
      end

      def with_changes(rows, changes, resources) = rows.zip(resources).map { |row, resource| [*row, changes[resource]] }

      def merge_impossible(reason, resource)
        text = "librdkafka #{Penstock.librdkafka_version} can only replace all settings of a topic, which would lose some " \
               "(#{reason}): changes of single ones require 2.2.0 or newer"
        ErrorFactory.build(UnsupportedError, text, admin_id: id, topic: resource.last)
      end

      # Asks for topics and groups first. So a failure of that whole request, which is raised, leaves the brokers as they were.
      # @yieldparam rows [Array] for the native client
      # @yieldparam brokers [Boolean] whether they are brokers, each with a request and an answer of its own
      # @yieldparam resources [Array] in the same order
      # @return [Hash{Array => Array}] for each resource a row of its answer, which begins with an error or nil
      def in_requests(resources, deadline)
        brokers, others = resources.partition { |type,| type == :broker }
        found = {}
        found.update(others.zip(only(yield(ConfigChanges.rows(others), false, others))).to_h) if others.any?
        absent = absent_brokers(brokers, deadline)
        brokers -= absent.keys
        if brokers.any?
          answers = yield(ConfigChanges.rows(brokers), true, brokers)
          found.update(brokers.zip(answers.map { |answer| answer.is_a?(Error) ? [answer] : answer.first }).to_h)
        end
        resources.to_h { |resource| [resource, absent[resource] || found[resource] || [unanswered]] }
      end

      # librdkafka would wait for them until the timeout.
      # @param brokers [Array<Array(:broker, Integer)>]
      # @return [Hash{Array => Array(Error)}] of those that do not exist
      def absent_brokers(brokers, deadline)
        return {} if brokers.empty?

        *, rows = @client.cluster_of_metadata(options(deadline))
        present = rows.map(&:first)
        brokers.reject { |_, number| present.include?(number) }.to_h { |broker| [broker, [absent_broker(broker.last)]] }
      rescue AdminError => e
        brokers.to_h { |broker| [broker, [e]] }
      end

      def absent_broker(number)
        ErrorFactory.build(AdminError, "the cluster has no broker #{number}, or it is down",
                           code: :broker_not_available, number: 8, name: "BROKER_NOT_AVAILABLE", admin_id: id)
      end

      def entry_of(name, value, source, read_only, sensitive, synonyms)
        others = synonyms.map { |other, its, from| ConfigSynonym.new(name: other, value: its, source: source_of(from)) }
        ConfigEntry.new(name:, value:, source: source_of(source), read_only:, sensitive:, synonyms: others)
      end

      def source_of(number) = SOURCES.fetch(number, :unknown)

      # @return [Error]
      def without_secrets(error, changes)
        return error unless error.number.positive? && changes.any? { |_, _, value| value.is_a?(Secret) }

        text = "the brokers rejected the changes (#{error.code}); their reason is not shown, because one of the values is secret"
        ErrorFactory.build(error.class, text, **error.deconstruct_keys(nil))
      end
    end
  end
end

# frozen_string_literal: true

module Penstock
  class Admin
    # What the methods of {PlanCalls} do. Part of {Internals}.
    # @api private
    module PlanRequests
      # What another client's change at the same time causes: the plan is made anew then.
      RACES = %i[topic_already_exists invalid_partitions unknown_topic_or_part].freeze
      ROUNDS = 10
      # Seconds between the first two rounds, then twice as long each time: brokers learn later than the controller what there is.
      FIRST_PAUSE = 0.05
      LONGEST_PAUSE = 1
      private_constant :RACES, :ROUNDS, :FIRST_PAUSE, :LONGEST_PAUSE

      # See {Admin#plan}.
      def plan(catalog, *more, timeout: nil, **wrong)
        Keywords.check("plan(catalog)", %i[timeout], more, wrong)
        check_catalog(catalog)
        plan_of(catalog, deadline_of(timeout))
      end

      # See {Admin#apply}.
      def apply(catalog, *more, skip_impossible: false, timeout: nil, **wrong)
        Keywords.check("apply(catalog)", %i[skip_impossible timeout], more, wrong)
        check_catalog(catalog)
        deadline = deadline_of(timeout)
        plan = plan_of(catalog, deadline)
        raise_impossible(plan) unless skip_impossible || plan.impossible.empty?
        done = {}
        errors = carry_out(catalog, plan, done, deadline)
        Results.new(done.merge(errors))
      end

      private

      def check_catalog(catalog)
        return if catalog.is_a?(TopicCatalog)

        raise ArgumentError, "a catalog must be a Penstock::Admin::TopicCatalog, not #{catalog.class}"
      end

      def raise_impossible(plan)
        text = "the declared topics differ in what cannot be changed: #{plan.impossible.join("; ")}"
        raise ErrorFactory.build(AdminError, text, "Nothing was changed.", code: :impossible, admin_id: id)
      end

      def plan_of(catalog, deadline)
        return TopicPlan.new([]) if catalog.none?

        found = topics(*catalog.names, timeout: seconds_left(deadline))
        existing = existing_topics(found)
        entries = existing.empty? ? {} : configs(topics: existing.keys, timeout: seconds_left(deadline))
        TopicPlan.new(catalog.flat_map do |declaration|
          name = declaration.name
          settings = existing.key?(name) ? entries[[:topic, name]] : {}
          TopicPlan.const_get(:Comparison).new(declaration, existing[name], settings).call
        end)
      end

      # @return [Hash{String => Topic}]
      def existing_topics(found)
        error = found.errors.values.find { |problem| problem.code != :unknown_topic_or_part }
        error ? raise(error) : found.ok
      end

      # @param done [Hash{String => Array<TopicPlan::Change>}] gets what was changed
      # @return [Hash{String => Error}] what could not be changed
      def carry_out(catalog, plan, done, deadline)
        ROUNDS.times do |round|
          return {} if plan.changes.empty?

          errors = change_topics(catalog, plan.changes, done, deadline)
          return errors if round == ROUNDS - 1 || errors.none? { |_, error| RACES.include?(error.code) }

          sleep([FIRST_PAUSE * (2**round), LONGEST_PAUSE, deadline.left].min)
          plan = plan_of(catalog, deadline)
        end
      end

      def change_topics(catalog, changes, done, deadline)
        changes.group_by { |change| change.kind == :unset ? :set : change.kind }.each_with_object({}) do |(kind, some), errors|
          failed = __send__(:"run_#{kind}", catalog, some, seconds_left(deadline)).errors
          some.each { |change| (done[change.topic] ||= []) << change unless failed.key?(change.topic) }
          errors.update(failed)
        end
      end

      def run_create(catalog, changes, timeout)
        create_topics(changes.to_h do |change|
          declared = catalog[change.topic]
          [change.topic, { partitions: declared.partitions, replication_factor: declared.replication_factor,
                           config: declared.config.compact }]
        end, timeout:)
      end

      def run_add_partitions(_catalog, changes, timeout)
        create_partitions(changes.to_h { |change| [change.topic, change.to] }, timeout:)
      end

      def run_set(_catalog, changes, timeout)
        wanted = changes.group_by(&:topic).transform_values { |some| some.to_h { |change| [change.setting, change.to] } }
        altered = alter_configs({ topics: wanted }, timeout:)
        Results.new(altered.to_h.transform_keys(&:last))
      end
    end
  end
end

# frozen_string_literal: true

module Penstock
  class Admin
    # What the methods of {GroupOffsetCalls} do. Part of {Internals}.
    # @api private
    module GroupOffsetRequests
      # See {Admin#group_offsets}.
      def group_offsets(groups, *more, stable: false, timeout: nil, **wrong)
        Keywords.check("group_offsets({ \"billing\" => { \"orders\" => [0, 1] } })", %i[stable timeout], more, wrong)
        rows = group_rows(groups)
        answers = committed_of(rows, deadline_of(timeout), stable:)
        results(answers.map { |group, places| [group, offsets_or_error(places)] })
      end

      # See {Admin#alter_group_offsets}.
      def alter_group_offsets(group, offsets, *more, timeout: nil, **wrong)
        Keywords.check("alter_group_offsets(\"billing\", { \"orders\" => { 0 => 10 } })", %i[timeout], more, wrong)
        group = group_id(group)
        places = PartitionLists.committed(offsets)
        deadline = deadline_of(timeout)
        done(group, places, places.empty? ? [] : change_offsets(:alter_group_offsets, group, places, deadline))
      end

      # See {Admin#reset_group_offsets}.
      def reset_group_offsets(group, *more, to:, topics: nil, dry_run: false, timeout: nil, **wrong)
        Keywords.check("reset_group_offsets(\"billing\", to: :beginning)", %i[to topics dry_run timeout], more, wrong)
        group = group_id(group)
        check_target(to)
        wanted = topics.is_a?(Hash) ? PartitionLists.partitions(topics) : nil
        topics = topic_names(Array(topics)) unless wanted || topics.nil?
        deadline = deadline_of(timeout)
        changes = reset_plan(group, committed_for_reset(group, wanted, topics, deadline), to, deadline)
        PartitionResults.new(dry_run ? changes : apply_reset(group, changes, deadline))
      end

      # See {Admin#delete_group_offsets}.
      def delete_group_offsets(group, partitions, *more, timeout: nil, **wrong)
        Keywords.check("delete_group_offsets(\"billing\", { \"orders\" => [0] })", %i[timeout], more, wrong)
        group = group_id(group)
        places = PartitionLists.partitions(partitions)
        deadline = deadline_of(timeout)
        done(group, places, places.empty? ? [] : change_offsets(:delete_group_offsets, group, places, deadline))
      end

      private

      # @param method [Symbol] of the native client
      # @return [Array] a place with an error or nil for each
      def change_offsets(method, group, places, deadline)
        only(ask_coordinators([[group, places]], deadline) { |rows, time| @client.public_send(method, rows, options(time)) })
      end

      # @return [Array<Array(String, Array)>]
      def group_rows(groups)
        groups.is_a?(Hash) or raise ArgumentError, "expected a Hash of groups, not #{groups.class}"
        ids = names_of("the id of a group", groups.keys)
        ids.zip(groups.values).map do |group, partitions|
          places = partitions.nil? ? nil : PartitionLists.partitions(partitions)
          raise ArgumentError, "group #{group.inspect}: no partitions are given; nil stands for all" if places && places.empty?

          [group, places]
        end
      end

      # @return [Hash{String => Array, Error}] places by group
      def committed_of(rows, deadline, stable: false)
        return {} if rows.empty?

        answers = ask_coordinators(rows, deadline) { |asked, attempt| group_offsets_now(asked, attempt, deadline, stable:) }
        @readers.forget_groups if answers.first.is_a?(Error) && answers.first.code == :group_authorization_failed
        found = rows.zip(answers).to_h { |(group, wanted), answer| [group, wanted ? places_of(group, wanted, answer) : answer] }
        stable ? found.merge(stable_offsets(rows, found, deadline)) : found
      end

      # Another thread, whose group may not be seen, may close the client: see {Readers#forget_groups}.
      def group_offsets_now(rows, attempt, deadline, stable:)
        @readers.groups(rows.first.first).list_group_offsets(rows, options(attempt, stable:))
      rescue AdminClosedError
        raise if @readers.closed? || deadline.left.zero?

        retry
      end

      # @param wanted [Array] places
      # @param answer [Array, Error]
      # @return [Array, Error] those places, with an error where the answer lacks one
      def places_of(group, wanted, answer)
        return answer if answer.is_a?(Error)

        found = by_partition(answer, &:itself)
        wanted.map { |place| found.fetch(key = place.first(2)) { [*key, nil, nil, nil, unanswered_place(*key, group:)] } }
      end

      OBSERVES_STABLE = [2, 14].freeze
      private_constant :OBSERVES_STABLE

      # Older versions of librdkafka, such as 2.0.2, ignore `stable` in a request for all partitions.
      def stable_offsets(rows, found, deadline)
        return {} if (Penstock.librdkafka_version.split(".").map(&:to_i) <=> OBSERVES_STABLE) >= 0

        again = rows.filter_map do |group, wanted|
          next if wanted || found[group].is_a?(Error) || found[group].empty?

          [group, found[group].map { |place| [*place.first(2), PartitionLists::INVALID_OFFSET] }]
        end
        committed_of(again, deadline, stable: true)
      end

      def offsets_or_error(places)
        return places if places.is_a?(Error)

        failed = places.filter_map(&:last).first
        failed || nested(places) { |place| offset_of(place) }
      end

      # @return [Offset, nil]
      def offset_of(place)
        _, _, offset, leader_epoch, metadata = place
        Offset.__send__(:received, offset, leader_epoch, metadata) if offset
      end

      # @return [Hash{String => Hash{Integer => Object}}] sorted
      def nested(places)
        places.sort_by { |place| place.first(2) }.each_with_object({}) do |place, found|
          (found[place[0]] ||= {})[place[1]] = yield(place)
        end
      end

      # @param places [Array] what was asked for
      # @param answers [Array, Error] a place with an error or nil for each
      # @return [PartitionResults] true in place of nil
      def done(group, places, answers)
        raise answers if answers.is_a?(Error)

        found = by_partition(answers) { |place| place.last || true }
        keys = places.map { |place| place.first(2) }
        PartitionResults.new(keys.to_h { |key| [key, found.fetch(key) { unanswered_place(*key, group:) }] })
      end

      def by_partition(places) = places.to_h { |place| [place.first(2), yield(place)] }

      def unanswered_place(topic, partition, group: nil) = unanswered(group:, topic:, partition:)

      # ---- reset ----

      def check_target(target)
        return if target?(target)

        hint = Suggestion.hint(target, %i[beginning end]) if target.is_a?(Symbol)
        raise ArgumentError, "to: must be :beginning, :end, a Time, an Integer from 0 or { shift: -100 }, " \
                             "not #{target.inspect}#{hint}"
      end

      def target?(target)
        case target
        when :beginning, :end then true
        when Time then PartitionLists.time(target)
        when Integer then target.between?(0, (2**63) - 1)
        when Hash then target.keys == [:shift] && Seconds.integer?(target[:shift]) && target[:shift].abs < 2**63
        end
      end

      # @return [Hash{Array(String, Integer) => Integer, nil, Error}] by partition
      def committed_for_reset(group, wanted, topics, deadline)
        wanted ||= partitions_of_topics(topics, deadline) if topics
        return {} if wanted == []

        places = committed_of([[group, wanted]], deadline).fetch(group)
        raise places if places.is_a?(Error)
        return by_partition(places) { |place| place.last || place[2] } unless places.empty?

        raise ErrorFactory.build(AdminError, "the group has committed no offsets, and no topics are given", group:, admin_id: id)
      end

      def partitions_of_topics(names, deadline)
        topics_of(describe(names, deadline)).values.flat_map do |topic|
          topic.partitions.map { |partition| [topic.name, partition.id, PartitionLists::INVALID_OFFSET] }
        end
      end

      # @param committed [Hash{Array(String, Integer) => Integer, nil, Error}]
      # @return [Hash{Array(String, Integer) => OffsetChange, Error}]
      def reset_plan(group, committed, target, deadline)
        known = committed.reject { |_, offset| offset.is_a?(Error) }.keys
        beginnings, ends, found = places_for_reset(known, target, deadline)
        committed.to_h do |key, before|
          error = [before, beginnings[key], ends[key], found[key]].find { |place| place.is_a?(Error) }
          error ||= no_offset(group, *key) if target.is_a?(Hash) && before.nil?
          place = error || reset_place(target, before, found[key], beginnings[key], ends[key])
          [key, error || OffsetChange.new(before:, after: place)]
        end
      end

      # Both ends were asked for at once. A partition may have lost messages in between.
      def reset_place(target, before, found, first, last)
        last = [first, last].max if first && last
        case target
        when :beginning then first
        when :end then last
        when Time then found || last
        when Integer then target.clamp(first, last)
        else (before + target[:shift]).clamp(first, last)
        end
      end

      # @return [Array<Hash>] beginnings, ends, and what is at the time
      def places_for_reset(keys, target, deadline)
        return [{}, {}, {}] if keys.empty?

        numbers = [-2, -1, target.is_a?(Time) ? PartitionLists.time(target) : nil]
        numbers[1] = nil if target == :beginning
        numbers[0] = nil if target == :end || target.is_a?(Time)
        rows = numbers.compact.map { |number| keys.map { |topic, partition| [topic, partition, number] } }
        answers = listed_offsets(rows, :read_uncommitted, deadline)
        numbers.map { |number| number ? answers.shift : {} }
      end

      def no_offset(group, topic, partition)
        ErrorFactory.build(AdminError, "the group has committed no offset to shift", group:, topic:, partition:, admin_id: id)
      end

      # @return [Hash{Array(String, Integer) => OffsetChange, Error}]
      def apply_reset(group, changes, deadline)
        places = changes.filter_map { |key, change| [*key, change.after] if change.is_a?(OffsetChange) }
        return changes if places.empty?

        answers = change_offsets(:alter_group_offsets, group, places, deadline)
        set = done(group, places, answers)
        changes.to_h { |key, change| [key, (set.errors.dig(*key) if set.key?(key)) || change] }
      end
    end
  end
end

# frozen_string_literal: true

module Penstock
  class Admin
    # What the methods of {OffsetCalls} do. Part of {Internals}.
    # @api private
    module OffsetRequests
      ISOLATIONS = { read_uncommitted: 0, read_committed: 1 }.freeze
      ELECTIONS = { preferred: 0, unclean: 1 }.freeze
      private_constant :ISOLATIONS, :ELECTIONS

      # See {Admin#offsets}.
      def offsets(places, *more, isolation: :read_uncommitted, timeout: nil, **wrong)
        Keywords.check("offsets({ \"orders\" => { 0 => :end } })", %i[isolation timeout], more, wrong)
        rows = PartitionLists.times(places)
        check_isolation(isolation)
        if rows.any? { |_, _, number| number == PartitionLists::NUMBERS[:max_timestamp] }
          require_support(:list_offsets, "2.3.0", "ask for :max_timestamp")
        end
        PartitionResults.new(offsets_at(rows, isolation, deadline_of(timeout)))
      end

      # See {Admin#delete_records}.
      def delete_records(ends, *more, timeout: nil, **wrong)
        Keywords.check("delete_records({ \"orders\" => { 0 => 500 } })", %i[timeout], more, wrong)
        rows = PartitionLists.ends(ends)
        deadline = deadline_of(timeout)
        found, failed = ends_of_times(rows, deadline).partition { |_, _, offset| offset.is_a?(Integer) }
        answers = failed.to_h { |topic, partition, error| [[topic, partition], error] }
        answers.merge!(records_deleted(found, deadline)) if found.any?
        PartitionResults.new(answers)
      end

      # See {Admin#lag}.
      def lag(*groups, isolation: :read_committed, timeout: nil, **wrong)
        Keywords.check("lag(\"billing\")", %i[isolation timeout], [], wrong)
        groups = names_of("the id of a group", groups)
        check_isolation(isolation)
        deadline = deadline_of(timeout)
        committed = committed_of(groups.map { |group| [group, nil] }, deadline)
        beginnings, ends = bounds(committed.values, isolation, deadline)
        results(committed.map { |group, places| [group, places.is_a?(Error) ? places : lag_of(places, beginnings, ends)] })
      end

      # See {Admin#elect_leaders}.
      def elect_leaders(kind, partitions = nil, *more, timeout: nil, **wrong)
        Keywords.check("elect_leaders(:preferred, { \"orders\" => [0] })", %i[timeout], more, wrong)
        number = number_of("an election", kind, ELECTIONS)
        places = partitions && PartitionLists.partitions(partitions)
        deadline = deadline_of(timeout)
        require_support(:elect_leaders, "2.6.0", "elect leaders")
        return PartitionResults.new({}) if places && places.empty?

        answers = only(@client.elect_leaders([[number, places]], options(deadline, operation: operation(deadline))))
        found = by_partition(answers) { |place| elected(place.last) }
        PartitionResults.new(places ? answered(places, found) : found)
      end

      private

      def number_of(what, name, known)
        known.fetch(name) do
          hint = Suggestion.hint(name, known.keys) if name.is_a?(Symbol)
          raise ArgumentError, "#{what} must be #{known.keys.map(&:inspect).join(" or ")}, not #{name.inspect}#{hint}"
        end
      end

      def check_isolation(isolation) = number_of("an isolation", isolation, ISOLATIONS)

      def elected(error)
        return true if error.nil?

        error.code == :election_not_needed ? false : error
      end

      # librdkafka's errors of a whole request if no partition has a leader.
      NO_LEADERS = %i[unknown_partition noent].freeze
      private_constant :NO_LEADERS

      # While leaders change, for example just after a topic was created. librdkafka then asks for the leaders.
      MOVING = %i[not_leader_for_partition leader_not_available fenced_leader_epoch offset_not_available].freeze
      TRIES = 10
      PAUSE = 0.1 # seconds
      private_constant :MOVING, :TRIES, :PAUSE

      # @param requests [Array<Array>] places with times
      # @return [Array<Hash{Array(String, Integer) => Integer, nil, Error}>] offsets by partition, for each request
      def listed_offsets(requests, isolation, deadline)
        found = offsets_now(requests, isolation, deadline)
        2.upto(TRIES) do
          again = requests.zip(found).map { |places, known| places.select { |place| moving?(known[place.first(2)]) } }
          break if again.all?(&:empty?) || deadline.left < PAUSE

          sleep(PAUSE)
          found = found.zip(offsets_now(again, isolation, deadline)).map { |known, newer| known.merge(newer) }
        end
        found
      end

      def moving?(answer) = answer.is_a?(Error) && MOVING.include?(answer.code)

      def offsets_now(requests, isolation, deadline)
        answers = if @client.respond_to?(:list_offsets)
                    @client.list_offsets(requests.zip, options(deadline, isolation: ISOLATIONS.fetch(isolation)))
                  else
                    reader = isolation == :read_committed ? @client : @readers.uncommitted
                    requests.map { |places| places.empty? ? [] : offsets_for_times(reader, places, deadline) }
                  end
        requests.zip(answers).map do |places, answer|
          found = by_partition(asked(places) { answer }) { |place| place.last || place[2] }
          answered(places, found, nil_for: method(:may_have_none?))
        end
      end

      # Of these, a partition may have no offset: {PartitionLists::NUMBERS}, or a time.
      def may_have_none?(number) = number == PartitionLists::NUMBERS[:max_timestamp] || number >= 0

      # @param places [Array] what was asked for
      # @param found [Hash{Array(String, Integer) => Object}]
      # @param nil_for [#call] whether nil is an answer for a place with this number
      # @return [Hash{Array(String, Integer) => Object}] for each place; an error for one that the answer lacks
      def answered(places, found, nil_for: ->(_) { false })
        places.to_h do |topic, partition, number|
          answer = found[[topic, partition]]
          none = answer.nil? && !(found.key?([topic, partition]) && nil_for.call(number))
          [[topic, partition], none ? unanswered_place(topic, partition) : answer]
        end
      end

      # This older request fails as a whole if one partition does.
      def offsets_for_times(reader, places, deadline)
        reader.offsets_for_times(places, options(deadline))
      rescue AdminError => e
        MOVING.include?(e.code) ? places.map { |place| [*place.first(2), nil, nil, nil, e] } : e
      end

      # An error that concerns the partitions is an answer for each of them.
      # @yieldreturn [Array, AdminError] places with an error or nil for each
      # @return [Array]
      def asked(places)
        answer = yield
        answer.is_a?(Error) ? raise(answer) : answer
      rescue AdminError => e
        raise unless NO_LEADERS.include?(e.code)

        places.map { |topic, partition,| [topic, partition, nil, nil, nil, unknown_partition(topic, partition)] }
      end

      def unknown_partition(topic, partition)
        about = { code: :unknown_topic_or_part, number: 3, name: "UNKNOWN_TOPIC_OR_PART", topic:, partition:, admin_id: id }
        text = "the cluster has no such partition, it has no leader, or this client may not describe the topic"
        ErrorFactory.build(AdminError, text, **about)
      end

      # @return [Hash{Array(String, Integer) => Integer, nil, Error}]
      def offsets_at(rows, isolation, deadline)
        return {} if rows.empty?

        found = listed_offsets([rows], isolation, deadline).first
        late = rows.select { |topic, partition, number| number >= 0 && found[[topic, partition]].nil? }
        return found if late.empty?

        ends = late.map { |topic, partition,| [topic, partition, PartitionLists::NUMBERS[:end]] }
        found.merge(listed_offsets([ends], isolation, deadline).first)
      end

      # @return [Array<Array(String, Integer, Object)>] an offset or an error in place of a Time
      def ends_of_times(rows, deadline)
        times = rows.filter_map { |topic, partition, time| [topic, partition, PartitionLists.time(time)] if time.is_a?(Time) }
        found = offsets_at(times, :read_uncommitted, deadline)
        rows.map { |topic, partition, offset| [topic, partition, found.fetch([topic, partition], offset)] }
      end

      def records_deleted(places, deadline)
        answers = @client.delete_records(places, options(deadline, operation: operation(deadline)))
        answered(places, by_partition(asked(places) { answers.first }) { |place| place.last || place[2] })
      end

      # @return [Array(Hash, Hash)] beginnings and ends of all partitions of the groups
      def bounds(groups, isolation, deadline)
        keys = groups.grep(Array).flatten(1).map { |place| place.first(2) }.uniq
        return [{}, {}] if keys.empty?

        listed_offsets([-2, -1].map { |number| keys.map { |key| [*key, number] } }, isolation, deadline)
      end

      def lag_of(places, beginnings, ends)
        nested(places) do |place|
          offset = place[2] if place.last.nil?
          first, last = [beginnings, ends].map { |known| known[place.first(2)] }
          [last - [offset, first].max, 0].max if [offset, first, last].all?(Integer)
        end
      end
    end
  end
end

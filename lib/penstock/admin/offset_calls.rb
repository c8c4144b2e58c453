# frozen_string_literal: true

module Penstock
  class Admin
    # The methods of {Admin} for partitions: their offsets, lag, records and leaders.
    module OffsetCalls
      ISOLATIONS = { read_uncommitted: 0, read_committed: 1 }.freeze
      ELECTIONS = { preferred: 0, unclean: 1 }.freeze
      private_constant :ISOLATIONS, :ELECTIONS

      # Returns offsets of partitions.
      #
      #     admin.offsets({ "orders" => { 0 => :beginning, 1 => :end, 2 => Time.now - 3600 } })
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request to each leader, and another if a
      # Time is after the last message.
      #
      # Requires the right to describe the topics.
      #
      # @param places [Hash{String => Hash{Integer => Symbol, Time}}] by topic and partition:
      #     - :beginning: the first message
      #     - :end: behind the last message; where the next one will be
      #     - a Time: the first message at this time or later. After the last message it is the :end
      #     - :max_timestamp: the message with the latest time. Requires librdkafka 2.3.0
      # @param isolation [Symbol] :read_uncommitted, or :read_committed: then the :end is before the first message of an open
      #   transaction
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [PartitionResults] an Integer for each partition; nil for :max_timestamp of an empty partition
      # @raise [AdminError] when the whole request failed
      # @raise [UnsupportedError] when librdkafka is too old for :max_timestamp
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload offsets(places, isolation: :read_uncommitted, timeout: nil)
      def offsets(places, *more, isolation: :read_uncommitted, timeout: nil, **wrong)
        Keywords.check("offsets({ \"orders\" => { 0 => :end } })", %i[isolation timeout], more, wrong)
        rows = PartitionLists.times(places)
        check_isolation(isolation)
        if rows.any? { |_, _, number| number == PartitionLists::NUMBERS[:max_timestamp] }
          require_support(:list_offsets, "2.3.0", "ask for :max_timestamp")
        end
        PartitionResults.new(offsets_at(rows, isolation, deadline_of(timeout)))
      end

      # Deletes the records before an offset. Readers then begin at it.
      #
      #     admin.delete_records({ "orders" => { 0 => 500, 1 => :end, 2 => Time.now - 86_400 } })
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request to each leader, and up to two
      # before it for Times.
      #
      # Requires the right to delete from the topics, and to describe them.
      #
      # @param ends [Hash{String => Hash{Integer => Integer, Symbol, Time}}] by topic and partition: an offset; :end: all records;
      #   a Time: all before the first record at this time or later
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [PartitionResults] for each partition the Integer at which it begins now
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still delete the records
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload delete_records(ends, timeout: nil)
      def delete_records(ends, *more, timeout: nil, **wrong)
        Keywords.check("delete_records({ \"orders\" => { 0 => 500 } })", %i[timeout], more, wrong)
        rows = PartitionLists.ends(ends)
        deadline = deadline_of(timeout)
        found, failed = ends_of_times(rows, deadline).partition { |_, _, offset| offset.is_a?(Integer) }
        answers = failed.to_h { |topic, partition, error| [[topic, partition], error] }
        answers.merge!(records_deleted(found, deadline)) if found.any?
        PartitionResults.new(answers)
      end

      # Returns how many messages groups have yet to read: of each partition with a committed offset the distance from it to the
      # end. A partition that begins after the committed offset counts from its beginning.
      #
      #     admin.lag("billing")["billing"]  # { "orders" => { 0 => 12, 1 => 0 } }
      #
      # Kafka's own tool counts as `:read_uncommitted` does. `:read_committed` is what a consumer with the default isolation can
      # read: the messages of an open transaction, and those behind them, do not count. Markers of transactions and compacted
      # messages do count.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. All groups are asked at once, then all leaders: at
      # most four requests one after another. Those about groups are repeated while the coordinator loads the group.
      #
      # Requires the right to describe the groups, and the topics. Topics without it are missing.
      #
      # @param groups [Array<String>]
      # @param isolation [Symbol] :read_committed or :read_uncommitted
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] for each group a Hash{String => Hash{Integer => Integer, nil}} by topic and partition; nil: an offset
      #   could not be found. It is empty for a group without committed offsets
      # @raise [AdminError] when the whole request failed
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload lag(*groups, isolation: :read_committed, timeout: nil)
      def lag(*groups, isolation: :read_committed, timeout: nil, **wrong)
        Keywords.check("lag(\"billing\")", %i[isolation timeout], [], wrong)
        groups = names_of("the id of a group", groups)
        check_isolation(isolation)
        deadline = deadline_of(timeout)
        committed = committed_of(groups.map { |group| [group, nil] }, deadline)
        beginnings, ends = bounds(committed.values, isolation, deadline)
        results(committed.map { |group, places| [group, places.is_a?(Error) ? places : lag_of(places, beginnings, ends)] })
      end

      # Makes brokers elect leaders: for example after a restart, so that each broker leads its share again.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request.
      #
      # Requires the right to alter the cluster, and librdkafka 2.6.0.
      #
      # @param kind [Symbol] :preferred: the first of a partition's replicas, if it is in sync. :unclean: any replica, for a
      #   partition without a leader; what other replicas had more is lost
      # @param partitions [Hash{String => Array<Integer>}, nil] by topic; nil: all partitions that need an election
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [PartitionResults] true for each partition with a new leader; false: it needed none
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still elect leaders
      # @raise [UnsupportedError] when librdkafka is too old
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload elect_leaders(kind, partitions = nil, timeout: nil)
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

      # While leaders change, for example just after a topic was created. librdkafka then asks who leads.
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

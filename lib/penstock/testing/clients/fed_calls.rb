# frozen_string_literal: true

module Penstock
  module Clients
    # The methods of Consumer in C, as a {Fed} client answers them. Places are Arrays of topic, partition, offset, leader epoch.
    # @api private
    module FedCalls
      private

      def call_subscribe(places)
        open
        @topics = places&.map { |name, *| name.start_with?("^") ? Regexp.new(name) : name }
        @away = {}
        left = @assigned.keys.reject { |topic, _| subscribed?(topic) }
        @lock.synchronize { @timeline.unshift(FedGroup::Change.new { give_up(:revoked, left) }) } if left.any?
        rewind_timeline
      end

      def call_assign(places)
        open
        forget(@assigned.keys)
        @topics = nil
        @ledger.assigned
        places.each { |topic, partition, offset| @assigned[[topic, partition]] = start([topic, partition], offset) }
        rewind_timeline
      end

      def call_assignment = open && @assigned.keys.sort.map { |place| [*place, nil, nil] }

      def call_commit(places, _timeout = nil)
        open
        raise_planned(:commit)
        raise failure(:illegal_generation, :commit) if @lost

        commit(places)
      end

      def call_keeps(_places, _epoch) = true
      def call_commit_processed(_places, _epoch, timeout) = call_commit(@ledger.processed, timeout)

      def call_commit_async(places)
        call_commit(places || @ledger.processed)
      rescue Error => e
        line = "[#{@config.id}] #{e.message}"
        @config.logger ? @config.logger.add(2, line, "penstock") : warn("penstock: #{line}")
      end

      def call_committed(places, _timeout)
        open
        raise_planned(:committed)
        places.map { |topic, partition| [topic, partition, @committed[[topic, partition]], nil, @metadata[[topic, partition]]] }
      end

      def call_watermarks(beginnings, ends, _timeout)
        firsts = answer(:watermarks, beginnings) { |place| first_offset(place) }
        [firsts, answer(:watermarks, ends) { |place| next_offset(place) }]
      end

      def call_cached_watermarks(topic, partition)
        open
        [first_offset([topic, partition]), next_offset([topic, partition])]
      end

      # The places have times, in ms, or librdkafka's numbers for the beginning and the end.
      def call_offsets(places, _timeout)
        answer(:offsets_for_times, places) do |place, time|
          case time
          when ConsumerPlaces::OFFSETS[:beginning] then first_offset(place)
          when ConsumerPlaces::OFFSETS[:end] then next_offset(place)
          else @logs.fetch(place, []).find { |message| message.timestamp && message.timestamp >= time }&.offset
          end
        end
      end

      def call_partitions(places, _timeout)
        open
        names = places.map(&:first)
        @logs.keys.select { |topic, _| names.include?(topic) }.sort.map { |place| [*place, nil, nil] }
      end

      def call_seek(places, _timeout)
        open
        raise_planned(:seek)
        places.each do |topic, partition, offset|
          place = assigned([topic, partition], :state)
          @assigned[place] = start(place, offset)
          @ledger.seek(*place, @assigned[place])
          @ends.delete(place)
        end
        rewind_timeline
      end
      alias call_seek_back call_seek

      def call_restart(_places) = []

      def call_rewind(places, epoch, timeout)
        held = places.select { |place| @assigned.key?(place.first(2)) && @ledger.holds(*place.first(3), epoch) }
        call_seek(held, timeout)
        held
      end

      def call_held(places, _epoch) = open && (@lost ? [] : places.select { |place| @assigned.key?(place.first(2)) })
      # There is nothing to compare: partitions begin where the group has committed.
      def call_began_itself(_topic, _partition) = 0
      def call_open_before(_places) = nil

      def call_position(topic, partition) = open && @ledger.position(topic, partition)
      # All offsets have a message.
      def call_passed(_topic, _partition) = nil
      def call_reached(topic, partition) = call_position(topic, partition) || @assigned[[topic, partition]]

      def call_pause(places)
        open
        known, unknown = places.map { |place| place.first(2) }.partition { |place| @assigned.key?(place) }
        known.each { |place| @ledger.pause(*place, true) }
        unknown.each { |place| assigned(place, :unknown_partition) }
      end

      def call_resume(places)
        open
        places.each { |topic, partition, *| @ledger.pause(topic, partition, false) }
        rewind_timeline
      end

      def call_paused = open && @ledger.paused

      def call_mark(message)
        open
        @ledger.mark(message).tap { commit_processed }
      end

      def call_mark_batch(batch)
        open
        marked = batch.map { |message| @ledger.mark(message) }
        commit_processed
        marked.all?
      end

      def call_owns(message) = open && @ledger.owns(message)

      def call_owns_batch(batch) = open && batch.all? { |message| @ledger.owns(message) }

      # Of {Consumer#keep_alive}.
      def call_serve = call_answer || @bell.pop

      # @return [Boolean] whether there was something to answer
      def call_answer
        open
        change = @lock.synchronize do
          await_change(Deadline.new(nil))
          go_back
          begin_step(done(@timeline[@cursor])) if @timeline[@cursor].is_a?(FedGroup::Change)
        end
        run_step(change) if change
        !change.nil?
      end

      # Of {Consumer#assign}.
      def call_settle = (nil while call_answer)

      # Of an application.
      def call_decode_with(deserializer) = @deserializer = deserializer

      # Of an application: messages of one partition. Nothing has to be held back.
      def call_poll_run(max, bytes) = take(max, 0, bytes:).then { |batch| batch unless batch.empty? && batch.ends.empty? }
      def call_hold_always = nil
      def call_end_hold = nil

      def call_wake = @bell << true

      # @return [Array] state, generation, member id
      def call_membership
        open
        @assigned.empty? ? [:joining, nil, nil] : [:stable, 1, "#{@config.id}-fed"]
      end

      def call_epoch = open && @ledger.epoch

      def call_mark_all
        open
        @ledger.finish(0)
      end

      def call_end_within(_timeout) = nil
      def call_poll(timeout) = poll(timeout:)

      def call_not_received = nil
      def call_leave = @left = true
      def call_left = @left

      def call_finish
        @ledger.finish(owner) if @config.mark == :next_poll
      end

      # Of librdkafka there are no events, statistics or counts.
      def call_listen(*) = nil
      def call_news = nil
      def call_statistics = nil
      def call_counts = [0] * ConsumerMetrics.members.size

      def call_set_credentials(_username, _password) = nil

      # Takes no lock, so that it may be called from a signal trap.
      # @return [true]
      def call_close(_timeout_ms)
        commit_processed unless @closed
        @closed = true
      end

      # A static member never does.
      def call_left_group = @config.__send__(:given, "group.instance.id").nil?

      def answer(call, places)
        open
        raise_planned(call)
        places.map { |topic, partition, given| [topic, partition, yield([topic, partition], given), nil] }
      end

      # @return [Array(String, Integer)] the place
      # @raise [ConsumeError] with this code, when the partition is not assigned
      def assigned(place, code)
        return place if @assigned.key?(place)

        topic, partition = place
        raise ErrorFactory.build(ConsumeError, "the partition is not assigned (#{code})", consumer_id: @config.id, code:, topic:,
                                                                                          partition:)
      end

      def raise_planned(call)
        planned = @failures[call].shift
        raise failure(planned, call) if planned
      end

      def failure(error, call)
        return error if error.is_a?(Exception)

        type = call == :commit ? CommitError : ConsumeError
        ErrorFactory.build(type, "the test made #{call} fail (#{error})", code: error, consumer_id: @config.id)
      end
    end
    private_constant :FedCalls
  end
end

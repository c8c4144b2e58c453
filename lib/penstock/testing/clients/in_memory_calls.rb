# frozen_string_literal: true

module Penstock
  module Clients
    # The methods of {Native::ConsumerClient}, as an {InMemoryConsumer} has them. Places are Arrays of topic, partition, offset,
    # leader epoch.
    # @api private
    module InMemoryCalls
      def subscribe(places)
        open
        @topics = places&.map { |name, *| name.start_with?("^") ? Regexp.new(name) : name }
        @away = {}
        left = @assigned.keys.reject { |topic, _| subscribed?(topic) }
        @lock.synchronize { @timeline.unshift(InMemoryGroup::Change.new { give_up(:revoked, left) }) } if left.any?
        rewind_timeline
      end

      def assign_places(places)
        open
        forget(@assigned.keys)
        @topics = nil
        @ledger.assigned
        places.each { |topic, partition, offset| @assigned[[topic, partition]] = start([topic, partition], offset) }
        rewind_timeline
      end

      def assignment = open && @assigned.keys.sort.map { |place| [*place, nil, nil] }

      def commit(places, _timeout = nil)
        open
        raise_planned(:commit)
        raise failure(:illegal_generation, :commit) if @lost

        store(places)
      end

      def keeps?(_places, _epoch) = true
      def committed?(places, epoch) = places.all? { |place| @ledger.committed?(*place.first(3), epoch) }
      def commit_processed(_places, _epoch, timeout) = commit(@ledger.processed, timeout)

      def commit_async(places)
        commit(places || @ledger.processed)
      rescue Error => e
        line = "[#{@config.id}] #{e.message}"
        @config.logger ? @config.logger.add(2, line, "penstock") : warn("penstock: #{line}")
      end

      def committed_offsets(places, _timeout)
        open
        raise_planned(:committed)
        places.map { |topic, partition| [topic, partition, @committed[[topic, partition]], nil, @metadata[[topic, partition]]] }
      end

      def watermarks(beginnings, ends, _timeout)
        firsts = answer_for(:watermarks, beginnings) { |place| first_offset(place) }
        [firsts, answer_for(:watermarks, ends) { |place| next_offset(place) }]
      end

      def cached_watermarks(topic, partition)
        open
        [first_offset([topic, partition]), next_offset([topic, partition])]
      end

      # The places have times, in ms, or librdkafka's numbers for the beginning and the end.
      def offsets(places, _timeout)
        answer_for(:offsets_for_times, places) do |place, time|
          case time
          when ConsumerPlaces::OFFSETS[:beginning] then first_offset(place)
          when ConsumerPlaces::OFFSETS[:end] then next_offset(place)
          else @logs.fetch(place, []).find { |message| message.timestamp && message.timestamp >= time }&.offset
          end
        end
      end

      def partitions(places, _timeout)
        open
        names = places.map(&:first)
        @logs.keys.select { |topic, _| names.include?(topic) }.sort.map { |place| [*place, nil, nil] }
      end

      def seek(places, _timeout)
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
      alias seek_back seek

      def restart(_places) = []

      def rewind(places, epoch, timeout)
        held = places.select { |place| @assigned.key?(place.first(2)) && @ledger.holds(*place.first(3), epoch) }
        seek(held, timeout)
        held
      end

      def held(places, _epoch) = open && (@lost ? [] : places.select { |place| @assigned.key?(place.first(2)) })
      # There is nothing to compare: partitions begin where the group has committed.
      def began_itself(_topic, _partition) = 0
      def open_before(_places) = nil

      def position(topic, partition) = open && @ledger.position(topic, partition)
      # All offsets have a message.
      def passed(_topic, _partition) = nil
      def reached(topic, partition) = position(topic, partition) || @assigned[[topic, partition]]

      def pause(places)
        open
        known, unknown = places.map { |place| place.first(2) }.partition { |place| @assigned.key?(place) }
        known.each { |place| @ledger.pause(*place, true) }
        unknown.each { |place| assigned(place, :unknown_partition) }
      end

      def resume(places)
        open
        places.each { |topic, partition, *| @ledger.pause(topic, partition, false) }
        rewind_timeline
      end

      def paused = open && @ledger.paused

      def mark(what)
        open
        marked = what.is_a?(Batch) ? what.map { |message| @ledger.mark(message) }.all? : @ledger.mark(what)
        commit_by_itself
        marked
      end

      def owns?(what)
        open
        what.is_a?(Batch) ? what.all? { |message| @ledger.owns(message) } : @ledger.owns(what)
      end

      # For {Consumer#keep_alive}.
      def serve = answer || @bell.pop

      # @return [Boolean] whether there was something to answer
      def answer
        open
        change = @lock.synchronize do
          await_change(Deadline.new(nil))
          go_back
          begin_step(done(@timeline[@cursor])) if @timeline[@cursor].is_a?(InMemoryGroup::Change)
        end
        run_step(change) if change
        !change.nil?
      end

      # Of {Consumer#assign}.
      def settle = (nil while answer)

      # Of an application.
      def decode_with(deserializer) = @deserializer = deserializer

      # Of an application: messages of one partition. Nothing has to be held back.
      def poll_run(max, bytes) = take(max, 0, bytes:).then { |batch| batch unless batch.empty? && batch.ends.empty? }
      def hold_always = nil
      def end_hold = nil

      def wake = @bell << true

      # @return [Array] state, generation, member id
      def membership
        open
        @assigned.empty? ? [:joining, nil, nil] : [:stable, 1, "#{@config.id}-in-memory"]
      end

      def epoch = open && @ledger.epoch

      def mark_all
        open
        @ledger.finish(0)
      end

      def end_within(_timeout) = nil
      def taker = nil
      def next_message(timeout, _taker) = poll(timeout:)

      def not_received = nil
      def block_left = @left = true
      def block_left? = @left

      def finish
        @ledger.finish(owner) if @config.mark == :next_poll
      end

      # Of librdkafka there are no events, statistics or counts.
      def listen(*) = nil
      def news = nil
      def statistics = nil
      def counts = Hash.new(0)

      def set_credentials(_username, _password) = nil

      # Takes no lock, so that it may be called from a signal trap.
      # @return [true]
      def close(_timeout_ms)
        commit_by_itself unless @closed
        @closed = true
      end

      # A static member never does.
      def left_group? = @config.kafka[:"group.instance.id"].nil?

      private

      def answer_for(call, places)
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
    private_constant :InMemoryCalls
  end
end

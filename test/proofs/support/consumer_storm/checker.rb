# frozen_string_literal: true

require "set"

class ConsumerStorm
  # Reads the ledger of a storm: what members got, processed and committed, and which offsets an observer saw committed. Finds
  # what a group must never do:
  #
  # - a gap: a member begins a partition behind a message that no member has processed, or a message is processed by none
  # - a wrong order: within an assignment, the next message of a partition is not the one after the previous message
  # - a repetition of what was committed: a member begins a partition before an offset that was committed when it was assigned
  # - a commit of what is not processed
  # - a committed offset that falls
  #
  # An event is [time, member, kind, data]. All processes have the same clock. A member writes an event before it goes on, so a
  # commit comes after the processing that allows it. A member may be frozen before it writes that a commit succeeded: only its
  # order relative to the observer's next request is certain.
  #
  #   assigned, revoked   [[partition, ...]]
  #   got, processed      [[partition, first, last], ...]
  #   marked              true or false
  #   committed           { partition => offset }; the broker has confirmed it
  #   timed_out           { partition => offset }; it may still be committed, also after a later commit: Kafka does not order the
  #                       requests of two connections. So an offset that falls to exactly this one is no defect
  #   observed            [time of the request, { partition => offset }]
  class Checker
    # The offsets of a partition that were processed: all before `upto`, and the ranges in `later`.
    class Processed
      attr_reader :upto

      def initialize
        @upto = 0
        @later = []
      end

      def add(first, last)
        @later << [first, last] if last >= @upto
        @later.sort!
        @upto = [@upto, @later.shift.last + 1].max while @later.any? && @later.first.first <= @upto
      end
    end

    # @return [Boolean] whether a message was lost, repeated or out of order, or will be when a member begins as committed
    def self.lost_or_repeated?(problem) = problem.match?(/\A(?:gap|order|repeat|commit|fall): |, which it is not assigned\z/)

    # @return [Array<String>] what is wrong
    attr_reader :problems
    # @return [Hash{Symbol => Integer}] how many events of each kind there were; `starts` and `repeated` count messages
    attr_reader :counts

    def initialize
      @problems = []
      @counts = Hash.new(0)
      @processed = Hash.new { |all, partition| all[partition] = Processed.new }
      @confirmed = Hash.new(0) # the highest offset that is known to be committed; it falls where it may
      @history = [] # [time, partition, offset] of each change of it
      @positions = Hash.new { |all, member| all[member] = {} } # of the assigned partitions; nil: nothing was read
      @floors = {}
      @timed_out = Hash.new { |all, partition| all[partition] = Set.new }
      @rejected = {}
    end

    # @param events [Array] in any order
    # @param ends [Hash{Integer => Integer}] the end of each partition
    # @return [Array<String>] the problems
    def check(events, ends)
      note_timed_out(events) # a member may be frozen before it writes so, and the offset fall before
      events.sort_by.with_index { |event, i| [event.first, i] }.each do |time, member, kind, data|
        @counts[kind.to_sym] += 1
        handler = :"on_#{kind}"
        __send__(handler, member, data, time) if respond_to?(handler, true)
      end
      ends.each do |partition, offset|
        upto = @processed[partition].upto
        problem("gap: partition #{partition} is processed up to #{upto} of #{offset}") if upto < offset
      end
      @problems
    end

    private

    def problem(text) = @problems << text

    def note_timed_out(events)
      events.each do |_, _, kind, data|
        data.each { |partition, offset| @timed_out[partition.to_i] << offset } if kind.to_s == "timed_out"
      end
    end

    # @return [Boolean] whether the committed offset may have fallen to this one
    def may_fall?(partition, offset) = @timed_out.key?(partition) && @timed_out[partition].include?(offset)

    def on_assigned(member, partitions, _time)
      partitions.each do |partition|
        @positions[member][partition] = nil
        @floors[[member, partition]] = @confirmed[partition]
      end
    end

    def on_revoked(member, partitions, _time)
      @rejected[member] = false
      partitions.each { |partition| @positions[member].delete(partition) }
    end

    def on_got(member, ranges, _time) = ranges.each { |partition, first, last| got(member, partition, first, last) }

    def got(member, partition, first, last)
      return problem("#{member} got #{partition}/#{first}, which it is not assigned") unless @positions[member].key?(partition)

      position = @positions[member][partition]
      if position.nil?
        started(member, partition, first)
      elsif first != position
        problem("#{first > position ? "gap" : "order"}: #{member} got #{partition}/#{first} after #{position - 1}")
      end
      @positions[member][partition] = last + 1
    end

    def started(member, partition, first)
      floor = @floors[[member, partition]]
      upto = @processed[partition].upto
      @counts[:starts] += 1
      @counts[:repeated] += [upto - first, 0].max
      repeats = first < floor && !may_fall?(partition, first)
      problem("repeat: #{member} began #{partition} at #{first}, committed was #{floor}") if repeats
      problem("gap: #{member} began #{partition} at #{first}, processed was only what is before #{upto}") if first > upto
    end

    def on_processed(_member, ranges, _time)
      ranges.each { |partition, first, last| @processed[partition].add(first, last) }
    end

    # A member that the group has removed may not know it yet. Its marks are rejected until it is told.
    def on_marked(member, marked, _time)
      problem("#{member} could not mark a batch, and then could, without a revocation") if marked && @rejected[member]
      @rejected[member] = !marked
    end

    def on_committed(member, offsets, time)
      offsets.each { |partition, offset| committed(member, partition.to_i, offset, time) }
    end

    def committed(who, partition, offset, time)
      upto = @processed[partition].upto
      problem("commit: #{who} has #{partition} committed at #{offset}, processed was what is before #{upto}") if offset > upto
      confirmed(partition, offset, time) if offset > @confirmed[partition]
    end

    def confirmed(partition, offset, time)
      @confirmed[partition] = offset
      @history << [time, partition, offset]
    end

    # Compared with what was known before the request: two observers may ask at the same time.
    def on_observed(member, (since, offsets), time)
      offsets.each do |key, offset|
        partition = key.to_i
        before = @history.reverse_each.find { |at, of, _| of == partition && at < since }&.last || 0
        next committed(member, partition, offset, time) unless offset < before
        next confirmed(partition, offset, time) if may_fall?(partition, offset)

        problem("fall: committed of #{partition} is #{offset}, and was #{before}")
      end
    end
  end
end

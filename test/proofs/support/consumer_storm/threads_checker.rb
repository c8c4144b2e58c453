# frozen_string_literal: true

require_relative "ranges"

class ConsumerStorm
  # Reads the ledger of a storm whose members are ThreadsMembers. Life lists the events; those of Checker mean the same. Finds:
  #
  # - early: an offset was committed behind a message that no thread had processed yet. lost: nobody has processed it later
  # - false: `mark` or `commit(what)` has returned false, and nobody has got the message again
  # - fall: a committed offset fell, or was less than what a commit had confirmed, without a call that asked for it
  # - repeat: a consumer got what had been committed when the partition was assigned, or two threads got a message in one epoch
  # - order: a thread got an earlier message after a later one, without a rewind in between
  # - gap: nobody has processed a message
  class ThreadsChecker
    LONGEST_CLOSE = 2 # seconds; then the group has perhaps removed the member
    private_constant :LONGEST_CLOSE

    # Messages of a partition that a thread got.
    Got = Struct.new(:time, :life, :thread, :number, :epoch, :begun, :first, :last) do
      def overlaps?(from, to) = first <= to && last >= from
      def same_epoch?(other) = other.life == life && other.epoch == epoch
    end

    # A call that may lower a committed offset.
    Fall = Struct.new(:offset, :ended)

    # Finds what was got of an offset.
    class Index
      SPAN = 64 # offsets
      private_constant :SPAN

      def initialize
        @spans = Hash.new { |all, span| all[span] = [] }
      end

      def add(got) = spans(got.first, got.last).each { |span| @spans[span] << got }

      # @return [Array<Got>] what has one of the offsets
      def overlapping(first, last)
        spans(first, last).flat_map { |span| @spans[span].select { |got| got.overlaps?(first, last) } }.uniq
      end

      private

      def spans(first, last) = ((first / SPAN)..(last / SPAN))
    end

    # What a life has of a partition, since it was assigned.
    class Held
      attr_reader :since, :floor, :lowest

      # @param floor [Integer] what was committed then
      def initialize(since, floor)
        @since = since
        @floor = @lowest = @base = floor
        @marked = Ranges.new
        @ever_marked = Ranges.new # also what was cut later
        @cuts = []
      end

      # A rewind or seek. What is behind it comes again.
      def cut(time, offset)
        come_again(time, offset)
        lower(offset)
      end

      # The same, also of what an interrupted poll has left, which no call of the program announces.
      def come_again(time, offset)
        @marked.cut(offset)
        @cuts << [time, offset]
        @base = [@base, offset].min
      end

      # @param since [Numeric] when the poll or mark began. What was cut since may have been marked before
      def mark(first, last, since)
        return if since < @since

        lowest = @cuts.reverse_each.take_while { |at, _| at >= since }.map(&:last).min
        last = [last, lowest - 1].min if lowest
        return if first > last

        @marked.add(first, last)
        @ever_marked.add(first, last)
      end

      # A seek has gone back over what was processed. If another consumer gets the partition now, it begins behind that.
      def marked_before?(first, last) = @ever_marked.end_of_run(first) > last

      # @param offset [Integer] that has come, or may come
      def lower(offset) = @lowest = [@lowest, offset].min

      # @return [Integer] everything before it was marked
      def upto = @marked.end_of_run(@base)
    end

    # @return [Boolean]
    def self.lost_or_repeated?(problem) = problem.match?(/\A(?:early|lost|false|fall|repeat|order|gap): /)

    # @return [Array<String>]
    attr_reader :problems
    # @return [Hash{Symbol => Integer}] how many events of each kind there were; `true_marks` and `false_marks` count results
    attr_reader :counts

    def initialize
      @problems = []
      @counts = Hash.new(0)
      @processed, @reported = tables(2) { Ranges.new } # by partition
      @gots = table { Index.new }
      @history, @timed_out = tables(2) { [] }
      @falls = table { {} }
      @fell = {} # when the latest of them has ended
      @declared, @all_gots = tables(2) { [] } # by life
      @held, @gone, @done, @polled, @latest, @reached = tables(6) { {} }
      @lives = {} # what they do
      @next_poll = {} # whether polls mark
      @calls = {} # commits that have not ended
      @ended = {} # when they will
      @seen = {} # when a life has noted something
      @silent = {} # lives that noted nothing for so long that the group has perhaps removed them
      @rejected = []
    end

    # @param events [Array] in any order
    # @param ends [Hash{Integer => Integer}]
    # @return [Array<String>] the problems
    def check(events, ends)
      events = events.sort_by.with_index { |event, i| [event.first, i] }
      look_ahead(events)
      events.each do |time, life, kind, data|
        @counts[kind.to_sym] += 1
        note_silence(life, time)
        handler = :"on_#{kind}"
        __send__(handler, life, data, time) if respond_to?(handler, true)
      end
      @rejected.each { |marked| check_rejected(*marked) }
      ends.each { |partition, offset| check_end(partition, offset) }
      @problems
    end

    private

    def table = Hash.new { |all, key| all[key] = yield }
    def tables(count, &value) = Array.new(count) { table(&value) }

    def problem(text) = @problems << text

    def at(time) = format("%.6f", time)

    def look_ahead(events)
      events.each do |time, life, kind, data|
        case kind.to_s
        when "got" then @all_gots[life] << data.values_at(3, 4) unless plain?(data)
        when "declared" then @ended[[life, data.first]] = time
        when "timed_out" then data.each { |partition, offset| @timed_out[partition.to_i] << offset }
        end
      end
      @all_gots.each_value { |gots| gots.sort_by!(&:first) }
    end

    # ---- consumers ----

    def on_life(life, (_seed, profile, next_poll, by_others, seeks), _time)
      @next_poll[life] = next_poll
      @lives[life] = [profile, by_others && "by others", seeks && "seeks"].select(&:itself).join(", ")
    end

    def on_ending(life, ending, _time) = @lives[life] += ", #{ending}"

    # A process that was frozen.
    def note_silence(life, time)
      @silent[life] = true if time - @seen.fetch(life, time) > LONGEST_CLOSE
      @seen[life] = time
    end

    def on_assigned(life, partitions, time)
      @silent.delete(life)
      partitions.each do |partition|
        lowest = [committed(partition), *@falls[partition].each_value.map(&:offset)].min
        @held[life][partition] = Held.new(time, lowest)
      end
    end

    def on_revoked(life, partitions, _time)
      partitions.each do |partition|
        @gone[life][partition] = @held[life].delete(partition)
        @reached[life].delete(partition)
      end
    end

    # ---- messages ----

    def on_got(life, data, time)
      thread, number, epoch, begun, ranges = plain?(data) ? [0, nil, time, time, data] : data
      polled_again(life, thread, number, begun)
      ranges.each do |partition, first, last|
        got = Got.new(time, life, thread, number, epoch, begun, first, last)
        note_repetition(partition, got)
        check_order(partition, got)
        check_twice(partition, got)
        check_floor(partition, got)
        @gots[partition].add(got)
        @counts[:messages] += last - first + 1
      end
    end

    # A Member, which has one thread, notes only ranges.
    def plain?(data) = data.all?(Array)

    def on_processed(life, data, _time)
      number, ranges = plain?(data) ? [nil, data] : data
      @done[life][number] = ranges if @next_poll[life]
      ranges.each { |partition, first, last| @processed[partition].add(first, last) }
    end

    # With config.mark = :next_poll, a poll marks what its thread got before and has processed, but not what was cut since.
    def polled_again(life, thread, number, begun)
      before, since = @polled[life][thread]
      @polled[life][thread] = [number, begun]
      return unless @next_poll[life] && before

      (@done[life].delete(before) || []).each { |partition, first, last| @held[life][partition]&.mark(first, last, since) }
    end

    def note_repetition(partition, got)
      reached = @reached[got.life][partition] ||= Hash.new(-1) # by epoch
      again = reached.any? { |epoch, last| epoch < got.epoch && last >= got.first } if got.epoch
      reached[got.epoch] = [reached[got.epoch], got.last].max
      @held[got.life][partition]&.come_again(got.begun, got.first) if again
    end

    def check_order(partition, got)
      key = [partition, got.thread]
      before = @latest[got.life][key]
      @latest[got.life][key] = got
      return if before.nil? || before.epoch != got.epoch || got.first > before.last

      problem("order: thread #{got.thread} of #{got.life} got #{place(partition, got)} after #{place(partition, before)}")
    end

    def check_twice(partition, got)
      other = @gots[partition].overlapping(got.first, got.last).find { |one| got.same_epoch?(one) } or return

      problem("repeat: threads of #{got.life} got #{place(partition, other)} and #{place(partition, got)}")
    end

    # A thread may note what it got only after the partition was taken away and came back.
    def check_floor(partition, got)
      held = @held[got.life][partition]
      return if held.nil? || got.begun < held.since || got.first >= held.lowest || @timed_out[partition].include?(got.first)

      problem("repeat: #{got.life} got #{place(partition, got)}, but #{held.floor} was committed when it was assigned")
      held.lower(got.first)
    end

    def place(partition, got)
      "#{partition}/#{got.first}..#{got.last} (thread #{got.thread}, batch #{got.number}, epoch #{got.epoch}, " \
        "polled #{at(got.begun)} to #{at(got.time)})"
    end

    # ---- marks ----

    def on_marked(life, (number, ranges, result, begun, first_attempt, method), time)
      @counts[result ? :true_marks : :false_marks] += 1
      return ranges.each { |partition, first, last| @held[life][partition]&.mark(first, last, begun) } if result
      return if !first_attempt || @declared[life].any? { |from| from < time }
      return if ranges.any? { |range| done_before?(life, *range) }

      @rejected << [life, number, ranges, begun, time, method]
    end

    # A seek has gone back, or it was marked before, and the partition was taken away since.
    def done_before?(life, partition, first, last)
      last < committed(partition) || [@held, @gone].any? { |held| held[life][partition]&.marked_before?(first, last) }
    end

    def check_rejected(life, number, ranges, begun, time, method)
      partition, first, last = ranges.first
      own = @gots[partition].overlapping(first, last).find { |got| got.life == life && got.number == number }
      return if ranges.any? { |range| comes_again?(*range, own) }

      problem("false: #{method} by #{life} (#{@lives[life]}) from #{at(begun)} to #{at(time)} of #{place(partition, own)}" \
              "#{" and others: #{ranges.inspect}" if ranges.size > 1} returned false, and nobody got a message of it again")
    end

    def comes_again?(partition, first, last, own)
      @gots[partition].overlapping(first, last).any? do |got|
        got.life == own.life ? got.epoch > own.epoch : got.time > own.begun
      end
    end

    # ---- what moves the position ----

    def on_rewinding(life, (_number, places), time)
      places.each { |partition, offset| @held[life][partition.to_i]&.cut(time, offset) }
    end
    alias on_rewound on_rewinding
    alias on_seeking on_rewinding
    alias on_sought on_rewinding

    def on_falling(life, (number, places), time)
      on_rewinding(life, [number, places], time)
      places.each { |partition, offset| @falls[partition.to_i][[life, number]] = Fall.new(offset) }
    end

    def on_fell(life, (number, places), time)
      on_rewinding(life, [number, places], time)
      places.each_key { |partition| @falls[partition.to_i][[life, number]].ended = @fell[partition.to_i] = time }
    end

    # ---- commits ----

    def on_declaring(life, (number), time)
      @declared[life] << time
      ended = @ended.fetch([life, number], Float::INFINITY)
      all = @all_gots[life]
      while all.any? && all.first.first < ended
        all.shift.last.each { |partition, first, last| @processed[partition].add(first, last) }
      end
    end

    def on_committing(life, (number, partitions), time)
      held = partitions ? @held[life].slice(*partitions) : @held[life]
      @calls[[life, number]] = [time, held.transform_values { |one| [one, one.upto] }]
    end

    # What was marked before the call is committed after it, unless the partition was taken away.
    def on_committed(life, (number, result), time)
      begun, places = @calls.delete([life, number])
      return unless result

      confirm(life, begun, places.select { |partition, (held, _)| held.equal?(@held[life][partition]) }, time)
    end

    def on_closing(life, auto_commit, time)
      on_committing(life, [0], time) if auto_commit
    end

    def on_closed(life, (complete, seconds), time)
      begun, places = @calls.delete([life, 0])
      confirm(life, begun, places, time) if begun && complete && seconds < LONGEST_CLOSE && !@silent[life]
    end

    def confirm(life, begun, places, time)
      places.each do |partition, (_held, upto)|
        fell = @falls[partition].each_value.any? { |fall| fall.ended.nil? } || @fell.fetch(partition, 0) >= begun
        next if fell || upto <= committed(partition)

        @history[partition] << [time, upto, "a commit of #{life} (#{@lives[life]}) from #{at(begun)} to #{at(time)}"]
      end
    end

    # ---- committed offsets ----

    def committed(partition) = @history[partition].last&.at(1) || 0

    # Compared with what was known before the request.
    def on_observed(_observer, (since, offsets), time)
      offsets.each do |key, offset|
        partition = key.to_i
        check_processed(partition, offset, time)
        check_fall(partition, offset, since, time)
        @history[partition] << [time, offset, "an observation at #{at(time)}"] if offset > committed(partition)
        @falls[partition].delete_if { |_, fall| fall.ended && fall.ended < since }
      end
    end

    def check_fall(partition, offset, since, time)
      _, before, by = @history[partition].reverse_each.find { |from, _| from < since }
      return if offset >= before.to_i

      # It may have risen again since.
      allowed = @falls[partition].each_value.any? { |fall| fall.offset <= offset } || @timed_out[partition].include?(offset)
      text = "fall: committed of #{partition} is #{offset} from #{at(since)} to #{at(time)}, and was #{before} by #{by}"
      problem(text) unless allowed
      @history[partition] << [time, offset, "an observation at #{at(time)}"]
    end

    def check_processed(partition, offset, time)
      @processed[partition].gaps(0, offset - 1).each do |first, last|
        @reported[partition].gaps(first, last).each do |from, to|
          problem("early: #{partition}/#{from}..#{to} is not processed, and #{offset} is committed at #{at(time)}: " \
                  "#{holders(partition, from, to)}")
          @reported[partition].add(from, to)
        end
      end
    end

    def check_end(partition, offset)
      @processed[partition].gaps(0, offset - 1).each do |first, last|
        lost = @reported[partition].gaps(first, last).empty?
        problem("#{lost ? "lost" : "gap"}: #{partition}/#{first}..#{last} was processed by nobody" \
                "#{" and committed" if lost}: #{holders(partition, first, last)}")
      end
    end

    # @return [String] which threads got one of the messages last
    def holders(partition, first, last)
      gots = @gots[partition].overlapping(first, last).max_by(3, &:time)
      return "nobody has got it" if gots.empty?

      gots.map { |got| "#{got.life} (#{@lives[got.life]}) #{place(partition, got)}" }.join("; ")
    end
  end
end

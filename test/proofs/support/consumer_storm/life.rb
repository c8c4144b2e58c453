# frozen_string_literal: true

require "timeout"
require_relative "life/endings"
require_relative "life/finishing"
require_relative "life/going_back"
require_relative "life/meddling"

class ConsumerStorm
  # One consumer and the threads that use it, from its first poll to its close. Some threads poll and process, some poll for other
  # threads. The thread that has made the consumer disturbs them: it interrupts and kills them, pauses partitions, and commits.
  #
  # All random choices follow from the seed, but not when threads run.
  #
  # A thread handles interrupts only in `free`, around the calls of the consumer and around its work. There the code is like a
  # user's, who does not know of handle_interrupt. What it notes in between is complete.
  #
  # Its events, in addition to those of the checker:
  #
  #   life          [seed, profile, whether polls mark, whether other threads process, whether it seeks]
  #   got           [thread, number of the batch, its epoch, when the poll began, ranges]
  #   missed        [thread, when the poll began]; an interrupt came before the caller got the batch
  #   processed     [number, ranges]
  #   marked        [number, ranges, result, when the call began, whether it is the first attempt, method]
  #   committing, committed      [number of the call, partitions or nil], [number, result]; commits what is marked
  #   declaring, declared        the same, and marks all that was polled
  #   rewinding, rewound         [number of the call, { partition => offset }, result]
  #   seeking, sought            the same
  #   falling, fell              the same, of calls that lower the committed offset
  #   closing       whether what is processed is committed; then `closed`
  class Life
    include Endings
    include Finishing
    include GoingBack
    include Meddling

    # What interrupts threads.
    class Interrupted < StandardError; end
    # The last one is that of newer versions. It may come late, if another interrupt has ended the block before.
    INTERRUPTS = [Interrupted, Timeout::Error, (Timeout::ExitException if defined?(Timeout::ExitException))].compact.freeze

    Job = Struct.new(:number, :what, :messages, :ranges, :tried) do
      # @return [Hash{Integer => Array<Penstock::Message>}]
      def by_partition = messages.group_by(&:partition)

      # @return [Array<Array(Integer, Integer, Integer)>] of the messages of a partition up to an offset
      def upto(partition, offset)
        ranges.filter_map do |number, first, last|
          [number, first, [last, offset].min] if number == partition && first <= offset
        end
      end
    end
    Worker = Struct.new(:number, :random)

    # What a consumer's threads do often.
    #
    # - `fail`: how often the work on a batch fails
    # - `timeout`: how often a poll is inside of Timeout.timeout
    # - `every`: seconds between two disturbances
    # - `busy`: seconds for which a thread computes, without leaving the processor to others
    # - `sizes`: of batches
    PROFILES = {
      marks: { fail: 0.02, timeout: 0.1, every: 0.02..0.1, busy: 0..0.001, sizes: [5, 20, 100],
               finish: { mark_and_commit: 8, mark: 1 } },
      commits: { fail: 0.02, timeout: 0.1, every: 0.02..0.1, busy: 0..0.001, sizes: [1, 5, 20, 100],
                 finish: { commit: 4, commit_messages: 2, commit_async: 2, mark: 2 } },
      rewinds: { fail: 0.3, timeout: 0.1, every: 0.05..0.2, busy: 0..0.001, sizes: [1, 5, 20],
                 finish: { mark: 4, mark_messages: 2, mark_halves: 2, mark_and_commit_async: 1 } },
      interrupts: { fail: 0.05, timeout: 0.8, every: 0.005..0.04, busy: 0.002..0.01, sizes: [20, 50, 100],
                    finish: { mark: 4, mark_halves: 1, mark_and_commit: 1 } },
      endings: { fail: 0.05, timeout: 0.2, every: 0.05..0.2, busy: 0..0.002, sizes: [1, 5, 20], finish: { mark: 1, commit: 1 } },
      mixed: { fail: 0.1, timeout: 0.4, every: 0.01..0.1, busy: 0..0.004, sizes: [1, 5, 20, 50, 100],
               finish: { mark: 2, mark_messages: 1, mark_halves: 1, mark_and_commit: 2, mark_and_commit_async: 1, commit: 1,
                         commit_messages: 1, commit_async: 1 } }
    }.freeze
    OFTEN = { interrupts: 2, endings: 3 }.freeze
    SHORT = 1.5 # seconds until a consumer ends of which the ending matters
    # Of the default mode: what only polls again.
    AGAIN = 2
    PATIENCE = 20 # seconds for the threads to end

    # @return [Boolean] whether the rebalance listener commits
    attr_reader :commits_in_listener

    def initialize(member, seed, topic:, manual:, auto_commit:, endings:, profile: nil)
      @member = member
      @seed = seed
      @topic = topic
      @manual = manual
      @auto_commit = auto_commit
      @endings = endings
      @random = Random.new(seed)
      @profile = profile || profiles.sample(random: @random)
      PROFILES.fetch(@profile).each { |name, value| instance_variable_set(:"@#{name}", value) }
      @finish = with_next_poll(@finish) unless manual
      @by_others = @random.rand(2).zero? # whether other threads process than those that poll
      @seeks = @random.rand(4).zero?
      @commits_in_listener = @random.rand(2).zero?
      @moves = Mutex.new
      @numbers = Mutex.new
      @number = 0
      @errors = []
      @threads = {}
    end

    # @param seconds [Numeric]
    # @yieldreturn [Boolean] whether it has to end earlier
    def run(seconds, &ended)
      @ended = ended
      @consumer = @member.make_consumer
      log(:life, [@seed, @profile, !@manual, @by_others, @seeks])
      @ends_at = now + (@profile == :endings ? SHORT : seconds)
      Thread.handle_interrupt(Object => :never) { start_threads }
      @profile == :endings ? read_to_an_end : disturb_until_it_ends
    ensure
      end_threads
    end

    # The rebalance listener runs in the block. If the program seeks, it knows what is assigned then.
    def listen(&block) = moving(&block)

    private

    attr_reader :consumer

    def log(...) = @member.log(...)

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def over? = @over || @errors.any? || now > @ends_at || @ended.call

    def next_number = @numbers.synchronize { @number += 1 }

    def profiles
      names = PROFILES.keys - (@endings ? [] : [:endings])
      names.flat_map { |name| [name] * OFTEN.fetch(name, 1) }
    end

    # Not `declare`: commit without arguments counts what a thread has polled that was killed before it could note it.
    def with_next_poll(finish)
      { again: finish.values.sum * AGAIN, **finish.except(:mark_and_commit, :mark_and_commit_async) }
    end

    # ---- threads ----

    def roles
      return { poll_for_others: 3 } if @by_others

      { poll_and_process: @profile == :endings ? 2 : 4 }
    end

    def start_threads
      living = living_threads.values.tally
      roles.each { |role, count| (count - living.fetch(role, 0)).times { start_thread(role) } }
    end

    def living_threads = @numbers.synchronize { @threads.select { |thread, _| thread.alive? } }

    # Interrupts are masked in a new thread as in the thread that makes it.
    def start_thread(role, *arguments)
      number = next_number
      thread = Thread.new do
        __send__(role, Worker.new(number, Random.new((@seed * 1_000) + number)), *arguments)
      rescue Penstock::ConsumerClosedError
        nil
      rescue Exception => e # rubocop:disable Lint/RescueException -- the member reports it
        @errors << e
      end
      @numbers.synchronize { @threads[thread] = role }
    end

    def end_threads
      @over = true
      join_threads
      hanging = living_threads.keys
      raise @errors.first if @errors.any?
      raise "threads do not end: #{hanging.map(&:backtrace).inspect}" if hanging.any?
    end

    def join_threads
      deadline = now + PATIENCE
      living_threads.each_key { |thread| thread.join([deadline - now, 0].max) }
    end

    # Like a user's code.
    # @return [Boolean] whether nothing has interrupted it
    def free(&block)
      Thread.handle_interrupt(Object => :immediate, &block)
      true
    rescue *INTERRUPTS
      false
    end

    def poll_and_process(worker)
      until over?
        job = poll(worker) or next
        break unless settle(worker, job)
      end
    end

    # Another thread processes the batches in order: a mark includes what the same thread has polled before. With config.mark =
    # :next_poll this thread polls again only when the other one has processed the batch.
    def poll_for_others(worker)
      jobs = Thread::SizedQueue.new(3)
      answers = Thread::Queue.new
      start_thread(:process_for_others, jobs, answers)
      until over?
        job = poll(worker) or next
        jobs << job
        break unless @manual || answers.pop
      end
    rescue ClosedQueueError
      nil # the other thread has given up
    ensure
      jobs.close
    end

    def process_for_others(worker, jobs, answers)
      while (job = jobs.pop) && settle(worker, job)
        answers << true
      end
    ensure
      [jobs, answers].each(&:close)
    end

    # ---- polling ----

    # If an interrupt waits when the call returns, the caller of Timeout.timeout does not get its value: the consumer has to keep
    # the messages. If the interrupt comes later, it cannot do so, and this thread has them.
    # @return [Job, nil]
    def poll(worker)
      got = missed = nil
      begun = now
      free { in_time(worker) { (got = take(worker)) && (missed = Thread.pending_interrupt?) } }
      log(:missed, [worker.number, begun]) if missed
      job_of(got, worker, begun) unless missed || got.nil? || (got.is_a?(Penstock::Batch) && got.empty?)
    rescue Penstock::ConsumerClosedError
      raise
    rescue Penstock::ConsumeError => e
      log(:error, e.code)
      raise if e.fatal?
    end

    def in_time(worker, &block)
      return yield if worker.random.rand > @timeout

      Timeout.timeout(worker.random.rand(0.002..0.1), &block)
    end

    def take(worker)
      timeout = worker.random.rand(0.02..0.3)
      return consumer.poll(timeout:) if worker.random.rand(10).zero?

      consumer.poll_batch(max: @sizes.sample(random: worker.random), timeout:)
    end

    def job_of(what, worker, begun)
      batch = what.is_a?(Penstock::Batch)
      messages = batch ? what.to_a : [what]
      epoch = batch ? what.epoch : Penstock.const_get(:Native)::ConsumerClient.epoch_of(what)
      Job.new(next_number, what, messages, ranges_of(messages)).tap do |job|
        log(:got, [worker.number, job.number, epoch, begun, job.ranges])
      end
    end

    # @return [Array<Array(Integer, Integer, Integer)>] partition, first and last offset
    def ranges_of(messages)
      messages.group_by(&:partition).flat_map do |partition, list|
        foreign = list.find { |message| message.payload.to_i != partition }
        raise "message #{foreign.payload} came from partition #{partition}" if foreign

        list.map(&:offset).slice_when { |one, other| other != one + 1 }.map { |run| [partition, run.first, run.last] }
      end
    end

    # ---- processing ----

    # @return [Boolean] whether the thread may poll again: nothing of the batch is in its hands
    def settle(worker, job)
      return fail_at(worker, job, worker.random.rand(job.messages.size)) if worker.random.rand < @fail

      until work(worker)
        again = over? ? 4 : worker.random.rand(5)
        return false if again == 4 # the thread ends, without a mark
        return go_back(job) if again > 1
      end
      log(:processed, [job.number, job.ranges])
      finish(worker, job)
      true
    end

    # @return [Boolean] whether it was not interrupted
    def work(worker)
      return free { compute(worker) } unless worker.random.rand(10).zero?

      free { consumer.keep_alive { compute(worker) } }
    end

    def compute(worker)
      deadline = now + worker.random.rand(Range.new(@busy.begin.to_f, @busy.end.to_f))
      nil until now > deadline
      sleep worker.random.rand(0.002) if worker.random.rand(2).zero?
    end
  end
end

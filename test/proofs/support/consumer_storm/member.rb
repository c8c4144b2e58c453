# frozen_string_literal: true

require "json"

class ConsumerStorm
  # A process that starts members as its children. It has not used Penstock itself. For each line on stdin, which is the JSON of a
  # Member's settings, it writes "started ID PID", and "ended ID STATUS" when the child ends.
  module Nursery
    def self.member(kind:, threads: nil, **settings)
      return Member.new(**settings) unless threads || kind == "application"

      if threads
        require_relative "threads_member"
        return ThreadsMember.new(**settings, **threads)
      end
      require_relative "app_member"
      AppMember.new(**settings)
    end

    def self.run
      lock = Mutex.new
      say = ->(line) { lock.synchronize { $stdout.syswrite("#{line}\n") } }
      while (line = $stdin.gets)
        settings = JSON.parse(line, symbolize_names: true)
        one = member(**settings) # loads what it needs before the child can get a signal
        pid = fork { one.run }
        say.call("started #{settings[:id]} #{pid}")
        Thread.new(settings[:id], Process.detach(pid)) do |id, waiter|
          status = waiter.value
          say.call("ended #{id} #{status.signaled? ? "SIG#{Signal.signame(status.termsig)}" : status.exitstatus}")
        end
      end
    end
  end

  # One member of the group, in a process of its own. It works on each batch for a moment. Its ledger is a file with a line for
  # each event, which survives a SIGKILL. SIGTERM makes it close. It ends when the process that has started it is gone.
  #
  # `fault` makes it wrong, to show that the checker notices: :early commits before processing, :skip leaves a message out.
  class Member
    LARGEST = 200 # messages in a batch
    WORK = 0.02 # seconds for a batch
    TIMEOUTS = %i[timed_out request_timed_out].freeze # librdkafka has no answer, or the coordinator none of its replicas

    def initialize(id:, directory:, topic:, manual:, kafka:, fault: nil)
      @id = id
      @path = File.join(directory, id)
      @topic = topic
      @manual = manual
      @kafka = kafka
      @fault = fault&.to_sym
      @random = Random.new(id.sum)
    end

    def run
      @parent = Process.ppid
      $stderr.reopen("#{@path}.err", "w")
      Signal.trap("TERM") { @stopped = true }
      @ledger = File.open("#{@path}.ledger", "a")
      live
    rescue Exception => e # rubocop:disable Lint/RescueException -- the driver reports it
      log(:failed, "#{e.class}: #{e.message} #{e.backtrace.first(3).join(" ")}")
      exit!(3)
    else
      exit!(0)
    end

    # Parts of the rebalance listener.
    def assigned(rebalance) = log(:assigned, rebalance.partitions.fetch(@topic, []))
    def lost(rebalance) = log(:revoked, rebalance.partitions.fetch(@topic, []))

    def revoked(rebalance)
      commit(rebalance.consumer) if @manual
      log(:revoked, rebalance.partitions.fetch(@topic, []))
    end

    private

    def live
      consume(consumer = make_consumer)
      start = now
      report = consumer.close
      log(:closed, [report.complete?, now - start])
    end

    def make_consumer
      Penstock::Consumer.new do |config|
        config.id = @id
        config.kafka = { "auto.offset.reset": "earliest", **@kafka }
        config.mark = :manual if @manual
        config.rebalance_listener = self
        config.monitor = Penstock::Monitor.new.tap { |monitor| watch_commits(monitor) }
      end.subscribe(@topic)
    end

    # Of all commits: those that it waits for, asynchronous and periodic ones, and librdkafka's own.
    def watch_commits(monitor)
      monitor.subscribe("offsets.commit_failed") do |event|
        log(:timed_out, event[:offsets].fetch(@topic, {})) if TIMEOUTS.include?(event[:error].code)
      end
    end

    def consume(consumer)
      until @stopped || Process.ppid != @parent
        begin
          batch = consumer.poll_batch(max: LARGEST, timeout: 0.2)
        rescue Penstock::ConsumeError => e
          log(:error, e.code)
          raise if e.fatal?
        end
        next commit(consumer) if @manual && batch.empty?

        work_on(consumer, batch) unless batch.empty?
      end
    end

    def work_on(consumer, batch)
      ranges = ranges_of(batch)
      log(:got, ranges)
      commit_batch(consumer, batch, ranges) if @fault == :early
      sleep WORK
      ranges = ranges.map { |partition, first, last| [partition, first + 1, last] } if @fault == :skip
      log(:processed, ranges)
      mark(consumer, batch, ranges) if @manual && @fault != :early
    end

    def mark(consumer, batch, ranges)
      case @random.rand(4)
      when 0 then commit_batch(consumer, batch, ranges)
      when 1 then log(:marked, consumer.mark(batch)) && commit(consumer)
      when 2 then log(:marked, consumer.mark(batch)) && commit(consumer, async: true)
      else log(:marked, consumer.mark(batch))
      end
    end

    def commit_batch(consumer, batch, ranges)
      attempt do
        done = consumer.commit(batch, timeout: 20)
        log(:committed, ranges.to_h { |partition, _, last| [partition, last + 1] }) if done
        log(:rejected, nil) unless done
      end
    end

    def commit(consumer, **options) = attempt { log(:rejected, nil) unless consumer.commit(**options) }

    # Brokers that fail, and rebalances, may reject a commit. The messages are read again then.
    def attempt
      yield
    rescue Penstock::CommitError, Penstock::ConsumeTimeoutError => e
      log(:not_committed, e.code)
    end

    # @return [Array<Array(Integer, Integer, Integer)>] partition, first and last offset
    def ranges_of(batch)
      batch.group_by_partition.fetch(@topic).flat_map do |partition, messages|
        foreign = messages.find { |message| message.payload.to_i != partition }
        raise "message #{foreign.payload} came from partition #{partition}" if foreign

        messages.map(&:offset).slice_when { |one, other| other != one + 1 }.map { |run| [partition, run.first, run.last] }
      end
    end

    def log(kind, data) = @ledger.syswrite("#{JSON.generate([now, @id, kind, data])}\n")

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

ConsumerStorm::Nursery.run if $PROGRAM_NAME == __FILE__

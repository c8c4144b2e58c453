# frozen_string_literal: true

require "logger"
require "securerandom"
require "stringio"

# Closes members of groups in every phase of joining and rebalancing. A round is a group of its own: a first member joins, a
# second one joins `second` seconds later, and one of them closes after `delay` seconds, in one of the WAYS. The other closes at
# the end.
class ConsumerClosing
  TIMEOUT = 20 # seconds for a close, beside the others of its round
  MESSAGES = 200 # in each of the topic's 2 partitions

  # What happens between polling and closing.
  WAYS = {
    close: ->(_) {},
    unsubscribe: lambda(&:unsubscribe),
    unsubscribe_and_poll: ->(consumer) { consumer.unsubscribe.poll(timeout: 0.01) },
    unserved: ->(_) { sleep 0.3 } # a rebalance may have begun meanwhile
  }.freeze

  # @return [Array<String>] what is wrong
  attr_reader :problems
  # @return [Hash{Symbol => Integer}]
  attr_reader :counts

  def initialize(servers, topic, **kafka)
    @topic = topic
    @kafka = { "bootstrap.servers": servers, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 60_000,
               "fetch.wait.max.ms": 10, **kafka }
    @problems = []
    @counts = Hash.new(0)
    @lock = Mutex.new
  end

  # Rounds with delays from 0 to `longest` seconds, all at the same time.
  def rounds(count, longest:)
    Array.new(count) do |i|
      Thread.new { round(i, longest * i / count, longest * ((i * 7) % count) / count) }
    end.each(&:join)
  end

  private

  Member = Struct.new(:consumer, :log, :processed)

  def round(number, delay, second)
    group = "closing-#{SecureRandom.hex(6)}"
    one, two = Array.new(2) { member(group) }
    way = WAYS.keys[number % WAYS.size]
    closing, staying = number.odd? ? [one, two] : [two, one]
    over = false
    other = Thread.new do
      poll(staying, staying == two ? second : 0) { over }
      close(staying, "the other member", group) # in the thread that polled: what it has polled is processed
    end
    began = now
    poll(closing, closing == two ? second : 0) { now > began + delay }
    WAYS.fetch(way).call(closing.consumer)
    close(closing, "#{way} after #{delay.round(2)} s", group)
    over = true
    other.join
  rescue StandardError => e
    problem("#{way} after #{delay}: #{e.class} #{e.message} #{e.backtrace.first(3)}")
  end

  def member(group)
    log = StringIO.new
    made = Penstock::Consumer.new(**@kafka, "group.id": group) { |config| config.logger = Logger.new(log) }
    Member.new(made, log, {})
  end

  def poll(member, pause)
    sleep pause
    member.consumer.subscribe(@topic)
    loop do
      batch = member.consumer.poll_batch(max: 10, timeout: 0.02)
      batch.each { |message| member.processed[message.partition] = message.offset + 1 }
      break if yield
    end
  end

  # What a member has processed is committed, unless the group has rejected it, which is logged, or given the partition to the
  # other member, which has gone on from there.
  def close(member, what, group)
    start = now
    report = member.consumer.close(timeout: TIMEOUT)
    seconds = now - start
    problem("#{what}: not complete, #{seconds} s") unless report.complete?
    problem("#{what}: #{seconds} s") if seconds > TIMEOUT
    @lock.synchronize { @counts[:closed] += 1 }
    check_commits(member, what, group)
  end

  def check_commits(member, what, group)
    return if member.processed.empty?

    asker = Penstock::Consumer.new(**@kafka, "group.id": group, log_level: 0)
    committed = asker.committed(@topic, member.processed.keys, timeout: 10)
    late = member.processed.select { |partition, offset| (committed[partition] || 0) < offset }
    @lock.synchronize { @counts[late.empty? ? :committed : :rejected] += 1 }
    return if late.empty? || member.log.string.match?(/committed|commit/i)

    problem("#{what}: processed #{member.processed}, committed #{committed}, log #{member.log.string.inspect}")
  ensure
    asker&.close
  end

  def problem(text) = @lock.synchronize { @problems << text }

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

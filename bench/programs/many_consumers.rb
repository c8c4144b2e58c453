# frozen_string_literal: true

# One process with many consumers: ruby many_consumers.rb SERVERS TOPIC MODE CONSUMERS BUSY EACH [SETTING=VALUE...]
#
# MODE is set (one thread, with a ConsumerSet) or threads (a thread for each consumer). Each consumer reads one partition of the
# topic. The first BUSY partitions have EACH messages, the others none. A round reads them all, then does nothing for a second,
# then sends messages one by one to the first partition. There is no group.

require_relative "program"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

mode, *numbers = ARGUMENTS
COUNT, BUSY, EACH = numbers.map { |number| Integer(number) }
ONE_BY_ONE = 50
SETTLE_SECONDS = 2

consumers = Array.new(COUNT) do
  Penstock::Consumer.new("bootstrap.servers": SERVERS, "auto.offset.reset": "earliest", **SETTINGS.transform_keys(&:to_sym))
end

# Counts what all threads have read, and wakes the main thread when it is enough.
class Tally
  attr_reader :first_at, :last_at

  def initialize(enough)
    @enough = enough
    @taken = 0
    @lock = Mutex.new
    @done = Queue.new
  end

  def add(size)
    @lock.synchronize do
      @first_at ||= BenchProgram.now
      @last_at = BenchProgram.now
      @done << true if @taken < @enough && (@taken += size) >= @enough
    end
  end

  def wait = @done.pop
end

$tally = Tally.new(0) # rubocop:disable Style/GlobalVars -- replaced while the readers run

def take(batch)
  return if batch.empty?

  batch.payloads.each(&:bytesize)
  size = batch.size
  batch.release
  $tally.add(size) # rubocop:disable Style/GlobalVars
end

def read_by_set(consumers)
  set = Penstock::ConsumerSet.new(*consumers)
  [Thread.new { loop { set.wait(timeout: 1).each { |one| take(one.poll_batch(max: 1_000, timeout: 0)) } } }]
end

def read_by_threads(consumers)
  consumers.map { |one| Thread.new { loop { take(one.poll_batch(max: 1_000, timeout: 1)) } } }
end

# @return [Integer] ns of CPU time of these threads
def cpu_of(threads)
  threads.sum { |thread| File.read("/proc/self/task/#{thread.native_thread_id}/schedstat").to_i }
end

# The idle ones are assigned first, so that this does not count.
# @return [Float] seconds from the first message to the last
def read_backlog(consumers)
  $tally = tally = Tally.new(BUSY * EACH) # rubocop:disable Style/GlobalVars
  consumers.each_with_index.reverse_each { |one, partition| one.assign(TOPIC => { partition => partition < BUSY ? 0 : :end }) }
  tally.wait
  tally.last_at - tally.first_at
end

def one_by_one(producer)
  ONE_BY_ONE.times do
    $tally = Tally.new(1) # rubocop:disable Style/GlobalVars
    producer.produce_sync(**MESSAGE, partition: 0)
    $tally.wait # rubocop:disable Style/GlobalVars
  end
end

writer = Penstock::Producer.new("bootstrap.servers": SERVERS, "linger.ms": 0)
readers = mode == "set" ? read_by_set(consumers) : read_by_threads(consumers)
read_backlog(consumers) # afterwards the first consumer is at the end of its partition
threads = File.read("/proc/self/status")[/^Threads:\s*(\d+)/, 1].to_i

rounds(BUSY * EACH, mode == "set" ? ", one thread with a set" : ", a thread for each consumer") do
  seconds = read_backlog(consumers)
  sleep SETTLE_SECONDS
  before = cpu_of(readers)
  sleep 1
  idle = cpu_of(readers)
  one_by_one(writer)
  { seconds:, threads:, idle_us: (idle - before) / 1e3, message_us: (cpu_of(readers) - idle) / 1e3 / ONE_BY_ONE }
end
exit!(0) # closing all of them is not measured

# frozen_string_literal: true

# The cost of idle producers for a process: ruby idle.rb SERVERS TOPIC MODE IDLE [SETTING=VALUE...]; see idle.c.

require_relative "program"
require_relative "../fibers"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

MESSAGES = 5_000
SETTLE_SECONDS = 3
mode = ARGUMENTS[0].to_sym

def status(name) = File.read("/proc/self/status")[/^#{name}:\s*(\d+)/, 1].to_i

# @return [Float] ms of the process's CPU time in a second without work
def idle_cpu
  before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :float_millisecond)
  sleep 1
  Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :float_millisecond) - before
end

# Microseconds of the poller's CPU time for each of its wake-ups, and the median between two delivery results. A fiber waits for
# the messages: a thread would serve its client itself, and the poller would sleep.
# @return [Hash]
def cost_of_a_wakeup(busy)
  before = busy.poller.stats
  clock = (~before[:thread_id] << 3) | 6 # Linux: the CPU clock of a thread
  used = [Process.clock_gettime(clock, :nanosecond)]
  Fibers.run(:plain, 1) do
    MESSAGES.times do
      busy.produce_sync(MESSAGE)
      used << Process.clock_gettime(clock, :nanosecond)
    end
  end
  costs = used.each_cons(2).map { |one, other| (other - one) / 1e3 }.sort
  { mean_us: costs.sum / (busy.poller.stats[:wakeups] - before[:wakeups]), median_us: costs[costs.size / 2] }
end

busy = producer(mode:)
idle = Array.new(Integer(ARGUMENTS[1])) { producer(mode:) }
sleep SETTLE_SECONDS
rounds(MESSAGES, ", #{mode == :thread ? "a polling thread for each producer" : "one poller"}") do
  cpu_ms = idle_cpu
  { cpu_ms:, kilobytes: status("VmRSS"), threads: status("Threads"), **(mode == :fd ? cost_of_a_wakeup(busy) : {}) }
end
exit!(0) if idle.size > 100 # closing all of them is not measured

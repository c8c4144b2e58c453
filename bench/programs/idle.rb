# frozen_string_literal: true

# What so many idle producers cost a process: ruby idle.rb SERVERS TOPIC MODE IDLE [SETTING=VALUE...]; see idle.c.

require_relative "program"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

MESSAGES = 5_000
SETTLE_SECONDS = 3
mode = ARGUMENTS[0].to_sym

def status(name) = File.read("/proc/self/status")[/^#{name}:\s*(\d+)/, 1].to_i

# @return [Float] ms of the process's CPU in an idle second
def idle_cpu
  before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :float_millisecond)
  sleep 1
  Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :float_millisecond) - before
end

# @return [Float] microseconds of the poller's CPU for each of its wake-ups
def cost_of_a_wakeup(busy)
  before = busy.poller.stats
  MESSAGES.times { busy.produce_sync(MESSAGE) }
  after = busy.poller.stats
  (after[:cpu_seconds] - before[:cpu_seconds]) / (after[:wakeups] - before[:wakeups]) * 1e6
end

busy = producer(mode:)
idle = Array.new(Integer(ARGUMENTS[1])) { producer(mode:) }
sleep SETTLE_SECONDS
rounds(MESSAGES, ", #{mode == :thread ? "a polling thread for each producer" : "one poller"}") do
  cpu_ms = idle_cpu
  { cpu_ms:, kilobytes: status("VmRSS"), threads: status("Threads"), wakeup_us: (cost_of_a_wakeup(busy) if mode == :fd) }.compact
end
exit!(0) if idle.size > 100 # closing them all is not what is measured

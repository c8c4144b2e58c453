# frozen_string_literal: true

# From librdkafka's verdict until the waiter runs again:
# ruby wait.rb SERVERS TOPIC PLUGIN ROUND_TRIPS WAITER BESIDE [SETTING=VALUE...]
#
# WAITER is thread, async (a fiber of the async gem) or plain (a fiber of ../plain_scheduler.rb); BESIDE is alone, or busy: a
# thread computes all the time. The verdict's moment is noted by a plugin inside librdkafka (acknowledged.c), the same in C and
# in Ruby, before the report is on its queue: the wake-up of who takes it from there counts. The waiter runs again when
# produce_sync has returned: its report counts as well.

require "fiddle"
require_relative "program"
require_relative "../fibers"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

PLUGIN, TRIPS, WAITER, BESIDE = ARGUMENTS
ACKNOWLEDGED_NS = Fiddle::Pointer.new(Fiddle::Handle.new(PLUGIN)["acknowledged_ns"])
COUNT = Integer(TRIPS)

def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

def round_trips(producer)
  trips = []
  wakes = []
  COUNT.times do
    started = now_ns
    producer.produce_sync(MESSAGE)
    ended = now_ns
    trips << (ended - started)
    wakes << (ended - ACKNOWLEDGED_NS[0, 8].unpack1("q"))
  end
  { trips:, wakes: }
end

producer = producer("plugin.library.paths" => PLUGIN)
computed = 0
Thread.new { loop { computed += 1 } } if BESIDE == "busy"
rounds(COUNT) do
  found = nil
  work = ->(_number = 0) { found = round_trips(producer) }
  WAITER == "thread" ? Thread.new(&work).join : Fibers.run(WAITER.to_sym, 1, &work)
  found
end

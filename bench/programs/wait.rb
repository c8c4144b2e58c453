# frozen_string_literal: true

# The time from librdkafka's delivery result until the waiter runs again:
# ruby wait.rb SERVERS TOPIC PLUGIN ROUND_TRIPS WAITER BESIDE [SETTING=VALUE...]
#
# WAITER is thread, async (a fiber of the async gem) or plain (a fiber of ../plain_scheduler.rb). BESIDE is alone, or busy:
# another thread computes all the time. A plugin inside librdkafka (acknowledged.c) records the moment of the delivery result, in
# C and in Ruby alike, before the report is on its queue. So the wake-up of the thread that reads the report counts. The waiter
# runs again when produce_sync has returned, so making the report counts as well.

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

# frozen_string_literal: true

# Messages one by one in several waiters: ruby waiters.rb SERVERS TOPIC MESSAGES KIND WAITERS PRODUCERS [SETTING=VALUE...]
#
# KIND is thread, async (fibers of the async gem) or plain (fibers of ../plain_scheduler.rb).

require_relative "program"
require_relative "../fibers"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

kind = ARGUMENTS[1].to_sym
messages, waiters, size = ARGUMENTS.values_at(0, 2, 3).map { |text| Integer(text) }
producers = Array.new(size) { producer }

share = ->(index) { (messages / waiters) + (index < messages % waiters ? 1 : 0) }
work = lambda do |index|
  one = producers[index % producers.size]
  share[index].times { one.produce_sync(MESSAGE) }
end
rounds(messages) do
  kind == :thread ? Array.new(waiters) { |i| Thread.new(i, &work) }.each(&:join) : Fibers.run(kind, waiters, &work)
end

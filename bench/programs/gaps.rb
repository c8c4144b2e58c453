# frozen_string_literal: true

# produce_many_sync of 1,000 messages after a pause: ruby gaps.rb SERVERS TOPIC SECONDS [SETTING=VALUE...]

require_relative "program"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

pause = Float(ARGUMENTS[0])
producer = producer()
messages = [MESSAGE] * 1_000
rounds(messages.size) do
  sleep pause
  start = now
  producer.produce_many_sync(messages)
  { ms: (now - start) * 1_000 }
end

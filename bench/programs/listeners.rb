# frozen_string_literal: true

# What a listener costs: ruby listeners.rb SERVERS TOPIC MESSAGES KIND [SETTING=VALUE...]
#
# KIND is none, one, sleeper or quick. one: a listener of message.acknowledged; a round ends when it has received all events.
# sleeper: messages one by one, with a listener, beside another producer whose listener sleeps. quick: the same beside a listener
# that does not sleep.

require_relative "program"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

EVENT = "message.acknowledged"
count = Integer(ARGUMENTS[0])
kind = ARGUMENTS[1]

def listening(count) = producer { |config| config.event_queue_limit = 2 * (count + 1) }

def wait_until = (sleep 0.0005 until yield)

def stream(kind, count)
  producer = listening(count)
  published = 0
  producer.monitor.subscribe(EVENT) { |event| published += 1 if event[:offset] >= 0 } if kind == "one"
  messages = [MESSAGE] * count
  sent = 0
  rounds(count) do
    producer.produce_many_sync(messages)
    sent += count
    wait_until { kind == "none" || published == sent }
  end
end

# @return [Hash] ms from the call until its delivery result, and until the listener ran
def one_by_one(producer, events, count)
  events.clear
  results = Array.new(count) do
    start = now
    producer.produce_sync(**MESSAGE, label: start)
    (now - start) * 1_000
  end
  wait_until { events.size == count }
  { results:, events: events.dup }
end

def beside_another(kind, count)
  other = listening(count)
  other.monitor.subscribe(EVENT) { kind == "sleeper" ? sleep : nil }
  other.produce_sync(MESSAGE)
  producer = listening(count)
  events = []
  producer.monitor.subscribe(EVENT) { |event| events << ((now - event[:label]) * 1_000) }
  rounds(count) { one_by_one(producer, events, count) }
  exit!(0) # the other listener sleeps for ever
end

%w[none one].include?(kind) ? stream(kind, count) : beside_another(kind, count)

# frozen_string_literal: true

# Reads a topic from its beginning: ruby consume.rb SERVERS TOPIC KIND PARTITIONS MESSAGES PASSES [SETTING=VALUE...]
#
# KIND is batch (poll_batch, and every payload), each (one by one), json (poll_batch, and JSON.parse of every payload), values
# (poll_batch with config.deserializer, and the value of every message) or parse (json, but only the time in JSON.parse counts).
# Each pass has a new consumer. The messages after the first batch are timed, and the time is that of all messages at their rate.
# There is no group.

require_relative "program"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

kind, *numbers = ARGUMENTS
PARTITIONS, COUNT, PASSES = numbers.map { |number| Integer(number) }

DESERIALIZER = kind == "values" ? :json : nil

def consumer(partitions, offset)
  one = Penstock::Consumer.new("bootstrap.servers": SERVERS, **SETTINGS.transform_keys(&:to_sym)) do |config|
    config.deserializer = DESERIALIZER
  end
  one.assign(TOPIC => partitions.to_h { |partition| [partition, offset] })
end

# The block takes messages and returns how many.
def timed
  one = consumer(0...PARTITIONS, 0)
  start = nil
  first = taken = 0
  while taken < COUNT
    taken += yield(one)
    next if start || taken.zero?

    first = taken
    start = now
  end
  (now - start) * COUNT / (COUNT - first)
ensure
  one&.close
end

# @yieldparam batch [Penstock::Batch]
def batches
  timed do |one|
    batch = one.poll_batch(max: 1_000, timeout: 5)
    yield batch
    batch.release
    batch.size
  end
end

def parse(payloads) = payloads.each { |payload| JSON.parse(payload) }

# The part of the time of "json" that JSON.parse takes.
def parse_alone
  spent = parsed = 0
  batches do |batch|
    payloads = batch.payloads
    start = now
    parse(payloads)
    spent += now - start
    parsed += payloads.size
  end
  spent * COUNT / parsed
end

# One message is polled first.
def each
  seen = 0
  timed do |one|
    next (seen = one.poll(timeout: 5) ? 1 : 0) if seen.zero?

    one.each(timeout: 5) do |message|
      message.payload.bytesize
      break if (seen += 1) == COUNT
    end
    COUNT - 1
  end
end

rounds(COUNT * PASSES) do
  took = Array.new(PASSES) do
    case kind
    when "batch" then batches { |batch| batch.payloads.each(&:bytesize) }
    when "json" then batches { |batch| parse(batch.payloads) }
    when "values" then batches { |batch| batch.each(&:value) }
    when "parse" then parse_alone
    else each
    end
  end.sum
  { seconds: took }
end

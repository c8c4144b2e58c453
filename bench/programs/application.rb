# frozen_string_literal: true

# An application reads a topic from its beginning: ruby application.rb SERVERS TOPIC KIND PARTITIONS MESSAGES [SETTING=VALUE...]
#
# KIND is batch (process_batch with 100 messages, and every payload), one (process, order :partition), key (process, order :key)
# or parsed (one, and every value, with value: :json). Each round has a new application with a group of its own. The time is that
# of all messages, at the rate of those after the first calls.
#
# Each processor counts its own messages, as a plain consumer does. A lock for each message would count as a cost of the
# application.

require_relative "program"
require "penstock/app"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

kind, *numbers = ARGUMENTS
PARTITIONS, COUNT = numbers.map { |number| Integer(number) }
OPTIONS = { "batch" => { batch: { size: 100 } }, "one" => {}, "key" => { order: :key }, "parsed" => { value: :json } }.fetch(kind)

# What has a number of messages that it has seen.
class Reader < Penstock::Processor
  ALL = [] # rubocop:disable Style/MutableConstant -- of the application that runs
  attr_reader :seen

  def initialize
    super
    @seen = 0
    ALL << self
  end
end

# In batches.
class Batches < Reader
  def process_batch(batch)
    batch.payloads.each(&:bytesize)
    @seen += batch.size
  end
end

# One by one.
class Each < Reader
  def process(message)
    message.payload.bytesize
    @seen += 1
  end
end

# One by one, decoded.
class Parser < Reader
  def process(message)
    message.value
    @seen += 1
  end
end

PROCESSOR = { "batch" => Batches, "parsed" => Parser }.fetch(kind, Each)

# @return [Array(Float, Integer)] when so many messages are processed, and how many they are
def wait_until(count)
  sleep 0.002 until (seen = Reader::ALL.sum(&:seen)) >= count
  [now, seen]
end

rounds(COUNT) do
  Reader::ALL.clear
  app = Penstock.app do |one|
    one.kafka = { "bootstrap.servers": SERVERS, **SETTINGS.transform_keys(&:to_sym) }
    one.group("bench-#{Process.pid}-#{rand(2**32)}") { |group| group.topic(TOPIC, to: PROCESSOR, **OPTIONS) }
  end
  server = app.start
  started, number = wait_until(1)
  ended, = wait_until(COUNT)
  server.stop
  { seconds: (ended - started) * COUNT / (COUNT - number) }
end

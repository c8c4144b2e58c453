# frozen_string_literal: true

# An application reads a topic from its beginning: ruby application.rb SERVERS TOPIC KIND PARTITIONS MESSAGES [SETTING=VALUE...]
#
# KIND is batch (process_batch with 100 messages, and every payload), one (process, order :partition), key (process, order :key)
# or parsed (one, and every value, with value: :json). Each round has a new application with a group of its own. The time is that
# of all messages, at the rate of those after the first call.
#
# In the order of partitions each processor counts its own messages, as a plain consumer does. A lock for each message would count
# as a cost of the application.

require_relative "program"
require "penstock/app"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

kind, *numbers = ARGUMENTS
PARTITIONS, COUNT = numbers.map { |number| Integer(number) }
OPTIONS = { "batch" => { batch: { size: 100 } }, "one" => {}, "key" => { order: :key }, "parsed" => { value: :json } }.fetch(kind)

# Counts what is processed, and knows when all is.
class Count
  def initialize
    @lock = Mutex.new
    @done = 0
    @ended = Thread::Queue.new
  end

  def add(number)
    @lock.synchronize do
      @first ||= [now, number]
      @done += number
      @ended << now if @done == COUNT
    end
  end

  # @return [Float] seconds
  def seconds
    ended = @ended.pop
    started, number = @first
    (ended - started) * COUNT / (COUNT - number)
  end
end

# Message i is in the partition i % PARTITIONS.
class Reader < Penstock::Processor
  def assigned
    @size = (COUNT - partition - 1).div(PARTITIONS) + 1
    @seen = 0
  end

  def process(message)
    message.payload.bytesize
    seen
  end

  private

  def seen
    @seen += 1
    count.add(@seen == 1 ? 1 : @size - 1) if @seen == 1 || @seen == @size
  end
end

# Decodes, too.
class Parser < Reader
  def process(message)
    message.value
    seen
  end
end

# @return [#call] a class of processors, or what is called with a message
def processor(kind, count)
  case kind
  when "batch"
    Class.new(Penstock::Processor) do
      define_method(:process_batch) do |batch|
        batch.payloads.each(&:bytesize)
        count.add(batch.size)
      end
    end
  when "key" then ->(message) { message.payload.bytesize && count.add(1) }
  else Class.new(kind == "parsed" ? Parser : Reader) { define_method(:count) { count } }
  end
end

rounds(COUNT) do
  count = Count.new
  app = Penstock.app do |one|
    one.kafka = { "bootstrap.servers": SERVERS, **SETTINGS.transform_keys(&:to_sym) }
    one.group("bench-#{Process.pid}-#{rand(2**32)}") { |group| group.topic(TOPIC, to: processor(kind, count), **OPTIONS) }
  end
  server = app.start
  seconds = count.seconds
  server.stop
  { seconds: }
end

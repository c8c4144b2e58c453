# frozen_string_literal: true

# From a producer's send to the consumer: ruby arrival.rb SERVERS TOPIC MESSAGES SENDER; see arrival.c, which is the sender.

require_relative "program"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

count = Integer(ARGUMENTS[0])
SENDER = ARGUMENTS[1]
CONSUMER = Penstock::Consumer.new("bootstrap.servers": SERVERS).assign(TOPIC => { 0 => :beginning })

def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

rounds(count) do
  started_ns = now_ns
  sender = spawn(SENDER, SERVERS, TOPIC, count.to_s, "send")
  latencies = []
  while latencies.size < count
    message = CONSUMER.poll(timeout: 1) or next
    arrived_ns = now_ns
    sent_ns = message.payload.unpack1("q")
    latencies << ((arrived_ns - sent_ns) / 1e3) if sent_ns > started_ns
  end
  Process.wait(sender)
  { latencies_us: latencies }
end

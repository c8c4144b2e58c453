# frozen_string_literal: true

# From a new client to its first message: ruby first.rb SERVERS TOPIC KIND [SETTING=VALUE...]
#
# KIND is produce (from Producer.new until produce_sync returns), assign or subscribe (from the call until poll returns a message;
# subscribe joins a new group). The topic has a message. SETTINGs are a producer's, so consumers do not get them.

require_relative "program"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

kind = ARGUMENTS[0]
producer.close # the topic exists, and has a message

def timed
  start = now
  yield
  { ms: (now - start) * 1_000 }
end

def produce
  first = nil
  found = timed do
    first = Penstock::Producer.new("bootstrap.servers": SERVERS, **SETTINGS)
    first.produce_sync(MESSAGE)
  end
  first.close
  found
end

def consume(kind)
  consumer = Penstock::Consumer.new("bootstrap.servers": SERVERS, "group.id": "first-#{Process.pid}-#{now}",
                                    "enable.auto.commit": false, "auto.offset.reset": "earliest")
  found = timed do
    kind == "assign" ? consumer.assign(TOPIC => { 0 => :beginning }) : consumer.subscribe(TOPIC)
    nil until consumer.poll(timeout: 10)
  end
  consumer.close
  found
end

rounds(1) { kind == "produce" ? produce : consume(kind) }

# frozen_string_literal: true

# One thread sends messages and waits for none, another waits for each of its own:
# ruby mixed.rb SERVERS TOPIC MESSAGES KIND [SETTING=VALUE...]
#
# MESSAGES are those of the first thread, which sends RATE a second. With KIND flush callers that wait do not linger, with KIND
# linger they do. A round reports how many messages a Produce request had, without the first UNCOUNTED s: in them Penstock has to
# find out that there are messages nobody waits for.

require_relative "program"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

RATE = 20_000
STEP = 0.0005 # s between two looks at the clock
UNCOUNTED = 0.1
messages = Integer(ARGUMENTS[0])
flushes = ARGUMENTS[1] == "flush"

# Sends at a constant rate, however long a sleep takes.
def send_steadily(producer, messages)
  started = now
  sent = 0
  while sent < messages
    due = [((now - started) * RATE).to_i, messages].min
    (due - sent).times { producer.produce_async(MESSAGE) }
    sent = due
    sleep STEP
  end
end

def counts(producer) = producer.metrics.to_h.values_at(:messages, :requests)

producer = producer { |config| config.flush_on_wait = flushes }
rounds(messages) do
  sender = Thread.new { send_steadily(producer, messages) }
  waiting = Thread.new { producer.produce_sync(MESSAGE) while sender.alive? }
  sleep UNCOUNTED
  before = counts(producer)
  [sender, waiting].each(&:join)
  sent, requests = counts(producer).zip(before).map { |now, earlier| now - earlier }
  { request_size: Float(sent) / requests }
end

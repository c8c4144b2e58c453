# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/slow_calls"

# librdkafka makes a handle for each topic at its first use in a client. That takes a lock, for which it may wait long. Meanwhile
# other Ruby threads run, even those that use the client.
class TopicTest < PenstockTest
  slow(/while_a_new_topic_is_slow/)
  alone(/while_a_new_topic_is_slow/)

  include SlowCalls

  PROGRAM = <<~'RUBY'
    servers, what, asked = ARGV
    Warning[:experimental] = false
    one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": servers, "linger.ms": 0 } }
    client = Internal.of(one).client
    client.produce_many([{ topic: "known", payload: "x" }], 10_000)

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    payload = +"before"
    messages = [{ topic: "known", payload: "x" }, { topic: "slow", payload:, partition: 0 }, { topic: "slower", payload: "y" }]
    shareable = one.shareable if what == "ractor"
    first = Thread.new do
      case what
      when "produce" then client.produce(messages[1]).wait(timeout: 20)
      when "produce_many" then client.produce_many(messages, 20_000)
      when "a batch" then client.produce_many([messages[1]] * 200, 20_000)
      when "partition_count" then client.partition_count("slow", 20_000, 0)
      when "ractor" then Ractor.new(shareable) { |handle| handle.produce_sync(topic: "slow", payload: "y").offset }.take
      end
    end
    second = Thread.new do
      sleep 0.2
      payload.replace("a longer payload than before " * 10)
      case asked
      when "known" then client.produce_many([messages[0]], 20_000)
      when "same" then client.produce_many([messages[1]], 20_000)
      when "count" then client.partition_count("slow", 20_000, 0)
      end
    end
    longest = 0
    last = now
    while first.alive?
      sleep 0.005
      longest = [longest, now - last].max
      last = now
    end
    first.join
    second.join
    puts longest, client.counters.values_at(:messages, :delivered, :failed).inspect
    one.close
  RUBY

  SENT = { "produce" => 1, "produce_many" => 3, "a batch" => 200, "partition_count" => 0, "ractor" => 1 }.freeze

  def go_on(what, asked)
    own = Penstock::EmbeddedCluster.new(brokers: 1)
    longest, counters = slow!(PROGRAM, own.bootstrap_servers, what, asked, topic_ms: 1_500).lines
    assert_operator Float(longest), :<, 0.7, "s without a turn for another thread, of 1.5"
    sent = 1 + SENT.fetch(what) + (asked == "count" ? 0 : 1)
    assert_equal "[#{sent}, #{sent}, 0]\n", counters
    own
  end

  CASES = [*SENT.keys.product(%w[known]), %w[produce same], %w[produce_many count], %w[partition_count count]].freeze

  CASES.each do |what, asked|
    define_method("test_other_threads_run_while_a_new_topic_is_slow_in_#{what.tr(" ", "_")}_beside_#{asked}") do
      go_on(what, asked)
    end
  end

  # Then the values that were read from the message before are stale.
  slow def test_a_payload_that_changes_while_a_new_topic_is_made_is_sent_in_its_new_state
    cluster = go_on("produce", "known")
    consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers } }
    consumer.assign("slow" => { 0 => :beginning })
    messages = []
    eventually { messages.concat(consumer.poll_batch(timeout: 0.2)).any? }
    assert_equal ["a longer payload than before " * 10], messages.map(&:payload)
    consumer.close
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/slow_calls"
require "tmpdir"

# How often Penstock asks librdkafka for the group's protocol, and that it does not ask while the consumer is closing.
class RebalanceProtocolTest < PenstockTest
  thorough(/_cooperative_sticky\z/)

  slow(/the_protocol_is_queried_once/)

  include SlowCalls

  PROGRAM = <<~'RUBY'
    servers, topic, strategy = ARGV
    consumer = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": servers, "group.id": "protocol-#{Process.pid}", "auto.offset.reset": "earliest",
                       "partition.assignment.strategy": strategy }
    end
    consumer.subscribe(topic)
    message = nil
    message = consumer.poll(timeout: 1) until message
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    consumer.close
    puts Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
  RUBY

  %w[range cooperative-sticky].each do |strategy|
    # defect C15
    define_method("test_the_protocol_is_queried_once_for_an_assignment_and_not_while_closing_#{strategy.tr("-", "_")}") do
      name = topic(partitions: 2)
      producer.produce_sync(topic: name, payload: "x")
      Dir.mktmpdir do |path|
        asked = File.join(path, "asked")
        seconds = Float(slow!(PROGRAM, cluster.bootstrap_servers, name, strategy, protocol: asked))
        assert_equal ["asked\n"], File.readlines(asked)
        assert_operator seconds, :<, 8
      end
    end
  end
end

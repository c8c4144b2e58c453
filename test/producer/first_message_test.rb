# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/hostile_broker"

# See core/produce/first_message.c. librdkafka looks for a broker to ask for a producer id each 500 ms.
class FirstMessageTest < PenstockTest
  alone(/takes_less_than_500_ms/)

  [1, 3].each do |brokers|
    define_method("test_the_first_message_of_an_idempotent_producer_takes_less_than_500_ms_with_#{brokers}_brokers") do
      own = own_cluster(brokers:)
      own.create_topic("first", partitions: brokers)
      assert_operator Array.new(5) { first_message(own.bootstrap_servers) }.sort[2], :<, 0.4 # some may be delayed
    end
  end

  slow def test_idempotence_costs_at_most_two_more_requests_for_metadata_and_none_after_the_first_delivery
    plain, idempotent = [false, true].map do |setting|
      broker = HostileBroker.new
      one = producer(servers: broker.address, "enable.idempotence": setting)
      one.produce_sync(topic: "attacked", payload: "x")
      delivered = broker.counts
      sleep 1 # no request may come; there is nothing to wait for
      assert_equal delivered, broker.counts
      one.close
      broker.close
      delivered.fetch(:metadata, 0)
    end
    assert_operator idempotent, :<=, plain + 2
  end

  private

  # @return [Float] seconds until the first message of a new producer is delivered
  def first_message(servers)
    begins = now
    one = producer(servers:)
    one.produce_sync(topic: "first", payload: "x")
    (now - begins).tap { one.close }
  end
end

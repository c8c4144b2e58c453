# frozen_string_literal: true

require_relative "producer_test_case"

# What the tests of the ready-made listeners share.
class MetricsTestCase < ProducerTestCase
  def teardown
    Penstock.monitor.clear
    super
  end

  # Notifies a listener of an event, as a producer would.
  def publish(listener, event, **payload)
    Penstock::Monitor.new(above: nil).tap { |monitor| monitor.subscribe(listener) }
                     .instrument(event, { producer_id: "test", **payload })
  end

  # Sends one message with each of three clients in turn: the first is disconnected, the second has a fatal error.
  def outlive_two_clients(producer, topic)
    producer.produce_sync(topic:, payload: "1")
    producer.disconnect
    producer.produce_sync(topic:, payload: "2")
    producer.client.test_fatal_error(:out_of_order_sequence_number, "for a test")
    producer.produce_sync(topic:, payload: "3")
  end

  def recovering
    producer(log_level: 0) do |config|
      config.logger = Logger.new(nil)
      config.wait_backoff_on_idempotent_fatal_error = 1
    end
  end
end

# frozen_string_literal: true

# For tests of misbehaving listeners.
class ListenerTestCase < PenstockTest
  ACKNOWLEDGED = "message.acknowledged"

  def setup
    super
    @release = Queue.new # for listeners that would never end
    @topic = topic(partitions: 1)
  end

  def teardown
    @release.close
    Penstock.monitor.clear
    super
  end

  def impatient(**kafka)
    producer("linger.ms": 0, **kafka) { |config| config.listener_budget = 100 }
  end

  def send_to(producer, count = 1)
    count.times { |i| producer.produce_async(topic: @topic, payload: "x", label: i) }
  end
end

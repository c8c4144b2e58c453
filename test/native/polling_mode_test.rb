# frozen_string_literal: true

require_relative "../test_helper"

# Which poller serves a producer: config.polling.mode.
class PollingModeTest < PenstockTest
  def pollers_threads = native_threads.grep(/\Apenstock.poller/)

  # behaviour: polling.mode
  def test_in_mode_thread_each_producer_has_its_own_poller_and_thread
    name = topic
    pair = Array.new(2) { producer { |config| config.polling.mode = :thread } }
    assert_empty pollers_threads
    pair.each { |one| one.produce_sync(topic: name, payload: "x") }
    eventually { pollers_threads.size == 2 } # a look may miss a thread while others end
    assert_equal [1, 1], pair.map { |one| one.poller.count }
    refute_includes pair.map(&:poller), Penstock::Poller.instance
    assert_equal 2, pair.map(&:poller).uniq.size
    pair.first.close
    eventually { pollers_threads.size == 1 }
  end

  def test_a_variant_is_served_by_its_producers_poller
    name = topic
    one = producer { |config| config.polling.mode = :thread }
    one.with(topic_config: { "compression.type": "gzip" }).produce_sync(topic: name, payload: "x")
    one.produce_sync(topic: name, payload: "x")
    assert_equal 2, one.poller.count
  end
end

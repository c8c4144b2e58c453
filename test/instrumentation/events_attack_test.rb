# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listener_test_case"
require_relative "../support/plain_scheduler"

# Situations in which events, or the threads that publish them, once got lost.
class EventsAttackTest < ListenerTestCase
  # @return [Queue] the labels of acknowledged messages, as they are published
  def published_labels(producer)
    Queue.new.tap { |labels| producer.monitor.subscribe(ACKNOWLEDGED) { |event| labels << event[:label] } }
  end

  # @return [Penstock::Producer] a producer whose listener has begun and never returns
  def stuck
    begun = Queue.new
    impatient.tap do |made|
      made.monitor.subscribe(ACKNOWLEDGED) { (begun << true) && @release.pop }
      send_to(made)
      eventually { begun.size == 1 }
    end
  end

  def source_of(producer) = Internal.of(producer).events

  def dispatchers = Thread.list.select { |thread| thread.name == "penstock.events" }

  def assert_others_publish
    one = impatient
    labels = published_labels(one)
    send_to(one)
    eventually(5, "no worker publishes the events of another producer") { labels.size == 1 }
  end

  # ---- a spare worker is always available ----

  def test_an_unsubscribed_listener_that_never_returns_delays_no_other_producer
    stuck.monitor.clear
    eventually { Internal::EventDispatcher.threads == 1 } # the spare worker ended, because it was no longer needed
    assert_others_publish
  end

  def test_slow_listener_subscribers_that_never_return_delay_no_other_producer
    with_three_slow_producers_and_a_subscriber { @release.pop }
  end

  def test_a_slow_listener_subscriber_that_ends_its_thread_delays_no_other_producer
    with_three_slow_producers_and_a_subscriber { Thread.exit }
  end

  def with_three_slow_producers_and_a_subscriber
    slow = Queue.new
    Penstock.monitor.subscribe("listener.slow") { (slow << true) && yield }
    3.times do |i|
      stuck
      eventually { slow.size == i + 1 }
    end
    assert_others_publish
  end

  def test_a_killed_spare_worker_is_replaced
    stuck
    dispatchers.each { |thread| thread.kill unless at_work?(thread) }
    assert_others_publish
  end

  def at_work?(thread) = thread.backtrace&.any? { |line| line.include?("run_listeners") }

  # ---- no event is lost ----

  def test_pending_events_are_published_even_if_a_listener_subscribes_after_the_client_closed
    producer = impatient
    labels = Queue.new
    producer.monitor.subscribe(ACKNOWLEDGED) { |event| @release.pop && labels << event[:label] }
    send_to(producer)
    eventually { @release.num_waiting == 1 }
    19.times { |i| producer.produce_async(topic: @topic, payload: "x", label: i + 1) }
    producer.flush
    assert producer.disconnect
    producer.monitor.subscribe("error.occurred") { nil }
    20.times { @release << true }
    eventually(5) { labels.size == 20 }
    assert_equal [*0...20], Array.new(20) { labels.pop }
  end

  class Gate < Penstock::Monitor
    attr_accessor :gate

    def listening?(event)
      gate.pop if gate && event == ListenerTestCase::ACKNOWLEDGED
      super
    end
  end

  # For example by a Timeout, because connecting takes long.
  def test_events_are_published_if_the_connecting_thread_is_interrupted
    gate = Queue.new
    producer = self.producer("linger.ms": 0) { |config| config.monitor = Gate.new }
    labels = published_labels(producer)
    client = producer.client
    producer.monitor.gate = gate
    thread = quiet_thread { client.connect }
    eventually { gate.num_waiting == 1 }
    thread.raise(KeyError, "while connecting")
    sleep 0.05
    gate.close
    assert_raises(KeyError) { thread.join }
    send_to(producer)
    eventually(5) { labels.size == 1 }
  end

  # On a busy machine the fiber may connect before it is interrupted, but not in every round.
  def test_events_are_published_if_the_connecting_fiber_is_interrupted
    interrupted = 0
    10.times do
      producer = impatient
      labels = published_labels(producer)
      client = producer.client
      Thread.new do
        Fiber.set_scheduler(PlainScheduler.new)
        fiber = Fiber.schedule do
          client.connect
        rescue KeyError
          interrupted += 1
        end
        fiber.raise(KeyError, "while connecting") if fiber.alive?
      end.join
      send_to(producer)
      eventually(5) { labels.size == 1 }
    end
    assert_operator interrupted, :>, 0
  end

  def test_a_trap_does_not_open_a_client_without_a_worker_for_its_events
    output = ruby!(<<~RUBY)
      producer = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": #{cluster.bootstrap_servers.inspect}, "linger.ms": 0 }
      end
      labels = Queue.new
      producer.monitor.subscribe("message.acknowledged") { |event| labels << event[:label] }
      producer.client # not open yet
      produce = ->(label) { producer.produce_async(topic: #{@topic.inspect}, payload: "x", label:) }
      trap("USR1") { produce.call(:trap) rescue puts($!.class) }
      Process.kill("USR1", Process.pid)
      sleep 0.1
      produce.call(:later)
      producer.close
      puts labels.pop, labels.size
    RUBY
    assert_equal "Penstock::SignalTrapError\nlater\n0\n", output
  end

  def test_each_event_is_published_once_even_if_worker_threads_are_killed_at_any_point
    producer = impatient
    labels = published_labels(producer)
    100.times do |round|
      producer.produce_many_async(Array.new(30) { |i| { topic: @topic, payload: "x", label: (round * 30) + i } })
      sleep(rand * 0.003)
      dispatchers.sample&.kill
    end
    eventually { labels.size >= 3_000 }
    assert_equal [*0...3_000], Array.new(labels.size) { labels.pop }
  end

  def test_labels_of_unpublished_messages_are_released
    producer = self.producer
    producer.monitor.subscribe("error.occurred") { nil }
    3.times { producer.produce_many_sync(Array.new(500) { { topic: @topic, payload: "x", label: Object.new } }) }
    producer.produce_sync(topic: @topic, payload: "x", label: :last)
    assert_operator source_of(producer).counts.last, :<=, 1
  end

  # ---- statistics ----

  def test_a_listener_that_subscribes_to_statistics_during_connect_gets_them
    producer = self.producer
    Internal.of(producer).credentials.define_singleton_method(:log_in) do |client|
      super(client)
      producer.monitor.subscribe("statistics.emitted") { nil } unless @subscribed
      @subscribed = true
    end
    before = producer.client
    eventually { producer.status.connected? && !producer.client.equal?(before) }
  end

  # ---- tokens ----

  class Ending
    attr_reader :asked

    def initialize(&ending)
      @ending = ending
      @asked = 0
    end

    def on_oauthbearer_token_refresh(_event)
      @asked += 1
      @ending.call
    end
  end

  def test_a_token_provider_that_ends_its_thread_counts_as_failed_and_is_called_again
    {
      -> { Thread.exit } => /ended its thread/,
      -> { raise Exception, "of the provider" } => /raised Exception/ # rubocop:disable Lint/RaiseException
    }.each do |ending, reason|
      provider = Ending.new(&ending)
      one = unreachable_producer("security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER") do |config|
        config.oauth.token_provider_listener = provider
        config.rejection_timeout = 100
        config.polling.fd.periodic_poll_interval = 100
      end
      capture_io do
        error = assert_raises(Penstock::AuthenticationError) { one.produce_sync(topic: "nowhere", payload: "x") }
        assert_match(reason, error.message)
        one.close(timeout: 0)
      end
    end
  end

  # defect 14
  def test_a_token_provider_that_throws_is_reported_and_called_again
    provider = Ending.new { throw :nowhere }
    one = unreachable_producer("security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER") do |config|
      config.oauth.token_provider_listener = provider
      config.rejection_timeout = 100
      config.polling.fd.periodic_poll_interval = 100
    end
    errors = Queue.new
    one.monitor.subscribe("error.occurred") { |event| errors << event[:type] }
    error = assert_raises(Penstock::AuthenticationError) { one.produce_sync(topic: "nowhere", payload: "x") }
    assert_match(/raised UncaughtThrowError at #{Regexp.escape(__FILE__)}/, error.message)
    eventually { !errors.empty? }
    assert_equal "callbacks.oauthbearer_token_refresh.error", errors.pop
    one.close(timeout: 0)
  end
end

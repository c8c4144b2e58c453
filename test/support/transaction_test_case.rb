# frozen_string_literal: true

require_relative "producer_test_case"

# What the tests of transactions and recovery share.
class TransactionTestCase < ProducerTestCase
  include FreshCluster

  # A failure outside of the cluster.
  class Mishap < StandardError; end

  # @return [Penstock::Producer] with a unique transactional.id and short pauses between attempts
  def transactional(on: cluster, id: "txn-#{rand(2**64)}", **kafka, &block)
    impatient(on:, "transactional.id": id, **kafka, &block)
  end

  def impatient(on: cluster, **kafka)
    servers = on.respond_to?(:bootstrap_servers) ? on.bootstrap_servers : on
    producer(servers:, log_level: 0, **kafka) do |config|
      config.logger = Logger.new(nil)
      config.wait_backoff_on_transaction_command = 1
      config.wait_backoff_on_transaction_fatal_error = config.wait_backoff_on_idempotent_fatal_error = 1
      yield config if block_given?
    end
  end

  # @return [Thread::Queue<Penstock::Event>] filled as the events are published
  def events(producer, *names)
    Thread::Queue.new.tap do |seen|
      names.each { |name| producer.monitor.subscribe(name) { |event| seen << event unless by_itself?(event) } }
    end
  end

  # Errors that librdkafka reports at any time, and failed delivery results: see events_test.rb.
  def by_itself?(event)
    event.id == "error.occurred" && %w[librdkafka.error librdkafka.dispatch_error].include?(event[:type])
  end

  def taken(queue) = Array.new(queue.size) { queue.pop }

  # @return [Thread::Queue<Penstock::Event>]
  def transaction_events(producer)
    events(producer, *%w[started committed aborted finished].map { |step| "transaction.#{step}" })
  end

  # The steps since the last call, such as %w[started committed finished].
  def steps(queue) = taken(queue).map { |event| event.id.delete_prefix("transaction.") }

  # The failure has left no traces: the next transaction is like the first.
  def assert_usable(producer, topic)
    happened = events(producer, "producer.reload", "error.occurred")
    assert_equal :value, producer.transaction { producer.produce_sync(topic:, payload: "usable") && :value }
    assert_empty taken(happened)
  ensure
    %w[producer.reload error.occurred].each { |name| producer.monitor.clear(name) }
  end

  def in_thread
    thread = Thread.new do
      Thread.current.report_on_exception = false
      yield
    end
    Slowness.join(thread, 20) or flunk "it still runs:\n#{thread.backtrace.first(10).join("\n")}"
    thread.value
  ensure
    thread&.kill&.join
  end
end

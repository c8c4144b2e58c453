# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Threads create objects of every native kind among short-lived garbage, and read them later. The garbage collector runs when
# Ruby decides. If an object is freed too early, another object has taken its place by the time a thread reads it.
class GCChurnTest < ConsumerTestCase
  SECONDS = Float(ENV.fetch("PENSTOCK_GC_CHURN_SECONDS", "3"))
  LATER = 500 # objects that a thread creates before it reads the first

  def test_objects_that_threads_read_later_are_unchanged
    before = GC.count
    @checked = Hash.new(0)
    @counting = Mutex.new
    @over = now + SECONDS
    @topics = Array.new(3) { topic(partitions: 1) }
    [-> { churn_handles }, -> { churn_handles }, -> { churn_messages }, -> { churn_events },
     -> { churn_clients }].map { |work| Thread.new(&work) }.each(&:join)
    assert_equal %i[clients events handles messages reports], @checked.select { |_, count| count.positive? }.keys.sort
    assert_operator GC.count - before, :>, 1
  end

  private

  # Keeps an object.
  # @return [Object, nil] an older object, which is due to be read
  def later(kept, object)
    kept << object
    Array.new(3) { |i| "garbage #{i} #{rand}" }
    kept.size > LATER ? kept.shift : nil
  end

  def checked(kind, expected, actual)
    assert_equal expected, actual, kind.to_s
    @counting.synchronize { @checked[kind] += 1 }
  end

  def until_over
    number = 0
    yield number += 1 while now < @over || number < LATER * 2
  end

  def churn_handles
    one = producer
    kept = []
    until_over do |i|
      name = @topics[i % 3]
      handle = one.produce_async(topic: name.dup, payload: "payload #{i}", label: ["label", i])
      expected, due = later(kept, [[name, i], handle])
      next unless due

      checked(:handles, [expected[0], ["label", expected[1]]], [due.topic, due.label])
      report = due.wait if (i % 10).zero?
      checked(:reports, [expected[0], ["label", expected[1]]], [report.topic, report.label]) if report
    end
    one.flush
  end

  def churn_messages
    name = topic(partitions: 1)
    produce(name, Array.new(1_000) { |i| "payload #{i} #{"x" * (i % 100)}" })
    kept = []
    until_over do |i|
      reader = reading(name) if (i % 1_000) == 1
      @reader = reader || @reader
      message = take(@reader, 1, batch: 1).first
      expected, due = later(kept, [[name, "payload #{message.offset} #{"x" * (message.offset % 100)}", {}], message])
      checked(:messages, expected, [due.topic, due.payload, due.headers]) if due
    end
  end

  def churn_events
    one = producer
    seen = Thread::Queue.new
    one.monitor.subscribe("message.acknowledged") { |event| seen << [event[:topic], event[:label]] }
    until_over do |i|
      one.produce_sync(topic: @topics[0], payload: "x", label: "label #{i}") if (i % 10).zero?
      checked(:events, @topics[0], seen.pop[0]) if (i % 10).zero?
    end
  end

  def churn_clients
    20.times do |i|
      made = producer { |config| config.polling.poller = Penstock::Poller.new }
      checked(:clients, "label #{i}", made.produce_async(topic: @topics[0], payload: "x", label: "label #{i}").wait.label)
      made.close
    end
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require "penstock/app"

# The lanes of one partition, with the work that workers do on them: each piece in a fiber, so that a test decides in which order
# messages begin and end, and what the loop does meanwhile. Whatever happens, each message is processed once, those of a key one
# after another and in order.
class AppLanesTest < Minitest::Test
  # A batch, as far as a run and a worker need one.
  Messages = Struct.new(:records) do
    def offsets = records.map(&:offset)
    def keys(first = 0, count = records.size) = records[first, count].each { |record| record.read += 1 }.map(&:key)
    def call_memory = records.size
    def at(index) = records[index]
    alias_method :[], :at

    def walk(first, count, _latest, &)
      records[first, count].each(&)
      Fiber.yield :ended if first.zero? && records[0].key == "ends late"
    end
  end
  Record = Struct.new(:offset, :key, :read) # how often its key was

  # Of a message that a processor has sent. The worker that waits for it stops once.
  Delivery = Struct.new(:known) do
    def delivered? = known

    def wait
      self.known = true
      Fiber.yield :delivered
    end
  end

  # What an application has around a partition: its loop, and its subscription to a group.
  class Surroundings
    attr_reader :now

    def initialize
      @now = 0.0
      @timers = []
    end

    def after(seconds)
      @now += seconds
      due, @timers = @timers.partition { |timer| timer.at <= @now }
      due.each(&:run)
    end

    def later(seconds, partition, &)
      Internal::Timers.const_get(:Timer, false).new(@now + seconds, 0, proc(&)).tap { |timer| @timers << partition.keep(timer) }
    end

    def produce_async(_message) = Delivery.new(false)

    def main = self
    def producer = self
    def runtime = self
    def throttles = self
    def memory = self
    def of(*) = nil
    def added(*) = nil
    def short? = false
    def quieted = false
    def on_the_clock(_time) = nil
    def shares_lanes? = true
    def around = Internal::Around.new([])
  end

  def setup
    @around = Surroundings.new
    @done = []
    @out = {} # of each piece of work, its fiber
    @busy = []
  end

  # A partition whose processors run this block for each message, in the fiber of their work.
  def partition(order: :key, **options, &block)
    processor = Class.new(Penstock::Processor) { define_method(:process, &block) }
    app = Penstock.app do |one|
      one.kafka = { "bootstrap.servers": "nowhere" }
      one.group("billing") { |group| group.topic "orders", to: processor, order:, **options }
    end
    route = app.instance_variable_get(:@settings).groups.first.routes.first
    Internal::Partition.new(@around, "orders", 0, route).tap do |made|
      made.processors.begin
      made.start
    end
  end

  def add(partition, *keys)
    @next ||= 0
    Messages.new(keys.flatten.map { |key| Record.new((@next += 1) - 1, key, 0) }).tap { |batch| partition.add(batch) }
  end

  # Gives work to a worker, which goes on until the processor stops it with Fiber.yield.
  def begin_work(partition)
    work = partition.next_work or return
    @out[work] = Fiber.new { work.run }
    go_on(work)
  end

  def go_on(work)
    @out.fetch(work).resume
    settle(work) unless @out[work].alive?
  end

  def settle(work)
    @out.delete(work)
    work.partition.settle(work) do |lane, _error|
      lane.attempt += 1
      lane.waiting = @around.later(1, work.partition) do
        lane.waiting = nil
        work.partition.offer(lane)
      end
    end
  end

  def work_off(partition)
    10_000.times do
      commit(partition)
      @around.after(1)
      @out.keys.each { |work| go_on(work) } # rubocop:disable Style/HashEachMethods -- it changes
      nil while @out.size < 10 && begin_work(partition)
      return if @out.empty? && partition.unfinished.zero?
    end
    flunk "no end: #{@out.size} pieces of work, #{partition.unfinished} messages"
  end

  def commit(partition)
    offset, map = partition.tracker.to_commit
    partition.tracker.committed(offset, map)
  end

  # Until those of different keys share a lane.
  def quick_partition(**options, &)
    partition(**options, &).tap do |made|
      add(made, Array.new(20) { |i| "warm #{i}" })
      work_off(made)
      @done.clear
    end
  end

  def test_a_slow_message_among_quick_ones_holds_up_no_later_piece_of_work
    done = @done
    partition = quick_partition do |record|
      Fiber.yield if record.key == "slow"
      done << record.offset
    end
    add(partition, "slow", Array.new(1_000) { |i| "k#{i}" }, "slow")
    begin_work(partition)
    @around.after(0.2)
    nil while begin_work(partition)
    with_it = 1_002 - 20 - @done.size
    assert_operator with_it, :<, 200, "messages of keys that a worker has together with the slow one"
    refute_includes @done, 20
    work_off(partition)
    assert_equal [*20..1_021], @done.sort
    assert_operator @done.index(20), :<, @done.index(1_021)
    assert_equal [0, 0], [partition.unfinished, partition.lane_count]
  end

  def test_of_quick_messages_one_fails_and_only_its_key_waits
    done = @done
    tries = 0
    partition = quick_partition { |record| record.key == "k3" && (tries += 1) < 9 ? raise("down") : done << record.offset }
    add(partition, Array.new(200) { |i| "k#{i % 50}" })
    nil while begin_work(partition)
    assert_equal 196, @done.size
    work_off(partition)
    assert_equal [*20..219], @done.sort
    assert_equal (20..219).select { |i| (i - 20) % 50 == 3 }, (@done.select { |i| (i - 20) % 50 == 3 })
    assert_equal 12, tries
  end

  def test_several_workers_have_messages_that_are_quick_no_more
    slow = false
    around = @around
    partition = quick_partition { |_| around.after(0.0003) if slow }
    slow = true
    add(partition, Array.new(900) { |i| "k#{i}" })
    begin_work(partition)
    assert_equal 2, Array.new(2) { partition.next_work }.compact.size, "pieces of work"
  end

  # Between those of a key that has failed before, each message is a slice of its own.
  def test_when_quick_messages_get_lanes_of_their_own_each_key_is_read_once_more
    partition = quick_partition { |record| raise "down" if record.key.start_with?("bad") }
    add(partition, "bad")
    begin_work(partition)
    batch = add(partition, Array.new(400) { |i| i.odd? ? "bad" : "k#{i}" }, "bad, too")
    begin_work(partition)
    @around.after(0.2)
    nil while begin_work(partition)
    assert_operator batch.records.map(&:read).max, :<=, 3
  end

  # A watchdog of the program raises in the thread of a worker, a moment too late for the message that it is for.
  class TooLate < Exception; end # rubocop:disable Lint/InheritException -- as that of Timeout

  { ended: "ends late", delivered: "sends" }.each do |at, key|
    define_method("test_an_exception_when_all_messages_of_a_worker_are_#{at}_is_no_failure_of_the_next_one") do
      attempts = []
      partition = partition(order: :partition) do |record|
        produce({ topic: "bills" }) if record.key == "sends" && record.offset == 499
        attempts << attempt
      end
      add(partition, [key] * 600)
      work = partition.next_work
      fiber = Fiber.new { work.run }
      assert_equal at, fiber.resume
      fiber.raise(TooLate)
      settle(work)
      assert_instance_of TooLate, work.late_error
      begin_work(partition)
      assert_equal [1] * 600, attempts
      assert_predicate partition.unfinished, :zero?
    end
  end

  # In the order of keys: random keys, some of them hot, some messages without one; slow and failing ones; in all orders.
  (Marks::TESTS == "quick" ? 8 : 24).times do |seed|
    define_method("test_each_message_is_processed_once_and_in_order_#{seed}") { storm(Random.new(seed)) }
  end

  def storm(random)
    partition = random_partition(random)
    keys = Array.new([1, 5, 300].sample(random:)) { |i| "k#{i}" }
    200.times { step(partition, keys, random) }
    work_off(partition)
    assert_empty @done.select { |record, others| record.key && others.include?(record.key) }
    done = @done.map(&:first)
    assert_equal [*0...@next.to_i], done.map(&:offset).sort
    done.group_by(&:key).each { |key, records| assert_equal records.map(&:offset).sort, records.map(&:offset), key if key }
    assert_equal [0, 0, @next], [partition.unfinished, partition.lane_count, partition.tracker.base]
  end

  # Its processors note each message that is done, and the keys that others had in work when it began.
  def random_partition(random)
    slow = [0, 0.001, 0.02, 0.3].sample(random:)
    failing = [0, 0.005, 0.1].sample(random:)
    done = @done
    begun = []
    partition(in_flight: [3, 100, 1_000].sample(random:)) do |record|
      others = begun.dup
      begun << record.key
      Fiber.yield while random.rand < slow
      begun.delete_at(begun.index(record.key))
      random.rand < failing ? raise(ArgumentError) : done << [record, others]
    end
  end

  def step(partition, keys, random)
    case random.rand(6)
    when 0 then add(partition, Array.new(random.rand(1..200)) { keys[(keys.size * (random.rand**2)).to_i] if random.rand < 0.9 })
    when 1 then @around.after([0, 0.001, 0.06].sample(random:))
    when 2, 3 then @out.empty? || go_on(@out.keys.sample(random:))
    else @out.size < 10 && begin_work(partition)
    end
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/app_test_case"
require "penstock/testing"

# What a processor and Kafka see when partitions are taken away, and when they pause and go on.
class AppOwnershipTest < AppTestCase
  slow(/with_threads|_of_work_that_is_cancelled/)

  ORDERS = %i[partition key unordered].freeze
  SEEDS = Marks::TESTS == "quick" ? 10 : 60
  # PENSTOCK_PAUSES=100000 is the long form.
  PAUSES = Integer(ENV.fetch("PENSTOCK_PAUSES") { Marks::TESTS == "quick" ? 300 : 3_000 })

  # @param commits [Array] gets the events of commits that are answered
  def drive(seed: 7, commits: [], **options, &block)
    Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      %w[offsets.committed offsets.commit_failed].each { |name| app.monitor.subscribe(name) { |event| commits << event } }
      app.group("billing") { |group| group.topic "orders", to: processor { define_method(:process, &block) }, **options }
    end, seed:)
  end

  # ---- after "lost" nothing is committed ----

  # No time passes before the loss, so no commit is on its way then.
  ORDERS.each do |order|
    define_method(:"test_no_commit_is_sent_once_a_partition_is_lost_by_#{order}") do
      working = SEEDS.times.count do |seed|
        driver = drive(seed:, order:, commits: commits = []) { |_| nil }
        30.times { |i| driver.produce("orders", payload: "x", key: (i % 4).to_s) }
        (5 + (seed % 40)).times { driver.step }
        in_work = driver.in_work.any?
        driver.lose("billing")
        driver.advance(60)
        driver.stop
        assert_equal [[], [nil]], [commits.map(&:payload), [driver.committed("billing", "orders")]], "seed #{seed}"
        in_work
      end
      assert_operator working, :>, 0, "no seed has lost a partition during work"
    end
  end

  def test_a_checkpoint_after_the_loss_is_not_committed
    driver = nil
    found = []
    driver = drive(offsets: :manual) do |_message|
      driver.lose("billing")
      found << checkpoint
    end
    driver.produce("orders", payload: "a")
    driver.advance(60)
    driver.stop
    assert_equal [[false], nil], [found, driver.committed("billing", "orders")]
  end

  # ---- revoked? and cancelled? are true inside running work ----

  def test_work_sees_at_once_that_its_partition_is_lost
    driver = nil
    found = []
    driver = drive do |_message|
      found << [revoked?, cancelled?]
      driver.lose("billing")
      found << [revoked?, cancelled?]
    end
    driver.produce("orders", payload: "a")
    driver.run
    assert_equal [[false, false], [true, true]], found
  end

  def test_work_sees_at_once_that_its_partition_is_to_be_revoked
    driver = nil
    found = []
    driver = drive do |_message|
      driver.revoke("billing")
      found << [revoked?, cancelled?]
    end
    driver.produce("orders", payload: "a")
    driver.run
    assert_equal [[false, true]], found
    assert_equal 1, driver.committed("billing", "orders"), "the work has ended in time"
  end

  # ---- how work ends meanwhile ----

  { "revoked" => :revoke, "lost" => :lose }.each do |how, take_away|
    define_method(:"test_an_error_of_work_is_published_if_its_partition_is_#{how}_meanwhile") do
      driver = nil
      driver = drive do |_message|
        driver.public_send(take_away, "billing")
        raise "late"
      end
      driver.produce("orders", payload: "a")
      driver.run
      assert_equal ["late"], driver.errors.map(&:message)
      assert_nil driver.committed("billing", "orders")
    end

    define_method(:"test_pauses_and_seeks_of_work_have_no_effect_if_its_partition_is_#{how}_meanwhile") do
      %i[pause seek].each do |method|
        driver = nil
        driver = drive do |message|
          next if message.payload == "a"

          driver.public_send(take_away, "billing")
          __send__(method, method == :seek ? :beginning : 5)
        end
        driver.produce("orders", payload: "a")
        driver.produce("orders", payload: "b")
        driver.run
        assert_equal [[], how == "lost" ? nil : 1], [driver.errors, driver.committed("billing", "orders")]
      end
    end
  end

  def test_a_message_that_work_skips_while_its_partition_is_revoked_is_done
    driver = nil
    driver = drive do |_message|
      driver.revoke("billing")
      skip("enough")
    end
    driver.produce("orders", payload: "a")
    driver.run
    assert_equal 1, driver.committed("billing", "orders")
  end

  def test_what_ends_the_application_ends_it_also_from_a_partition_that_is_given_up
    driver = nil
    driver = drive do |_message|
      driver.revoke("billing")
      raise SystemExit
    end
    driver.produce("orders", payload: "a")
    driver.run
    assert_equal 1, driver.stop.status
  end

  # The group takes the partition away twice, and gives it back, while a call of the first assignment goes on.
  def test_a_partition_that_comes_back_waits_for_all_its_earlier_work
    gate = Thread::Queue.new
    begun = Thread::Queue.new
    here = Thread.current
    driver = drive { |message| begun << message.offset && Thread.current != here && gate.pop }
    driver.produce("orders", payload: "a")
    executor = driver.instance_variable_get(:@runtime).instance_variable_get(:@executor)
    driver.step until (work = executor.in_work.find { |one| one.hook.nil? })
    executor.instance_variable_get(:@queue).delete(work)
    worker = Thread.new { executor.finish(work) }
    assert_equal 0, begun.pop
    3.times do
      driver.lose("billing")
      driver.assign("billing", { "orders" => [0] })
      driver.run
      assert_empty begun, "two calls at once"
    end
    gate << true
    worker.join
    driver.advance(10)
    assert_equal [1, 1], [begun.size, driver.committed("billing", "orders")]
  ensure
    gate&.close
  end

  # Another member joins while all workers are busy. `revoked?` follows when the time to drain is over.
  def test_revoked_is_true_within_a_second_inside_running_work_with_threads
    name = topic(partitions: 2)
    2.times { |partition| produce(name, ["a"], partition:) }
    held = Thread::Queue.new
    abandoned = Thread::Queue.new
    looping = Thread::Queue.new
    found = @seen
    clock = method(:now)
    configure = lambda do |app|
      app.drain_timeout = 0.5
      app.monitor.subscribe("rebalance.held_back") { held << clock.call }
      app.monitor.subscribe("work.abandoned") { |event| abandoned << [event[:partition], clock.call] }
    end
    first = start(name, processor do
      define_method(:process) do |record|
        looping << record.partition
        sleep 0.005 until cancelled?
        cancelled = clock.call
        sleep 0.005 until revoked? || held.closed?
        found << [record.partition, cancelled, clock.call]
      end
    end, configure:)
    2.times { looping.pop }
    start(name) { nil }
    partition, given_up = abandoned.pop
    seen = seen(1).find { |one,| one == partition }
    assert seen, "partition #{partition} was given up, and its work has not seen it"
    assert_took(1, [seen[1] - held.pop, 0].max, "cancelled?")
    assert_took(1, [seen[2] - given_up, 0].max, "revoked?")
  ensure
    held&.close
    first&.stop(timeout: 2)
  end

  # ---- rebalances leave nothing behind ----

  # A tick is due only after a day.
  def test_rebalances_leave_no_timers_behind
    driver = drive(tick: 86_400) { |_| nil }
    driver.produce("orders", payload: "a")
    300.times do
      driver.revoke("billing")
      driver.advance(31)
      driver.assign("billing", { "orders" => [0] })
      driver.run
    end
    timers = driver.instance_variable_get(:@loop).timers
    assert_operator timers.instance_variable_get(:@heap).size, :<, 100
  end

  # ---- a resume is never lost ----

  # Each message pauses its partition once. All else in work ends at moments that the seed chooses, also while the pause begins.
  ORDERS.each do |order|
    define_method(:"test_no_pause_of_a_processor_lasts_for_ever_by_#{order}") do
      pauses = seed = 0
      while pauses < PAUSES / ORDERS.size
        paused = {}
        seen = []
        driver = drive(seed: seed += 1, order:) do |message|
          pause(paused[message.offset] = 0.01) unless paused[message.offset]
          seen << message.offset
        end
        30.times do |i|
          driver.produce("orders", payload: "x", key: (i % 5).to_s)
          driver.step
        end
        driver.advance(60)
        assert_equal [[*0...30], 30], [seen.uniq.sort, driver.committed("billing", "orders")], "seed #{seed}"
        pauses += paused.size
      end
    end

    define_method(:"test_no_pause_of_a_processor_lasts_for_ever_by_#{order}_with_threads") do
      name = topic(partitions: 2)
      2.times { |partition| 4.times { |key| produce(name, 0...25, partition:, key: key.to_s) } }
      paused = Thread::Queue.new
      seen = @seen
      lock = Mutex.new
      met = {}
      start(name, processor do
        define_method(:process) do |record|
          first = lock.synchronize { met[record.id].nil? && (met[record.id] = true) }
          first and paused.push(true) && pause(0.001)
          seen << record.id
        end
      end, order:)
      found = []
      eventually(60) { found.concat(Array.new(seen.size) { seen.pop }).uniq.size == 200 }
      assert_equal [200, [100, 100]], [paused.size, eventually { all_committed(name, 100) }]
    end
  end

  # So little memory that reading stops again and again, at the moment when workers end all that they have.
  def test_reading_goes_on_whenever_memory_was_full_with_threads
    name = topic(partitions: 4)
    4.times { |partition| produce(name, ["x" * 100_000] * 40, partition:) }
    start(name, configure: ->(app) { app.memory = 16 << 20 }) { |record| @seen << record.id }
    assert_equal 160, seen(160, seconds: 60).uniq.size
    assert_equal [40] * 4, (eventually { all_committed(name, 40, 4) })
  end

  private

  # @return [Array<Integer>, nil]
  def all_committed(name, size, partitions = 2)
    found = committed(name, [*0...partitions]).values.map { |offset| offset&.offset }
    found if found.all?(size)
  end
end

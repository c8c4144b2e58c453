# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/app_chaos"

# What stops a partition for a time, on the driver: pauses, seeks, and memory that others need.
class AppFlowTest < PenstockTest
  MIB = 1 << 20

  def setup
    super
    @seen = []
    @events = []
  end

  # An application with the topic "orders" in the group "billing", whose processor runs this block as its own.
  def drive(seed: 7, memory: nil, **options, &block)
    processor = Class.new(Penstock::Processor) { define_method(options.key?(:batch) ? :process_batch : :process, &block) }
    Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.memory = memory
      %w[consumer.consuming.pause consumer.consuming.seek client.pause client.resume].each do |name|
        app.monitor.subscribe(name) { |event| @events << [name, event.payload.except(:group, :topic)] }
      end
      app.group("billing") { |group| group.topic "orders", to: processor, **options }
    end, seed:)
  end

  def drive_ticking(processor)
    Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") { |group| group.topic "orders", to: processor, tick: 40 }
    end)
  end

  def produce(driver, *payloads, **more) = payloads.each { |payload| driver.produce("orders", payload:, **more) }

  # ---- pause ----

  # behaviour: consumer.consuming.pause, consumer.consuming.seek
  def test_a_pause_holds_the_whole_partition_and_counts_no_try
    seen = @seen
    driver = drive(order: :key, in_flight: 1) do |message|
      pause(60) if message.payload == "a" && seen.empty? && seen << :paused
      seen << [message.payload, attempt]
    end
    produce(driver, "a", key: "1")
    driver.run
    produce(driver, "b", key: "2")
    produce(driver, "c", partition: 1)
    driver.advance(59)
    assert_equal [:paused, ["c", 1]], @seen
    driver.advance(2)
    assert_equal [:paused, ["c", 1], ["a", 1], ["b", 1]], @seen
    assert_equal [["consumer.consuming.pause", { partition: 0, offset: 0, attempt: 1, seconds: 60 }]], @events
    assert_equal [[], 2], [driver.errors, driver.advance(5).committed("billing", "orders")]
  end

  def test_what_a_batch_has_done_before_it_pauses_counts
    seen = @seen
    driver = drive(batch: { size: 10 }) do |batch|
      seen << batch.payloads
      next if batch.size < 3

      batch.done(2)
      pause(60)
    end
    produce(driver, "a", "b", "c")
    driver.advance(30)
    assert_equal [[%w[a b c]], 2], [@seen, driver.committed("billing", "orders")]
    produce(driver, "d")
    driver.advance(31)
    assert_equal [%w[a b c], %w[c], %w[d]], @seen
  end

  def test_a_pause_stops_other_keys_at_once
    seen = @seen
    driver = drive(order: :key) { |message| (seen << message.key).size == 1 && pause(60) }
    %w[a b c d e].each { |key| produce(driver, "x", key:) }
    driver.advance(50)
    assert_equal 1, @seen.size
    driver.advance(11)
    assert_equal %w[a b c d e], @seen.sort.uniq
    assert_equal 2, @seen.count(@seen.first)
  end

  # The pause may end while a worker leaves out what it has of the partition.
  def test_a_pause_that_ends_at_once_keeps_the_order_of_a_key
    seen = @seen
    driver = drive(order: :key) do |message|
      seen << message.payload
      asked = 0
      @place.define_singleton_method(:go_on?) { (asked += 1) != 2 } if seen.size == 1
    end
    produce(driver, "a", "b", "c", "d", key: "k")
    driver.advance(10)
    assert_equal %w[a b c d], @seen
  end

  def test_a_batch_that_is_done_may_pause_and_seek
    seen = @seen
    driver = drive(batch: { size: 2 }) do |batch|
      seen << batch.payloads
      batch.done(2)
      pause(60) if seen.size == 1
      seek(0) if seen.size == 2
    end
    produce(driver, "a", "b", "c", "d")
    driver.advance(50)
    assert_equal [%w[a b]], @seen
    driver.advance(20)
    assert_equal [[%w[a b], %w[c d], %w[a b], %w[c d]], []], [@seen, driver.errors]
  end

  def test_a_tick_is_called_during_a_pause
    seen = @seen
    processor = Class.new(Penstock::Processor) do
      define_method(:tick) { seen << :tick }
      define_method(:process) { |message| message.offset.zero? && seen.empty? ? pause(100) : seen << message.offset }
    end
    driver = drive_ticking(processor)
    produce(driver, "a")
    driver.advance(105)
    assert_equal [:tick, :tick, 0], @seen
  end

  # It would change nothing, and the error would read as if it did.
  { pause: 5, retry_in: 5, seek: 0, reject: "why", skip: "why" }.each do |method, argument|
    define_method("test_#{method}_in_a_hook_is_wrong_usage") do
      processor = Class.new(Penstock::Processor) do
        define_method(:process) { |_| nil }
        define_method(:tick) { public_send(method, argument) }
      end
      driver = drive_ticking(processor)
      produce(driver, "a")
      driver.advance(41)
      error = driver.errors.first
      assert_instance_of Penstock::UsageError, error
      assert_match(/\b#{method} is for process\b/i, error.message)
    end
  end

  def test_a_pause_ends_with_the_assignment
    seen = @seen
    driver = drive { |message| seen.empty? && seen << :paused ? pause(1_000) : seen << message.offset }
    produce(driver, "a")
    driver.run
    driver.revoke("billing")
    driver.run
    driver.assign("billing", { "orders" => [0] })
    driver.advance(1)
    assert_equal [:paused, 0], @seen
  end

  # ---- seek ----

  # behaviour: consumer.consuming.pause, consumer.consuming.seek
  def test_a_seek_repeats_what_is_behind_it
    seen = @seen
    driver = drive do |message|
      seen << message.payload
      seek(1) if message.payload == "d" && seen.count("d") == 1
    end
    produce(driver, "a", "b", "c", "d", "e")
    driver.advance(10)
    assert_equal %w[a b c d b c d e], @seen
    assert_equal [["consumer.consuming.seek", { partition: 0, offset: 3, attempt: 1, to: 1 }]], @events
    assert_equal [[], 5], [driver.errors, driver.committed("billing", "orders")]
  end

  # Otherwise what was processed before the seek would come again, although the application stopped in order.
  { automatic: -> {}, manual: -> { checkpoint } }.each do |offsets, finish|
    define_method("test_what_was_processed_before_a_seek_is_committed_with_#{offsets}_offsets") do
      seen = @seen
      driver = drive(offsets:) do |message|
        instance_exec(&finish)
        seek(:end) if (seen << message.payload).size == 3
      end
      produce(driver, "a", "b", "c", "d")
      driver.run
      assert_predicate driver.stop, :complete?
      assert_equal offsets == :manual ? 3 : 2, driver.committed("billing", "orders")
    end
  end

  { "the beginning" => [:beginning, %w[a a b c]], "the end" => [:end, %w[a]], "an offset" => [2, %w[a c]],
    "a time" => [Time.at(2_000_000_000), %w[a b c]], "a later time" => [Time.at(2_000_000_002), %w[a]] }
    .each do |name, (to, expected)|
    define_method(:"test_a_seek_to_#{name.tr(" ", "_")}") do
      seen = @seen
      driver = drive { |message| (seen << message.payload).size == 1 && seek(to) }
      produce(driver, "a")
      produce(driver, "b", "c", timestamp: 2_000_000_001_000)
      driver.advance(10)
      assert_equal expected, @seen
      produce(driver, "d")
      driver.advance(10)
      assert_equal [[*expected, "d"], 4], [@seen, driver.committed("billing", "orders")]
    end
  end

  def test_a_seek_in_a_batch
    seen = @seen
    driver = drive(batch: { size: 2 }) { |batch| (seen << batch.payloads).size == 2 && seek(:beginning) }
    produce(driver, "a", "b", "c", "d")
    driver.advance(10)
    assert_equal [%w[a b], %w[c d], %w[a b], %w[c d]], @seen
  end

  # The group has this offset already, from before the seek. Otherwise no commit would follow, so nothing would be begun any more.
  { messages: {}, batches: { batch: { size: 1 } } }.each do |name, options|
    define_method("test_a_seek_back_of_#{name}_by_as_many_as_may_be_uncommitted") do
      seen = @seen
      driver = drive(uncommitted: { messages: 4 }, **options) do |what|
        offset = options.empty? ? what.offset : what[0].offset
        seek(6) if (seen << offset).count(10) == 1 && offset == 10
      end
      produce(driver, *"a".."t")
      driver.advance(60)
      assert_equal [*0..10, *6..19], @seen
      assert_equal 20, driver.committed("billing", "orders")
    end
  end

  # The end may be reached before the loop has heard that the consumer reads on.
  def test_caught_up_is_called_behind_a_seek_whatever_comes_first
    20.times do |seed|
      seen = @seen.clear
      processor = Class.new(Penstock::Processor) do
        define_method(:process) { |message| (seen << message.offset).count(3) == 1 && message.offset == 3 && seek(1) }
        define_method(:caught_up) { seen << :caught_up }
      end
      driver = Penstock::Testing.drive(Penstock.app do |app|
        app.kafka = { "bootstrap.servers": "nowhere" }
        app.group("billing") { |group| group.topic "orders", to: processor }
      end, seed:)
      produce(driver, *"a".."e")
      driver.run
      assert_equal [0, 1, 2, 3, 1, 2, 3, 4, :caught_up], seen, "seed #{seed}"
    end
  end

  def test_a_seek_that_fails_is_repeated
    seen = @seen
    driver = drive { |message| (seen << message.payload).size == 1 && seek(:beginning) }
    produce(driver, "a")
    client = driver.__send__(:client, "billing")
    client.fail_next(:request_timed_out, on: :seek)
    driver.run
    assert_equal [%w[a], 1], [@seen, driver.errors.size]
    driver.advance(2)
    assert_equal %w[a a], @seen
  end

  def test_a_seek_needs_a_place_and_the_order_of_the_partition
    wrong = [-1, 2**63, "2", :middle, nil, 1.5, Time.at(-1)]
    wrong.each { |to| assert_raises(ArgumentError) { Penstock::Processor::SeekTo.new(to) } }
    assert_raises(Penstock::UsageError) { Class.new(Penstock::Processor) { def process(_) = nil }.new.seek(0) }
    driver = drive(order: :key) { |_| seek(0) }
    produce(driver, "a", key: "1")
    driver.run
    assert_match(/order: :partition/, driver.errors.first.message)
    assert_raises(ArgumentError) { Penstock::Processor::Paused.new(-1) }
  end

  # ---- offsets by hand ----

  # Adds up what comes, and stores it now and then.
  def collecting(stored)
    Class.new(Penstock::Processor) do
      define_method(:process) { |message| (@all ||= []) << message }
      define_method(:tick) { store }
      define_method(:revoked) { store }
      define_method(:store) do
        return if @all.to_a.empty?

        stored << @all.map(&:payload).join
        stored << :late unless checkpoint(@all.last)
        @all = []
      end
    end
  end

  def drive_collecting(stored, **options)
    to = collecting(stored)
    Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") { |group| group.topic "orders", to:, tick: 60, offsets: :manual, **options }
    end, seed: 7)
  end

  def test_only_a_checkpoint_is_committed
    driver = drive_collecting(@seen)
    produce(driver, "a", "b")
    driver.advance(50)
    assert_equal [[], nil], [@seen, driver.committed("billing", "orders")]
    driver.advance(20)
    assert_equal [%w[ab], 2], [@seen, driver.committed("billing", "orders")]
    produce(driver, "c")
    driver.advance(10)
    driver.crash
    driver.advance(70)
    assert_equal [%w[ab c], 3], [@seen, driver.committed("billing", "orders")]
  end

  def test_what_revoked_stores_is_committed
    driver = drive_collecting(@seen)
    produce(driver, "a")
    driver.advance(1)
    driver.revoke("billing")
    driver.advance(1)
    assert_equal [%w[a], 1], [@seen, driver.committed("billing", "orders")]
    driver.assign("billing", { "orders" => [0] })
    produce(driver, "b")
    driver.advance(1)
    driver.lose("billing")
    driver.advance(1)
    assert_equal [["a", "b", :late], 1], [@seen, driver.committed("billing", "orders")]
  end

  def test_a_checkpoint_in_process_and_in_a_batch
    seen = @seen
    driver = drive(offsets: :manual) { |message| seen << (message.payload == "b" && checkpoint) }
    produce(driver, "a", "b", "c")
    driver.advance(6)
    assert_equal [[false, true, false], 2], [@seen, driver.committed("billing", "orders")]
    driver = drive(offsets: :manual, batch: { size: 3 }) { |batch| checkpoint(batch[1]) }
    produce(driver, "a", "b", "c")
    driver.advance(6)
    assert_equal 2, driver.committed("billing", "orders")
  end

  def test_a_checkpoint_that_is_not_possible
    driver = drive { |_| checkpoint }
    produce(driver, "a")
    driver.run
    assert_match(/offsets: :manual/, driver.errors.first.message)
    driver = drive(offsets: :manual, batch: { size: 1 }) { |_| checkpoint }
    produce(driver, "a")
    driver.run
    assert_match(%r{a message of orders/0, not nil}, driver.errors.first.message)
    %i[key unordered].each do |order|
      assert_raises(Penstock::ConfigurationInvalidError) { drive(offsets: :manual, order:) { |_| nil } }
    end
    assert_raises(Penstock::ConfigurationInvalidError) { drive(offsets: :none) { |_| nil } }
  end

  # Nothing is left to commit.
  def test_a_commit_that_is_refused_as_the_partition_is_lost_is_no_stall
    stalled = []
    driver = drive { |_| nil }
    driver.instance_variable_get(:@settings).monitor.subscribe("app.stalled") { |event| stalled << event.payload }
    produce(driver, "a")
    driver.run
    driver.instance_variable_get(:@runtime).advance(5)
    commits = driver.instance_variable_get(:@loop).subscriptions.first.commits
    100.times { driver.step if commits.since.nil? }
    driver.lose("billing")
    driver.advance(1_000)
    assert_equal [[], nil], [stalled, commits.since]
  end

  # ---- the end of a partition ----

  %i[partition key].each do |order|
    define_method(:"test_caught_up_is_called_when_everything_is_processed_by_#{order}") do
      seen = @seen
      processor = Class.new(Penstock::Processor) do
        define_method(:caught_up) { seen << [partition, :caught_up] }
        define_method(:process) do |message|
          raise "once" if attempt == 1 && message.payload == "b"

          seen << [partition, message.payload]
        end
      end
      driver = Penstock::Testing.drive(Penstock.app do |app|
        app.kafka = { "bootstrap.servers": "nowhere" }
        app.group("billing") { |group| group.topic "orders", to: processor, order: }
      end, seed: 7)
      produce(driver, "a", "b", key: "1")
      driver.run
      assert_equal [[0, "a"]], @seen
      driver.assign("billing", { "orders" => [1] })
      driver.run
      assert_equal [[0, "a"], [1, :caught_up]], @seen
      driver.advance(2)
      produce(driver, "c")
      driver.advance(5)
      assert_equal [[0, "b"], [0, :caught_up], [0, "c"], [0, :caught_up]], @seen.drop(2)
      assert_equal %w[once], driver.errors.map(&:message)
    end
  end

  # ---- memory ----

  %i[partition key unordered].each do |order|
    define_method(:"test_a_partition_that_waits_leaves_memory_to_others_by_#{order}") do
      seen = @seen
      down = true
      drive = lambda do |seed|
        drive(order:, seed:, memory: 16 * MIB) do |message|
          raise "down" if down && message.partition.zero?

          seen << [message.partition, message.offset]
        end
      end
      3.times do |seed|
        down = true
        [seen, @events].each(&:clear)
        driver = drive.call(seed)
        driver.assign("billing", { "orders" => [0, 1] })
        100.times { |i| produce(driver, "x" * 200_000, key: "k#{i % 7}") }
        driver.run
        100.times { |i| produce(driver, "x" * 200_000, key: "k#{i % 7}", partition: 1) }
        driver.advance(20)
        assert_equal [100, 0], [seen.size, seen.count { |partition,| partition.zero? }], "seed #{seed}"
        down = false
        driver.advance(300)
        assert_equal [0, 1].product([*0...100]), seen.sort
        first = seen.select { |partition,| partition.zero? }
        assert_equal first.sort, first if order == :partition
        assert_equal [100, 100], [0, 1].map { |partition| driver.committed("billing", "orders", partition) }
        paused, resumed = %w[client.pause client.resume].map { |name| @events.count { |event,| event == name } }
        assert_operator paused, :>, 0
        assert_equal paused, resumed
      end
    end
  end

  # Another member has processed more meanwhile.
  # behaviour: consumer.consuming.pause, consumer.consuming.seek
  def test_a_parked_partition_that_comes_back_begins_where_the_group_is
    seen = @seen
    down = true
    driver = drive(memory: 16 * MIB) do |message|
      raise "down" if down && message.partition.zero?

      seen << [message.partition, message.offset]
    end
    driver.assign("billing", { "orders" => [0, 1] })
    100.times { produce(driver, "x" * 200_000) }
    100.times { produce(driver, "x" * 200_000, partition: 1) }
    driver.advance(20)
    assert_equal 100, seen.size
    driver.revoke("billing", { "orders" => [0] })
    driver.advance(1)
    client = driver.__send__(:client, "billing")
    client.__send__(:commit, [["orders", 0, 90]])
    down = false
    driver.assign("billing", { "orders" => [0] })
    driver.advance(20)
    assert_equal([*90...100], seen.drop(100).map(&:last))
  end

  # What is in lanes cannot be dropped, so it must not count in full.
  { "many partitions" => [7, 12, 200_000], "one large message" => [1, 1, 9_000_000] }.each do |name, (blocked, count, size)|
    define_method(:"test_#{name.tr(" ", "_")}_that_cannot_be_parked_leave_memory_to_others") do
      seen = @seen
      driver = drive(memory: 16 * MIB) { |message| message.partition < blocked ? raise("down") : seen << message.offset }
      driver.assign("billing", { "orders" => [*0..blocked] })
      blocked.times { |partition| count.times { produce(driver, "x" * size, partition:) } }
      driver.run
      100.times { produce(driver, "x" * 1_000, partition: blocked) }
      driver.advance(60)
      assert_equal 100, seen.size
    end
  end

  # No memory is short.
  def test_a_key_that_waits_stops_no_other_key_of_its_partition
    seen = @seen
    driver = drive(order: :key) { |message| message.key == "bad" ? raise("down") : seen << message.offset }
    driver.assign("billing", { "orders" => [*0...100] })
    produce(driver, "x", key: "bad")
    2_000.times { |i| produce(driver, "x" * 1_000, key: "k#{i % 50}") }
    driver.advance(60)
    assert_equal [2_000, []], [seen.size, @events]
    waiting = driver.instance_variable_get(:@loop).subscriptions.first.partitions.first.bytes
    assert_operator waiting, :<, 1_000_000, "what is processed takes no memory"
  end

  # An application of which one partition waits, and has been parked; after this all goes well.
  def parked(seed, &done)
    down = true
    driver = drive(seed:, memory: 16 * MIB) do |message|
      raise "down" if down

      done.call(self, message)
    end
    driver.assign("billing", { "orders" => [0, 1] })
    100.times { produce(driver, "x" * 200_000) }
    [driver, -> { down = false }]
  end

  def test_a_seek_while_a_parked_partition_is_read_on
    seeds.times do |seed|
      seen = []
      sought = nil
      driver, go_on = parked(seed) do |processor, message|
        seen << message.offset
        next unless message.offset == 5 + seed && sought.nil?

        sought = seen.size
        processor.seek(0)
      end
      driver.advance(20)
      go_on.call
      driver.advance(200)
      assert_equal [[*0...100], 0, 100], [seen.uniq.sort, seen[sought], driver.committed("billing", "orders")], "seed #{seed}"
    end
  end

  # A pause is done when its partition was assigned anew.
  slow def test_a_late_pause_does_not_stop_the_next_assignment
    tried = (0...20).count do |seed|
      seen = []
      driver, go_on = parked(seed) { |_, message| seen << message.offset }
      driver.run
      driver.instance_variable_get(:@runtime).advance(1.2)
      500.times { detour_of(driver) ? break : driver.step }
      next unless detour_of(driver)&.step == :pause

      driver.lose("billing", { "orders" => [0] })
      driver.assign("billing", { "orders" => [0] })
      go_on.call
      driver.advance(600)
      assert_equal [*0...100], seen.uniq.sort, "seed #{seed}"
    end
    assert_operator tried, :>, 10
  end

  %i[pause rewind resume].each do |call|
    define_method(:"test_a_#{call}_that_fails_is_repeated") do
      seen = []
      driver, go_on = parked(3) { |_, message| seen << message.offset }
      client = driver.__send__(:client, "billing")
      failures = 0
      client.define_singleton_method(call) do |*more|
        done = super(*more)
        (failures += 1) < 3 ? raise(Penstock::ConsumeTimeoutError, "late") : done
      end
      driver.advance(20)
      go_on.call
      driver.advance(200)
      assert_equal [*0...100], seen
      assert_equal 2, driver.errors.grep(Penstock::ConsumeTimeoutError).size
    end
  end

  # It would leave out what is between.
  def test_what_a_lost_assignment_has_begun_does_not_move_the_next_one
    10.times do |seed|
      seen = []
      down = true
      driver = drive(seed:, memory: 16 * MIB) do |message|
        raise "down" if down

        seen << message.offset
      end
      driver.assign("billing", { "orders" => [0, 1] })
      100.times { produce(driver, "x" * 200_000) }
      driver.advance(20)
      down = false
      driver.instance_variable_get(:@runtime).advance(60)
      500.times { reading_on?(driver) ? break : driver.step }
      assert reading_on?(driver)
      driver.lose("billing", { "orders" => [0] })
      driver.assign("billing", { "orders" => [0] })
      driver.advance(60)
      assert_equal [*0...100], seen.uniq.sort, "seed #{seed}"
    end
  end

  def seeds = Marks::TESTS == "quick" ? 4 : 12

  def reading_on?(driver) = detour_of(driver)&.step == :rewind
  def detour_of(driver) = driver.instance_variable_get(:@loop).subscriptions.first.partitions.first.detour

  # A few hundred bytes, so that partitions are parked all the time.
  %i[partition key unordered].each do |order|
    define_method(:"test_nothing_is_lost_when_memory_is_short_by_#{order}") do
      paused = (0...seeds).sum { |seed| AppChaos.new(order, seed, memory: 3_000).run(100).paused }
      assert_predicate paused, :positive?
    end
  end
end

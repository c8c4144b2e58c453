# frozen_string_literal: true

require_relative "../test_helper"
require "penstock/testing"

# The driver with which programs test their applications.
class AppDriverTest < PenstockTest
  def setup
    super
    @seen = []
  end

  # An application with the topic "orders" in the group "billing".
  def app(configure: nil, **options, &block)
    Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      configure&.call(app)
      app.group("billing") { |group| group.topic "orders", to: block || ->(message) { @seen << message.payload }, **options }
    end
  end

  def drive(seed: 7, **options, &block) = Penstock::Testing.drive(app(**options, &block), seed:)

  def produce(driver, *payloads, **more) = payloads.each { |payload| driver.produce("orders", payload:, **more) }

  # ---- processing ----

  def test_messages_are_processed_and_committed_in_time_that_the_test_lets_pass
    driver = drive
    produce(driver, "a", "b")
    assert_empty @seen
    driver.run
    assert_equal [%w[a b], nil], [@seen, driver.committed("billing", "orders")]
    driver.advance(5)
    assert_equal 2, driver.committed(:billing, :orders)
    assert_equal [true, true], [driver.health.ready?, driver.stop.complete?]
    assert_equal "#<Penstock::Testing::Driver seed 7, 2 messages>", driver.inspect
  end

  def test_a_test_of_retries_and_dead_letters
    driver = drive(retry: { times: 3 }, dead_letter: "dead") { |message| raise "down" if message.payload == "bad" }
    produce(driver, "bad", "good")
    driver.advance(2)
    assert_equal [["down"] * 2, []], [driver.errors.map(&:message), driver.produced]
    driver.advance(60)
    assert_equal 4, driver.errors.size
    copy = driver.produced("dead").first
    assert_equal %w[bad 4 down], [copy[:payload], *copy[:headers].values_at("source_attempts", "error_message")]
    assert_equal 2, driver.committed("billing", "orders")
  end

  def test_what_a_processor_does
    processor = Class.new(Penstock::Processor) do
      def process(message)
        case message.value
        when 1 then produce({ topic: "bills", payload: "bill" })
        when 2 then skip("not now")
        when 3 then retry_in(100) if attempt == 1
        end
      end
    end
    driver = Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") { |group| group.topic "orders", to: processor, value: :json }
    end)
    produce(driver, "1", "2", "3")
    driver.advance(50)
    assert_equal(%w[bill], driver.produced("bills").map { |message| message[:payload] })
    assert_equal 2, driver.committed("billing", "orders")
    driver.advance(60)
    assert_equal 3, driver.committed("billing", "orders")
  end

  def test_batches_by_size_and_time
    driver = drive(batch: { size: 3, wait: 10 }) { |batch| @seen << batch.payloads }
    produce(driver, "a", "b", "c", "d")
    driver.run
    assert_equal [%w[a b c]], @seen
    driver.advance(11)
    assert_equal [%w[a b c], %w[d]], @seen
  end

  def test_delay_and_expire_look_at_the_drivers_clock
    driver = drive(delay: 60, expire: 3_600)
    produce(driver, "a")
    driver.advance(59)
    assert_empty @seen
    driver.advance(2)
    assert_equal %w[a], @seen
    now = driver.produce("orders", payload: "b").timestamp
    produce(driver, "old", timestamp: now - 3_700_000)
    driver.advance(61)
    assert_equal [%w[a b], 3], [@seen, driver.advance(5).committed("billing", "orders")]
  end

  def test_a_throttle
    driver = drive(throttle: { messages: 10, per: 2 })
    35.times { |i| driver.produce("orders", payload: i.to_s) }
    assert_equal [10, 15, 20], ([0, 1, 1].map { |seconds| driver.advance(seconds) && @seen.size })
    driver.advance(10)
    assert_equal Array.new(35, &:to_s), @seen
  end

  # Messages of two topics with two partitions each, in the first 4 s and in 10 more.
  { { over: :partition } => [240, 400], { over: :topic } => [120, 320], { over: :process } => [60, 160],
    [{ over: :topic }, { messages: 30, over: :process }] => [90, 240] }.each_with_index do |(throttle, (early, late)), i|
    define_method("test_a_throttle_over_partitions_and_topics_#{i}") do
      throttle = throttle.is_a?(Hash) ? throttle_of(throttle) : throttle.map { |one| throttle_of(one) }
      application = Penstock.app do |app|
        app.kafka = { "bootstrap.servers": "nowhere" }
        app.group("billing") { |group| group.topic(/orders./, to: ->(message) { @seen << message }, throttle:) }
      end
      driver = Penstock::Testing.drive(application, seed: 9)
      400.times { |number| driver.produce("orders#{number % 2}", partition: number / 2 % 2, payload: "a") }
      driver.advance(4)
      assert_in_delta early, @seen.size, 1
      driver.advance(10)
      assert_in_delta late, @seen.size, 1
      @seen.map { |message| [message.topic, message.partition] }.tally.each_value { |count| assert_in_delta late / 4, count, 6 }
    end
  end

  def throttle_of(given) = { messages: 20, per: 2, **given }

  def test_a_throttle_of_messages_that_are_tried_again
    driver = drive(order: :unordered, throttle: { messages: 5, per: 1 }, retry: { from: 0.5, to: 0.5 }) do |message|
      @seen << message.payload
      raise "now and then" if @seen.size.odd?
    end
    30.times { |i| driver.produce("orders", payload: i.to_s) }
    driver.advance(4)
    assert_operator @seen.size, :<=, 25
    driver.advance(30)
    assert_equal Array.new(30, &:to_s).sort, @seen.uniq.sort
  end

  def test_a_throttle_and_batches
    driver = drive(throttle: { messages: 10, per: 1 }, batch: { size: 25 }) { |batch| @seen << batch.size }
    100.times { |i| driver.produce("orders", payload: i.to_s) }
    assert_equal [25], driver.run && @seen
    driver.advance(7)
    assert_equal [25] * 4, @seen
  end

  # A worker gets several quick batches at once. Those behind one that fails, or pauses, were not begun.
  %w[raise pause].each do |how|
    define_method("test_a_throttle_and_batches_behind_one_that_does_not_succeed_with_#{how}") do
      times = 0
      driver = drive(throttle: { messages: 50, per: 500 }, batch: { size: 5 }, retry: { from: 1, to: 1 }) do |batch|
        @seen << batch[0].offset
        next unless batch[0].offset == 10 && (times += 1) == 1

        raise how == "raise" ? "once" : Penstock::Processor::Paused.new(1)
      end
      50.times { |i| driver.produce("orders", payload: i.to_s) }
      driver.advance(5)
      assert_equal [0, 5, 10, 10, 15, 20, 25, 30, 35, 40], @seen
    end
  end

  # @return [Class] of processors that note what is called
  def ticking(seen)
    Class.new(Penstock::Processor) do
      define_method(:process) { |message| seen << message.payload }
      define_method(:tick) { seen << "tick #{partition}" }
      define_method(:revoked) { seen << "revoked" }
    end
  end

  %i[partition key].each do |order|
    define_method(:"test_ticks_with_the_order_#{order}") do
      seen = @seen
      driver = Penstock::Testing.drive(Penstock.app do |app|
        app.kafka = { "bootstrap.servers": "nowhere" }
        app.group("billing") { |group| group.topic "orders", to: ticking(seen), order:, tick: 10 }
      end)
      produce(driver, "a", key: "k")
      driver.advance(25)
      assert_equal ["a", "tick 0", "tick 0"], @seen
      driver.revoke("billing")
      driver.advance(60)
      assert_equal "revoked", @seen.last
      assert_equal 4, @seen.size
      driver.assign("billing", { "orders" => 0 })
      driver.advance(15)
      assert_equal "tick 0", @seen.last
      assert_predicate driver.stop, :complete?
    end
  end

  def test_a_tick_that_fails_is_an_error_and_comes_again
    processor = Class.new(Penstock::Processor) do
      define_method(:process) { |_| nil }
      define_method(:tick) { raise "bad tick" }
    end
    driver = Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") { |group| group.topic "orders", to: processor, tick: 1 }
    end)
    produce(driver, "a")
    driver.advance(3.5)
    assert_equal ["bad tick"] * 3, driver.errors.map(&:message)
    assert_equal 1, driver.advance(5).committed("billing", "orders")
  end

  def test_wrong_options
    [{ throttle: 5 }, { throttle: {} }, { throttle: { messages: 0 } }, { throttle: { messages: 1, per: 0 } }, { tick: 0 },
     { tick: "1" }, { throttle: [nil] }, { throttle: { messages: 1, over: :world } }, { throttle: [5] }].each do |options|
      assert_raises(Penstock::ConfigurationInvalidError, options.inspect) { app(**options) }
    end
    assert_raises(ArgumentError) { app(throttle: { message: 1 }) }
  end

  # ---- what is sent ----

  # A processor that sends each message of a batch, and names it as done; then it does what the block says.
  def sending(&block)
    Class.new(Penstock::Processor) do
      define_method(:process_batch) do |batch|
        batch.each do |message|
          produce({ topic: "bills", payload: message.payload })
          batch.done(message)
        end
        instance_exec(&block) if block
      end
    end
  end

  # The names are those of a program's own methods and variables.
  def test_a_processor_may_have_any_names
    seen = @seen
    driver = drive_class(Class.new(Penstock::Processor) do
      define_method(:process) do |message|
        @work = @place = message
        work_on(message)
        cancelled?
        skip("done")
      end
      define_method(:work_on) { |work| seen << work.payload }
      %i[place_at work_of not_in_a_hook].each { |name| define_method(name) { |*| raise "called by somebody else" } }
      private :work_on, :place_at, :work_of, :not_in_a_hook
    end)
    produce(driver, "a", "b")
    driver.advance(10)
    assert_equal [%w[a b], [], 2], [seen, driver.errors, driver.committed("billing", "orders")]
  end

  def drive_class(processor, **options)
    Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") { |group| group.topic "orders", to: processor, **options }
    end, seed: 7)
  end

  # Commands are raised, too, but nothing is wrong then.
  def test_a_general_class_in_fatal_ends_the_application_with_errors_only
    [StandardError, Exception].each do |kind|
      driver = drive_class(Class.new(Penstock::Processor) do
        def process(message)
          return if attempt > 1

          case message.payload
          when "skip" then skip("no")
          when "retry" then retry_in(1)
          when "pause" then @paused || ((@paused = true) && pause(1))
          when "reject" then reject("no")
          when "bad" then raise "bad"
          end
        end
      end, fatal: [kind], dead_letter: "dead")
      produce(driver, "skip", "retry", "pause", "reject")
      driver.advance(60)
      assert_equal [4, 1], [driver.committed("billing", "orders"), driver.dead_letters.size]
      produce(driver, "bad")
      driver.advance(10)
      assert_equal [:ended, 4], [driver.health.state, driver.committed("billing", "orders")]
    end
    driver = drive(fatal: [Penstock::Processor::Rejected]) { raise Penstock::Processor::Rejected, "no" }
    produce(driver, "a")
    driver.run
    assert_equal :ended, driver.health.state
  end

  def test_copies_of_messages
    wrong = []
    processor = Class.new(Penstock::Processor) do
      define_method(:process) do |message|
        copy_to("first")
        copy_to(:second, message, payload: "changed", headers: {})
      end
      define_method(:tick) { copy_to("first") rescue wrong << $!.message } # rubocop:disable Style
    end
    driver = Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") { |group| group.topic "orders", to: processor, value: :json, tick: 5 }
    end)
    binary = "\xFF\0".b
    driver.produce("orders", payload: binary, key: binary, headers: { "a" => %w[1 2] })
    driver.produce("orders", payload: nil)
    driver.advance(6)
    assert_equal([[binary, binary, { "a" => %w[1 2] }], [nil, nil, {}]],
                 driver.produced("first").map { |copy| copy.values_at(:payload, :key, :headers) })
    assert_equal([["changed", binary, {}], ["changed", nil, {}]],
                 driver.produced("second").map { |copy| copy.values_at(:payload, :key, :headers) })
    assert_equal ["copy_to needs a message, not nil"], wrong
    assert_raises(Penstock::UsageError) { processor.new.copy_to("first") }
  end

  class Decoded; end # rubocop:disable Lint/EmptyClass

  # Else all objects of a large batch would stay until its end.
  def test_a_batch_keeps_nothing_of_what_is_done
    live = []
    again = nil
    processor = Class.new(Penstock::Processor) do
      define_method(:process_batch) do |batch|
        batch.each_slice(10) do |slice|
          slice.each(&:value)
          batch.done(slice)
          GC.start
          live << ObjectSpace.each_object(Decoded).count
        end
        again = [batch[0].offset, batch[-1].offset, batch.last.offset, batch[3..4].map(&:offset), batch.map(&:offset).size]
        raise "once more" if attempt == 1
      end
    end
    driver = drive_batches(processor, batch: { size: 200 }, value: ->(_) { Decoded.new })
    200.times { |i| driver.produce("orders", payload: i.to_s) }
    driver.advance(30)
    assert_operator live.max, :<, 100
    assert_equal [0, 199, 199, [3, 4], 200], again
    assert_equal 200, driver.committed("billing", "orders")
  end

  def drive_batches(processor, **options)
    Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") { |group| group.topic "orders", to: processor, **{ batch: { size: 6 } }, **options }
    end)
  end

  [nil, -> { raise "later" if attempt == 1 }].each_with_index do |later, i|
    define_method("test_a_message_of_a_batch_that_was_done_counts_only_if_what_it_sent_is_delivered_#{i}") do
      driver = drive_batches(sending(&later))
      6.times { |number| driver.produce("orders", payload: number.to_s) }
      driver.instance_variable_get(:@runtime).sent.fail_next(:msg_timed_out, times: 2)
      driver.advance(30)
      assert_equal 6, driver.committed("billing", "orders")
      assert_equal Array.new(6, &:to_s), driver.produced("bills").map { |message| message[:payload] }.uniq.sort
    end
  end

  # A worker gets several quick batches at once. They fail as if it had got each alone.
  { "twice" => [->(_) { raise "later" if attempt < 3 }, {}, [5..9, 10..14, 10..14, 10..14, 15..19], []],
    "in part" => [->(batch) { batch.done(2) && raise("later") if batch[0].offset == 10 }, {},
                  [5..9, 10..14, 12..16, 17..21], []],
    "for ever" => [->(batch) { raise "never" if batch.offsets.include?(12) }, { retry: { times: 1 }, dead_letter: "dead" },
                   [5..9, 10..14, 10..14, 10..10, 11..11, 12..12, 12..12, 13..13, 14..14, 15..19], %w[12]],
    "for ever in part" => [->(batch) { (at = batch.offsets.index(12)) && batch.done(at) && raise("never") },
                           { retry: { times: 0 }, dead_letter: "dead" },
                           [5..9, 10..14, 12..12, 13..13, 14..14, 15..19], %w[12]],
    "and pauses" => [->(_) { pause(10) if (@times = @times.to_i + 1) == 1 }, {}, [5..9, 10..14, 10..14, 15..19], []],
    "late" => [->(batch) { batch.done(5) && raise("late") if batch[0].offset == 10 }, {}, [5..9, 10..14, 15..19], []] }
    .each do |name, (failing, options, expected, dead)|
    define_method("test_one_of_several_batches_fails_#{name.tr(" ", "_")}") do
      seen = @seen
      driver = drive_batches(Class.new(Penstock::Processor) do
        define_method(:process_batch) do |batch|
          seen << (batch.offsets.first..batch.offsets.last)
          instance_exec(batch, &failing) if batch[0].offset.between?(10, 14)
        end
      end, batch: { size: 5 }, **options)
      together = []
      driver.instance_variable_get(:@loop).monitor.subscribe("consumer.consumed") { |event| together << event[:messages] }
      40.times { |number| driver.produce("orders", payload: number.to_s) }
      driver.advance(60)
      assert_equal expected, seen[1, expected.size]
      assert_equal [40, dead], [driver.committed("billing", "orders"), driver.produced("dead").map { |copy| copy[:payload] }]
      assert_operator together.max, :>, 5
    end
  end

  def test_a_processor_that_exits_after_all_is_done_stops_the_application
    driver = drive_batches(Class.new(Penstock::Processor) do
      define_method(:process_batch) do |batch|
        batch.done(batch.size)
        exit
      end
    end)
    driver.produce("orders", payload: "a")
    driver.run
    assert_equal :ended, driver.advance(1).health.state
    assert_kind_of SystemExit, driver.instance_variable_get(:@loop).report.error
  end

  def test_attempts_belong_to_one_message
    seen = []
    processor = Class.new(Penstock::Processor) do
      define_method(:process) do |message|
        seen << [message.payload, attempt]
        raise "bad" if message.payload == "0" && attempt < 3
      end
    end
    %i[key partition].each do |order|
      seen.clear
      driver = Penstock::Testing.drive(Penstock.app do |app|
        app.kafka = { "bootstrap.servers": "nowhere" }
        app.group("billing") { |group| group.topic "orders", to: processor, order: }
      end)
      3.times { |i| driver.produce("orders", key: "k", payload: i.to_s) }
      driver.advance(30)
      assert_equal [["0", 1], ["0", 2], ["0", 3], ["1", 1], ["2", 1]], seen
    end
  end

  # A thread has several messages. One of them fails, then another one ends the thread.
  def test_a_message_that_ends_its_thread_has_failed_whatever_has_failed_before
    attempts = Hash.new { |found, payload| found[payload] = [] }
    processor = Class.new(Penstock::Processor) do
      define_method(:process) do |message|
        attempts[message.payload] << attempt
        produce({ topic: "bills", payload: "b" }) # so each key has a lane of its own
        raise "bad" if message.payload == "bad" && attempt == 1

        Thread.exit if message.payload == "exit" && attempt == 1
      end
    end
    driver = drive_class(processor, order: :key)
    produce(driver, "first", key: "k")
    driver.run
    %w[bad exit].each { |payload| produce(driver, payload, key: payload) }
    3.times { Thread.new { driver.advance(5) }.join }
    assert_equal({ "first" => [1], "bad" => [1, 2], "exit" => [1, 2] }, attempts)
    assert_equal [2, 3], [driver.errors.size, driver.committed("billing", "orders")]
  end

  # It belongs to another member then.
  def test_nothing_of_a_partition_that_is_gone_is_begun
    seen = @seen
    processor = Class.new(Penstock::Processor) do
      define_method(:process_batch) { |_| seen << revoked? }
      define_method(:tick) { seen << revoked? }
    end
    20.times do |seed|
      driver = Penstock::Testing.drive(Penstock.app do |app|
        app.kafka = { "bootstrap.servers": "nowhere" }
        app.group("billing") { |group| group.topic "orders", to: processor, batch: { size: 2 }, tick: 1 }
      end, seed:)
      20.times { |i| driver.produce("orders", payload: i.to_s, partition: i % 3) }
      (seed * 7 % 30).times { driver.step }
      driver.advance(1.0)
      driver.lose("billing")
      driver.advance(10)
    end
    refute_includes seen, true
  end

  def test_partitions_that_are_assigned_while_the_application_stops
    driver = drive
    produce(driver, "a")
    driver.run
    driver.instance_variable_get(:@loop).stop
    driver.step until %i[stopping ended].include?(driver.health.state)
    produce_late(driver)
    began = driver.instance_variable_get(:@runtime).now
    assert_predicate driver.stop, :complete?
    assert_operator driver.instance_variable_get(:@runtime).now - began, :<, 5
  end

  def produce_late(driver)
    driver.assign("billing", { "orders" => [5, 6] })
  rescue Penstock::ConsumerClosedError
    nil # it has stopped already
  end

  # A typing error in a processor must not show the settings: Ruby before 3.4 prints its receiver.
  def test_errors_show_no_setting
    secret = "hunter2-secret"
    settings = { "bootstrap.servers": "nowhere", "sasl.username": "u", "sasl.password": secret, "sasl.mechanism": "PLAIN",
                 "security.protocol": "sasl_plaintext" }
    processor = Class.new(Penstock::Processor) { define_method(:process) { |_| mesage } }
    application = Penstock.app do |app|
      app.kafka = settings
      assert_raises(NoMethodError) { app.thread = 5 }.then { |error| refute_includes error.message, secret }
      refute_includes app.inspect, secret
      app.group("billing") { |group| group.topic "orders", to: processor, retry: { times: 0 }, dead_letter: "dead" }
    end
    driver = Penstock::Testing.drive(application)
    produce(driver, "a")
    driver.advance(5)
    refute_includes driver.errors.map(&:message).join, secret
    refute_includes driver.produced("dead").to_s, secret
    assert_match(/mesage/, driver.errors.first.message)
    parts = [driver.instance_variable_get(:@loop), *driver.instance_variable_get(:@loop).subscriptions]
    parts.each { |part| [part.inspect, part.to_s].each { |text| refute_includes text, secret } }
  end

  # ---- memory ----

  def with_memory(memory, connections: 1)
    Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.memory = memory
      3.times { |i| app.group("g#{i}", connections:) { |group| group.topic "orders", to: ->(_) {} } }
    end
  end

  def test_all_groups_share_the_memory
    [[120 << 20, 20 << 20], [36 << 20, 8 << 20]].each do |memory, each|
      loop_ = Penstock::Testing.drive(with_memory(memory)).instance_variable_get(:@loop)
      assert_equal([each] * 3, loop_.subscriptions.map { |one| one.consumer.config.memory })
      assert_equal memory - (3 * each), loop_.settings.backlog_bytes
    end
    error = assert_raises(Penstock::ConfigurationInvalidError) { with_memory(32 << 20, connections: 2) }
    assert_match(/app.memory must be bytes from 58720256, as the application has 6 members/, error.message)
    [16 << 20, 1, "64"].each { |memory| assert_raises(Penstock::ConfigurationInvalidError) { with_memory(memory) } }
  end

  def test_dead_letters_must_be_in_another_topic
    assert_raises(Penstock::ConfigurationInvalidError) { app(dead_letter: "orders") }
  end

  def test_a_processor_that_does_not_exist_is_an_error_at_the_start
    application = Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") { |group| group.topic "orders", to: "NoSuchProcessor" }
    end
    assert_raises(Penstock::ConfigurationInvalidError) { Penstock::Testing.drive(application) }
    assert_raises(Penstock::ConfigurationInvalidError) { application.start }
  end

  def test_metrics
    driver = drive(order: :unordered, retry: { times: 1, from: 3 }, dead_letter: "dead") do |message|
      raise "bad" if message.payload == "bad"
      raise Penstock::Processor::Skipped, "odd" if message.payload == "odd"
    end
    produce(driver, "bad", "odd", "good", partition: 1)
    driver.advance(2)
    row = driver.metrics.first
    assert_equal ["billing", "orders", 1, 0, 1], row.to_a.first(5) # the bad one waits
    assert_operator row.waiting_bytes, :>, 10
    assert_equal [2, 1, 1, 1, 0], row.to_a.slice(6, 5)
    driver.advance(10)
    assert_equal [1, 0, 0, 0, 3, 2, 1, 1, 1], driver.metrics.first.to_a.slice(2, 9)
    assert(driver.metrics.frozen? && driver.metrics.first.frozen?)
  end

  # ---- assertions and matchers ----

  include Penstock::Testing::Assertions
  include Penstock::Testing::Matchers

  def driver_with_letters
    processor = Class.new(Penstock::Processor) do
      define_method(:process) do |message|
        raise IOError, "bad" if message.payload == "bad"

        produce({ topic: "bills", payload: message.payload })
      end
    end
    driver = Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") { |group| group.topic "orders", to: processor, retry: { times: 1 }, dead_letter: "dead" }
    end, seed: 5)
    produce(driver, "bad", "ann", "bob")
    driver
  end

  def test_assertions
    driver = driver_with_letters
    error = assert_raises(Minitest::Assertion) { assert_finished driver }
    assert_match(%r{3 messages of orders/0 by billing \(with the seed 5\)}, error.message)
    driver.advance(20)
    assert_produced driver, "bills", %w[bob ann]
    assert_dead_letters driver, %w[bad], error: IOError
    assert_committed driver, 3, "billing", "orders"
    assert_finished driver
    assert_finished driver, :billing
    { -> { assert_produced driver, "bills", %w[ann] } => /but got \["ann", "bob"\]/,
      -> { assert_dead_letters driver, [] } => /but got \["bad"\]/,
      -> { assert_dead_letters driver, %w[bad], error: ArgumentError } => /the errors were \["IOError"\]/,
      -> { assert_committed driver, 2, "billing", "orders" } => /but it has committed 3/ }.each do |wrong, text|
      assert_match text, assert_raises(Minitest::Assertion, &wrong).message
    end
  end

  def test_matchers
    driver = driver_with_letters.advance(20)
    [have_produced("bills", %w[ann bob]), have_dead_letters(%w[bad], error: IOError), have_committed(3, "billing", "orders"),
     be_finished].each do |matcher|
      assert matcher.matches?(driver), matcher.failure_message
      assert_match(/\Aexpected not .*seed 5/, matcher.failure_message_when_negated)
      refute_empty matcher.description
    end
    refute have_produced("bills", [nil, "ann"]).matches?(driver)
  end

  # ---- rebalances and crashes ----

  def test_after_a_crash_what_is_not_committed_comes_again
    driver = drive
    produce(driver, "a")
    driver.advance(6)
    produce(driver, "b")
    driver.run.crash.run
    assert_equal %w[a b b], @seen
  end

  def test_partitions_that_are_taken_away_and_come_back
    driver = drive
    produce(driver, "a")
    produce(driver, "b", partition: 1)
    driver.run
    driver.revoke("billing", { "orders" => [1] })
    produce(driver, "c")
    produce(driver, "d", partition: 1)
    driver.run
    assert_equal %w[a b c], @seen.sort
    assert_equal 1, driver.committed("billing", "orders", 1) # on the revocation
    driver.assign("billing", { "orders" => 1 })
    driver.run
    assert_equal %w[a b c d], @seen.sort
    driver.lose("billing")
    assert_nil driver.assign("billing", { "orders" => [0, 1] })
    driver.run
    assert_equal %w[a a b c c d d], @seen.sort # what was not committed
  end

  def test_a_revocation_waits_for_work
    abandoned = 0
    application = app(configure: ->(app) { app.drain_timeout = 10 }) { |message| @seen << message.payload }
    application.monitor.subscribe("work.abandoned") { abandoned += 1 }
    driver = Penstock::Testing.drive(application, seed: 1)
    driver.run
    produce(driver, "a")
    driver.step until driver.in_work.any? { |_, _, offset| offset } # not the hook
    driver.revoke("billing")
    assert_equal [["orders", 0, 0]], driver.in_work
    driver.run # the worker sees that the partition is to be given up, and does not begin
    assert_equal [[], nil, 0], [@seen, driver.committed("billing", "orders"), abandoned]
    driver.assign("billing", { "orders" => [0] })
    assert_equal [%w[a], 1], [@seen, driver.advance(6).committed("billing", "orders")]
  end

  def test_commits_that_fail_are_sent_again
    driver = drive
    produce(driver, "a")
    driver.fail_commits("billing", 2)
    driver.advance(11)
    assert_nil driver.committed("billing", "orders")
    assert_equal 1, driver.advance(5).committed("billing", "orders")
  end

  # ---- retry topics ----

  RETRY = { topics: [30, 300] }.freeze
  RETRY_TOPICS = %w[orders.billing.retry.30s orders.billing.retry.300s].freeze

  def retrying(**options, &block)
    app(order: :unordered, retry: RETRY, dead_letter: "dead", **options) do |message|
      @seen << [message.payload, message.topic, @driver.instance_variable_get(:@runtime).now.floor]
      block ? block.call(message) : raise(IOError, "down")
    end
  end

  def test_a_message_goes_through_the_retry_topics_to_the_dead_letters
    sent = []
    application = retrying { |message| raise IOError, "down" if message.payload == "bad" }
    application.monitor.subscribe("retry_topic.dispatched") { |event| sent << event.payload.values_at(:topic, :offset, :to) }
    @driver = Penstock::Testing.drive(application, seed: 4)
    @driver.produce("orders", payload: "bad", key: "k", headers: { "trace" => %w[1 2] })
    produce(@driver, "good")
    @driver.advance(20)
    assert_equal(%w[bad good], @seen.map(&:first).sort)
    assert_equal 2, @driver.committed("billing", "orders"), "nothing waits for it"
    @driver.advance(400)
    times = @seen.select { |payload,| payload == "bad" }.drop(1)
    assert_equal RETRY_TOPICS, times.map { |_, topic,| topic }
    assert_in_delta 30, times[0][2], 2
    assert_in_delta 330, times[1][2], 4
    assert_equal [["orders", 0, RETRY_TOPICS[0]], [RETRY_TOPICS[0], 0, RETRY_TOPICS[1]]], sent
    letter = @driver.dead_letters.first
    expected = ["bad", "k", %w[1 2], "orders", "0", "0", "billing", "3", nil]
    names = %w[trace source_topic source_partition source_offset source_consumer_group source_attempts retry_at]
    assert_equal expected, [letter[:payload], letter[:key], *letter[:headers].values_at(*names)]
    assert_finished @driver
  end

  def test_a_message_that_succeeds_in_a_retry_topic_and_one_that_is_poison
    @driver = Penstock::Testing.drive(retrying do |message|
      raise Penstock::Processor::Rejected, "no" if message.payload == "poison"
      raise "at first" if message.topic == "orders"
    end, seed: 4)
    produce(@driver, "a", "poison")
    @driver.advance(50)
    assert_equal ["a orders", "a #{RETRY_TOPICS[0]}", "poison orders"], (@seen.map { |row| row.first(2).join(" ") }.sort)
    assert_dead_letters @driver, %w[poison]
    assert_finished @driver
  end

  # It is a program's, if the message does not come from a retry topic.
  def test_a_header_named_retry_at_stays
    driver = drive(retry: { times: 0 }, dead_letter: "dead") { raise "bad" }
    driver.produce("orders", payload: "a", headers: { "retry_at" => "noon" })
    assert_equal %w[noon 1], driver.advance(5).dead_letters[0][:headers].values_at("retry_at", "source_attempts")
  end

  # In the last topic after_retries decides.
  def test_retry_topics_without_dead_letters
    @driver = Penstock::Testing.drive(retrying(dead_letter: nil), seed: 4)
    produce(@driver, "a")
    @driver.advance(1_000)
    assert_equal 1, @seen.count { |_, topic,| topic == "orders" }
    assert_operator @seen.count { |_, topic,| topic == RETRY_TOPICS[1] }, :>, 5
    assert_equal [["billing", RETRY_TOPICS[1], 0, 1]], @driver.unfinished
  end

  def test_a_crash_while_messages_wait_in_retry_topics
    20.times do |seed|
      @seen.clear
      @driver = Penstock::Testing.drive(retrying { |message| raise "at first" unless message.topic == RETRY_TOPICS[1] }, seed:)
      10.times { |i| produce(@driver, i.to_s) }
      3.times { @driver.advance(seed * 7).crash }
      @driver.advance(1_000)
      assert_equal Array.new(10, &:to_s), @seen.filter_map { |payload, topic,| payload if topic == RETRY_TOPICS[1] }.uniq.sort
      assert_finished @driver
    end
  end

  def test_wrong_retry_topics
    [{ topics: 5 }, { topics: [0] }, { topics: ["5"] }, { topics: [5, 5] }, { topics: [30], times: nil }].each do |given|
      assert_raises(Penstock::ConfigurationInvalidError, given.inspect) { app(order: :unordered, retry: given) }
    end
    error = assert_raises(Penstock::ConfigurationInvalidError) { app(order: :key, retry: RETRY) }
    assert_match(/order: :unordered/, error.message)
    assert_raises(Penstock::ConfigurationInvalidError) { app(order: :unordered, retry: RETRY, batch: { size: 5 }) }
  end

  # Its messages would wait for ever, and the application would say so only when the first one has failed.
  def test_topics_of_copies_that_no_broker_can_have
    ["bad name", "a/b", "x" * 250, "a\n", "ä"].each do |dead_letter|
      assert_raises(Penstock::ConfigurationInvalidError, dead_letter) { app(dead_letter:) }
    end
    ["billing:v2", "b" * 240].each do |name|
      error = assert_raises(Penstock::ConfigurationInvalidError, name) do
        Penstock.app do |app|
          app.kafka = { "bootstrap.servers": "nowhere" }
          app.group(name) { |group| group.topic "orders", to: ->(_) {}, order: :unordered, retry: RETRY }
        end
      end
      assert_match(/orders\.#{name}\.retry/, error.message)
    end
  end

  # It has a time at which it is due, and its own processor.
  def test_a_pattern_gets_no_messages_of_retry_topics
    driver = Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") do |group|
        group.topic(/orders\..*/, to: ->(message) { @seen << [:pattern, message.topic] })
        group.topic "orders", to: ->(message) { @seen << [:name, message.topic] && raise("odd") }, order: :unordered, retry: RETRY
      end
    end, seed: 7)
    driver.produce("orders", payload: "a")
    driver.produce("orders.eu", payload: "b")
    driver.advance(1)
    assert_equal [[:name, "orders"], [:pattern, "orders.eu"]], @seen.sort
    driver.advance(100)
    assert_includes @seen, [:name, RETRY_TOPICS[0]]
    refute_includes @seen, [:pattern, RETRY_TOPICS[0]]
  end

  # ---- what does not go on ----

  def stalls(application)
    found = []
    application.monitor.subscribe("app.stalled") { |event| found << event.payload }
    found
  end

  %i[partition key unordered].each do |order|
    define_method("test_a_message_that_fails_again_and_again_is_stalled_#{order}") do
      configure = ->(app) { app.stall_after = 300 }
      application = app(order:, configure:) { |message| raise "bad" if message.payload == "bad" }
      found = stalls(application)
      driver = Penstock::Testing.drive(application, seed: 3)
      produce(driver, "good", "bad", "good", key: "k")
      driver.advance(299)
      assert_empty found
      driver.advance(6)
      assert_equal [[:commit, "billing", "orders", 0, 1]],
                   found.map { |one| one.values_at(:reason, :group, :topic, :partition, :offset) }
      assert_equal [:commit], driver.health.stalls.map(&:reason)
      assert_predicate driver.health, :live?
    end
  end

  { "idle" => {}, "delayed" => { delay: 100_000 }, "throttled" => { throttle: { messages: 1, per: 5_000 } },
    "gathered" => { batch: { size: 10, wait: 200 } } }.each do |name, options|
    define_method("test_a_partition_is_not_stalled_when_it_is_#{name}") do
      application = app(configure: ->(app) { app.stall_after = 300 }, **options) { nil }
      found = stalls(application)
      driver = Penstock::Testing.drive(application, seed: 3)
      produce(driver, "a", "b", "c")
      driver.advance(5_000)
      assert_empty found
    end
  end

  def test_a_pause_is_no_stall
    processor = Class.new(Penstock::Processor) { define_method(:process) { |_| pause(1_000) } }
    application = Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.stall_after = 300
      app.group("billing") { |group| group.topic "orders", to: processor }
    end
    found = stalls(application)
    driver = Penstock::Testing.drive(application, seed: 3)
    produce(driver, "a", "b")
    driver.advance(5_000)
    assert_empty found
  end

  # `offset.metadata.max.bytes` of the brokers. The first message is slow, and every second one behind it is processed.
  def test_brokers_that_accept_little_metadata
    shortened = 0
    application = app(order: :key, retry: { from: 600, to: 600 }) do |message|
      message.payload == "bad" && message.key != "done" ? raise("slow") : @seen << message.offset
    end
    application.monitor.subscribe("offsets.map_shortened") { shortened += 1 }
    driver = Penstock::Testing.drive(application)
    client = driver.__send__(:client, "billing")
    refuse(client) { |_, _, _, _, metadata| metadata.to_s.bytesize > 40 }
    400.times { |i| produce(driver, i % 3 == 1 ? "good" : "bad", key: "k#{i}") }
    driver.advance(60)
    assert_equal 0, driver.committed("billing", "orders")
    assert_operator shortened, :>, 0
    before = @seen.dup
    assert_operator before.size, :>, 100
    driver.crash.advance(60)
    refute_empty before - @seen.drop(before.size), "what fits into the map does not come again"
  end

  # Nothing new fits into the list, so nothing new can be committed.
  def test_brokers_that_accept_little_metadata_do_not_stop_a_partition_at_its_limit
    down = true
    options = { order: :unordered, in_flight: 300, uncommitted: { messages: 7 }, retry: { to: 5 } }
    driver = drive(**options) { |message| down && (message.offset % 3).zero? ? raise("down") : @seen << message.offset }
    refuse(driver.__send__(:client, "billing")) { |*, metadata| metadata.to_s.bytesize > 10 }
    produce(driver, *Array.new(400, &:to_s))
    driver.advance(60)
    down = false
    driver.advance(600)
    assert_equal [400, [*0...400]], [driver.committed("billing", "orders"), @seen.sort]
  end

  def refuse(client, &refused)
    fail_commit = lambda do |places|
      error = client.__send__(:failure, :offset_metadata_too_large, :commit)
      client.__send__(:tell_answer, "offsets.commit_failed", places, error:)
    end
    client.define_singleton_method(:succeed) { |places| places.any?(&refused) ? fail_commit.call(places) : super(places) }
  end

  # The topic was made anew, for example. What workers still have is of the former one.
  def test_a_partition_that_begins_again_from_an_earlier_offset
    driver = drive(order: :key, retry: { times: 0 }, dead_letter: "dead") { |message| @seen << message.payload }
    20.times { |i| driver.produce("orders", payload: "old#{i}", key: "k#{i}", offset: 100 + i) }
    driver.step until driver.in_work.any? { |_, _, offset| offset }
    tracker = driver.instance_variable_get(:@loop).subscriptions.first.partitions.first.tracker
    tracker.__send__(:begin_again, 0)
    driver.advance(30)
    assert_empty [driver.errors, driver.produced("dead")].flatten
    assert_equal 20, @seen.size
  end

  # ---- the seed ----

  def order_with(seed)
    order = []
    driver = Penstock::Testing.drive(app(order: :unordered) { |message| order << message.payload }, seed:)
    produce(driver, *"a".."p")
    driver.run
    order
  end

  def test_the_seed_decides_the_order
    orders = (1..10).map { |seed| order_with(seed) }
    assert_operator orders.uniq.size, :>, 1
    assert_equal orders, (1..10).map { |seed| order_with(seed) }
    assert(orders.all? { |order| order.sort == [*"a".."p"] })
  end

  # Each call of a processor takes no time here, so all messages are quick. But elsewhere they may not be.
  def test_explore_finds_that_messages_of_different_keys_have_no_order
    payloads = []
    orders = []
    Penstock::Testing.explore(app(order: :key) { |message| payloads << message.payload }, runs: 100) do |driver|
      payloads.clear
      produce(driver, "first", key: "k")
      driver.run
      %w[a b c].each { |key| produce(driver, key, key:).then { 3.times { driver.step } } }
      driver.run
      orders << payloads.join
    end
    assert_operator orders.uniq.size, :>=, 3
  end

  def test_explore_names_the_seed_that_fails
    seeds = []
    assert_nil(Penstock::Testing.explore(app, runs: 3, seed: 5) { |driver| seeds << driver.seed })
    assert_equal [5, 6, 7], seeds
    error = assert_raises(Minitest::Assertion) do
      Penstock::Testing.explore(app, runs: 3) { |driver| assert_operator driver.seed, :<, 1 }
    end
    name = "test_explore_names_the_seed_that_fails"
    command = "PENSTOCK_SEED=1 ruby -Ilib -Itest test/app/driver_test.rb -n #{name}"
    assert_includes error.message, "\n(with the seed 1; to repeat it: #{command})"
  end

  # A test that would run nothing must not pass.
  def test_explore_and_drive_reject_what_runs_nothing
    [-> { Penstock::Testing.explore(app, runs: 0) { flunk } }, -> { Penstock::Testing.explore(app, runs: "3") { flunk } },
     -> { Penstock::Testing.explore(app) }, -> { Penstock::Testing.drive(app, seed: "7") }]
      .zip(["runs must be an Integer from 1, not 0", 'runs must be an Integer from 1, not "3"', "explore requires a block",
            'the seed must be an Integer or nil, not "7"']) do |call, text|
      assert_equal text, assert_raises(ArgumentError, &call).message
    end
  end

  def test_the_command_repeats_the_seed
    seeds = []
    ENV["PENSTOCK_SEED"] = "17"
    Penstock::Testing.explore(app, runs: 3) { |driver| seeds << driver.seed }
    seeds << Penstock::Testing.drive(app).seed << Penstock::Testing.drive(app, seed: 4).seed
    assert_equal [17, 17, 4], seeds
    ENV["PENSTOCK_SEED"] = "many"
    assert_match(/PENSTOCK_SEED must be an Integer/, assert_raises(ArgumentError) { Penstock::Testing.drive(app) }.message)
  ensure
    ENV.delete("PENSTOCK_SEED")
  end

  def test_drivers_of_one_application_do_not_hear_each_other
    application = app { raise "bad" }
    one, two = Array.new(2) { Penstock::Testing.drive(application) }
    produce(one, "a")
    [one, two].each(&:run)
    assert_equal [1, 0], [one.errors.size, two.errors.size]
  end

  def test_wrong_use
    assert_match(/needs an application/, assert_raises(ArgumentError) { Penstock::Testing.drive(:app) }.message)
    assert_raises(ArgumentError) { Penstock::Testing.drive(app, sead: 1) }
    assert_raises(ArgumentError) { drive.produce("order", payload: "a") }
    assert_match(/did you mean "orders"/, assert_raises(ArgumentError) { drive.committed("billing", "orderz") }.message)
    assert_raises(ArgumentError) { drive.revoke("billing", "orders") }
    ["1", -1, nil].each { |seconds| assert_raises(ArgumentError) { drive.advance(seconds) } }
    stopped = drive.tap(&:stop)
    assert_raises(ArgumentError) { produce(stopped, "a") }
    assert_match(/did you mean "billing"/, assert_raises(ArgumentError) { drive.committed("biling", "orders") }.message)
  end

  def test_it_connects_nowhere_and_starts_no_thread
    before = Thread.list
    driver = drive(order: :key)
    produce(driver, "a", key: "k")
    driver.advance(100).stop
    assert_empty Thread.list - before
  end
end

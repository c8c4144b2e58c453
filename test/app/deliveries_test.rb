# frozen_string_literal: true

require_relative "../test_helper"
require "penstock/testing"

# What processors send, and how much a crash repeats.
class AppDeliveriesTest < PenstockTest
  def setup
    super
    @seen = []
  end

  def drive(to, seed: 7, **options)
    Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.commit_interval = 60
      app.group("billing") { |group| group.topic "orders", to:, retry: { times: 2, from: 1, to: 1 }, **options }
    end, seed:)
  end

  # A processor that sends each message, and then does what the block says.
  def sending(&block)
    seen = @seen
    Class.new(Penstock::Processor) do
      define_method(:process) do |message|
        seen << message.payload
        produce({ topic: "bills", payload: message.payload })
        instance_exec(message, &block) if block
      end
    end
  end

  def produce(driver, count, **more) = count.times { |i| driver.produce("orders", key: "k", payload: i.to_s, **more) }

  def fail_deliveries(driver, times)
    driver.instance_variable_get(:@runtime).sent.fail_next(:msg_timed_out, times:)
  end

  def bills(driver) = driver.produced("bills").map { |message| message[:payload] }

  # Otherwise each message of a key takes a round trip to the brokers.
  %i[partition key].each do |order|
    define_method("test_a_message_does_not_wait_for_the_delivery_of_the_one_before_it_with_the_order_#{order}") do
      driver = drive(sending, order:)
      produce(driver, 5)
      fail_deliveries(driver, 1)
      driver.run
      assert_equal %w[0 1 2 3 4], @seen
      driver.advance(120)
      assert_equal %w[0 1 2 3 4] * 2, @seen # the first one was not delivered, so all of its lane come again, in order
      assert_equal %w[1 2 3 4 0 1 2 3 4], bills(driver)
      assert_equal 5, driver.committed("billing", "orders")
    end
  end

  def test_other_keys_do_not_come_again_with_one_whose_delivery_failed
    driver = drive(sending, order: :key)
    driver.produce("orders", key: "a", payload: "a")
    driver.produce("orders", key: "b", payload: "b")
    fail_deliveries(driver, 1)
    driver.advance(120)
    assert_equal [3, 2], [@seen.size, bills(driver).size]
    assert_equal 2, driver.committed("billing", "orders")
  end

  # Quick messages that send nothing come first. With some seeds messages of different keys share a lane then.
  def test_other_keys_do_not_come_again_with_a_message_that_is_the_first_to_send
    seen = @seen
    processor = Class.new(Penstock::Processor) do
      define_method(:process) { |message| (seen << message.payload) && message.key == "b" && copy_to("bills") }
    end
    8.times do |seed|
      driver = drive(processor, order: :key, seed:)
      driver.produce("orders", key: "x", payload: "first")
      driver.run
      %w[a b c d e].each { |key| driver.produce("orders", key:, payload: key) }
      fail_deliveries(driver, 1)
      driver.advance(120)
      assert_equal %w[a b b c d e first], @seen.sort
      assert_equal [6, %w[b]], [driver.committed("billing", "orders"), bills(driver)]
      @seen.clear
    end
  end

  def test_a_message_that_is_skipped_after_it_has_sent_counts_when_that_is_delivered
    driver = drive(sending { skip("sent") })
    produce(driver, 1)
    fail_deliveries(driver, 1)
    driver.advance(120)
    assert_equal [%w[0 0], %w[0]], [@seen, bills(driver)]
  end

  # The processor ends its thread, or the process, before it is known whether earlier messages of the work are delivered.
  { "ends_its_thread" => -> { Thread.exit }, "exits" => -> { exit } }.each do |name, action|
    define_method("test_nothing_counts_that_was_not_delivered_when_a_processor_#{name}") do
      action = -> { throw :away } if name == "ends_its_thread" # the driver has no threads
      driver = drive(sending { |message| action.call if message.payload == "2" })
      produce(driver, 3)
      fail_deliveries(driver, 1)
      driver.advance(0.5)
      driver.advance(5) if driver.health.state != :ended
      assert_operator driver.committed("billing", "orders").to_i, :<=, bills(driver).include?("0") ? 3 : 0
    end
  end

  # Otherwise nothing of the partition would ever begin again.
  def test_a_pause_behind_a_message_whose_delivery_failed_comes_again_with_it
    pauses = 0
    driver = drive(sending { |message| pause(5) if message.payload == "1" && (pauses += 1) <= 2 })
    produce(driver, 3)
    fail_deliveries(driver, 1)
    driver.advance(60)
    assert_equal %w[0 1 0 1 1 2], @seen
    assert_equal 3, driver.committed("billing", "orders")
  end

  # ---- checkpoints ----

  # A processor that collects messages, sends their number, and then names the last one.
  def collecting(hook)
    Class.new(Penstock::Processor) do
      define_method(:process) do |message|
        (@orders ||= []) << message
        store if hook == :process
      end
      define_method(hook) { store } unless hook == :process
      define_method(:store) do
        return if @orders.nil? || @orders.empty?

        produce({ topic: "bills", payload: @orders.size.to_s })
        checkpoint(@orders.last)
        @orders = []
      end
    end
  end

  %i[tick caught_up process].each do |hook|
    define_method("test_a_checkpoint_in_#{hook}_does_not_pass_what_was_sent_before_it_and_not_delivered") do
      driver = drive(collecting(hook), offsets: :manual, tick: 10, retry: { from: 200, to: 200 })
      produce(driver, 3)
      fail_deliveries(driver, 1)
      driver.advance(70)
      stored = bills(driver).sum { |bill| Integer(bill) }
      assert_operator stored, :>=, driver.committed("billing", "orders").to_i
      driver.crash
      driver.advance(130)
      assert_equal [3, 3], [bills(driver).sum { |bill| Integer(bill) }, driver.committed("billing", "orders")]
    end
  end

  # Sends each message of a batch of five, then names the last one as done.
  def drive_checkpoints
    to = Class.new(Penstock::Processor) do
      def process_batch(batch)
        batch.each { |message| produce({ topic: "bills", payload: message.payload }) }
        checkpoint(batch.last)
      end
    end
    drive(to, offsets: :manual, batch: { size: 5 }, retry: { from: 200, to: 200 })
  end

  def test_a_checkpoint_in_a_batch_does_not_pass_what_was_sent_before_it_and_not_delivered
    driver = drive_checkpoints
    produce(driver, 3)
    fail_deliveries(driver, 1)
    driver.advance(70)
    assert_nil driver.committed("billing", "orders")
    driver.advance(200)
    assert_equal [%w[0 1 2], 3], [bills(driver).uniq.sort, driver.committed("billing", "orders")]
  end

  # A worker gets several quick batches at once.
  def test_a_checkpoint_in_a_later_batch_does_not_pass_what_was_sent_before_it_and_not_delivered
    driver = drive_checkpoints
    sent = 0
    driver.instance_variable_get(:@runtime).sent.script { :msg_timed_out if (sent += 1) == 12 }
    produce(driver, 30)
    driver.advance(70)
    assert_equal 10, driver.committed("billing", "orders")
    driver.advance(200)
    assert_equal [Array.new(30, &:to_s), 30], [bills(driver).uniq.sort_by(&:to_i), driver.committed("billing", "orders")]
  end

  # ---- what a crash repeats ----

  { partition: {}, key: { in_flight: 10 }, unordered: { in_flight: 10 } }.each do |order, options|
    define_method("test_a_crash_repeats_no_more_than_the_route_says_with_the_order_#{order}") do
      driver = drive(->(message) { @seen << message.offset }, order:, uncommitted: { messages: 50 }, **options)
      200.times { |i| driver.produce("orders", key: "k#{i % 20}", payload: "x") }
      driver.fail_commits("billing", 1)
      driver.advance(30)
      assert_equal [50, nil], [@seen.size, driver.committed("billing", "orders")]
      driver.advance(70) # the next commit succeeds, and later ones do not wait for the interval
      assert_equal [*0...200], @seen.sort
      driver.crash
      driver.advance(1)
      assert_operator @seen.size, :<=, 250
    end
  end

  def test_much_that_is_processed_is_committed_before_the_interval_is_over
    driver = drive(->(message) { @seen << message.offset }, uncommitted: { messages: 1_000, bytes: 2_000 })
    100.times { driver.produce("orders", payload: "x" * 100) }
    driver.advance(1)
    assert_operator driver.committed("billing", "orders").to_i, :>=, 50
    assert_equal 100, @seen.size
  end

  def test_with_manual_offsets_the_program_decides
    seen = @seen
    driver = drive(Class.new(Penstock::Processor) { define_method(:process) { |message| seen << message.offset } },
                   offsets: :manual, uncommitted: { messages: 5 })
    produce(driver, 20)
    driver.advance(5)
    assert_equal 20, @seen.size
  end

  def test_wrong_limits
    [{ messages: 0 }, { bytes: nil }, { messages: 1.5 }, 5].each do |uncommitted|
      assert_raises(Penstock::ConfigurationInvalidError) { drive(->(_) {}, uncommitted:) }
    end
    assert_raises(ArgumentError) { drive(->(_) {}, uncommitted: { message: 5 }) }
  end
end

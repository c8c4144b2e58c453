# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/each_once"
require_relative "../proofs/support/exactly_once_storm"

# Producer#transaction with a consumer, on a real Apache Kafka, as a reader of committed messages sees it.
class KafkaExactlyOnceTest < PenstockTest
  include EachOnce

  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }
  PARTITIONS = ExactlyOnceStorm::PARTITIONS
  DISTURBANCES = 5

  def setup
    super
    @topic = "penstock-once-#{SecureRandom.hex(6)}"
    @consumers = []
  end

  def teardown
    @storm&.kill_all
    @consumers.each { |consumer| consumer.close(timeout: 5) }
    super
  end

  ExactlyOnceStorm::PROTOCOLS.each_key do |name|
    thorough slow define_method(:"test_members_that_fail_and_are_killed_process_each_message_once_with_#{name}") {
      skip "librdkafka 2.12 has it" unless ExactlyOnceStorm.protocols.include?(name)
      storm = storm(name)
      count = fill(4_000)
      storm.join_all
      eventually(30) { storm.visible(committed: false).size > 100 }
      DISTURBANCES.times do |i|
        sleep rand * 3
        storm.disturb(i)
      end
      assert_outputs(count, storm.finish(count))
    }
  end

  # A member that was thought dead comes back in the middle of its transaction.
  # behaviour: transaction(consumer)
  def test_a_member_that_was_frozen_commits_nothing_that_another_has_processed
    storm = storm("range")
    count = fill(400)
    storm.join(0)
    eventually(30) { storm.visible.size > 50 }
    Process.kill(:STOP, storm.members[0])
    thaw_when_another_has_gone_on(storm, count)
  end

  def test_a_member_that_was_frozen_after_it_sent_its_offsets_commits_nothing_that_another_has_processed
    storm = storm("range")
    count = fill(400)
    pid = storm.join(0, "-e", FREEZING)
    assert_predicate Process.wait2(pid, Process::WUNTRACED)[1], :stopped?
    thaw_when_another_has_gone_on(storm, count)
  end
  FREEZING = <<~'RUBY'
    require "penstock"
    Penstock::Producer.const_get(:TransactionRunner).prepend(Module.new do
      def store_offsets(...) = super.tap { Process.kill(:STOP, $$) if ($stores = $stores.to_i + 1) == 3 }
    end)
  RUBY

  # librdkafka waits for offsets that an open transaction keeps back. If its assignment changes meanwhile, it takes the missing
  # answer for "no offset is committed", and begins at the beginning.
  %w[range cooperative_sticky].each do |name|
    thorough slow define_method(:"test_partitions_whose_offsets_were_kept_back_begin_at_the_committed_offsets_with_#{name}") {
      fill(80)
      ends = all_ends
      consumer.assign({}).commit({ "#{@topic}-in" => ends.transform_values { |offset| offset / 2 } })
      processed = Thread::Queue.new
      threads = []
      keeping_back(ends) do
        MEMBERS_OF_TWO.each do |number, partitions|
          threads << processing(number, ExactlyOnceStorm::PROTOCOLS[name], processed)
          eventually(40) { @consumers.last.assignment.values.flatten.size == partitions }
          sleep 0.5 # it asks for the offsets
        end
      end
      expected = ends.flat_map { |partition, offset| (offset / 2...offset).map { |one| [partition, one] } }
      eventually(60) { processed.size >= expected.size || threads.any? { |thread| !thread.alive? } }
      sleep 1 # nothing more
      threads.each { |thread| Slowness.join(thread.kill, 20) } # raises what has ended it
      got = Array.new(processed.size) { processed.pop }
      assert_operator got.size, :>=, expected.size, "processed in time"
      assert_each_once(expected, got, ordered: false)
    }
  end
  MEMBERS_OF_TWO = { 0 => PARTITIONS, 1 => PARTITIONS / 2 }.freeze # how many partitions each gets when it joins

  def test_without_going_back_the_messages_of_an_aborted_transaction_would_be_lost
    fill(20)
    one = consumer.subscribe("#{@topic}-in")
    writer = producer(servers: SERVERS, "transactional.id": @topic)
    aborted = nil
    eventually(30) do
      writer.transaction(one, timeout: 1) do |batch|
        aborted = batch.payloads
        raise Penstock::AbortTransaction
      end
      aborted
    end
    committed = []
    eventually(30) { committed.concat((writer.transaction(one, timeout: 1) { nil } || []).map(&:payload)).size == 20 }
    assert_empty aborted - committed
    assert_each_once(Array.new(20, &:to_s), committed, ordered: false)
    ends = all_ends
    assert_equal(ends.reject { |_, offset| offset.zero? }, one.committed("#{@topic}-in", ends.keys, timeout: 10).compact)
  end

  private

  def assert_outputs(count, outputs)
    refute_empty outputs, "the outputs could not be read in time"
    assert_each_once(Array.new(count, &:to_s), outputs, ordered: false)
  end

  # @return [Integer] how many messages there are
  def fill(count)
    messages = Array.new(count) { |i| { topic: "#{@topic}-in", payload: i.to_s, key: i.to_s } }
    producer(servers: SERVERS).produce_many_sync(messages).size
  end

  def consumer(**kafka)
    made = Penstock::Consumer.new("bootstrap.servers": SERVERS, "group.id": @topic, "auto.offset.reset": "earliest",
                                  "enable.auto.commit": false, "session.timeout.ms": 6_000, **kafka)
    made.tap { @consumers << made }
  end

  def all_ends
    asking = consumer
    (0...PARTITIONS).to_h { |partition| [partition, asking.watermarks("#{@topic}-in", partition)[1]] }
  end

  # @return [Thread] a member that processes messages
  def processing(number, settings, processed)
    one = consumer(**settings.transform_keys(&:to_sym)).subscribe("#{@topic}-in")
    writer = producer(servers: SERVERS, "transactional.id": "#{@topic}-#{number}")
    quiet_thread do
      loop do
        batch = writer.transaction(one, timeout: 0.1) { nil } or next
        batch.each { |message| processed << [message.partition, message.offset] }
      end
    end
  end

  # Runs the block while a transaction with offsets of all partitions is open.
  def keeping_back(offsets)
    done, open = Array.new(2) { Thread::Queue.new }
    writer = producer(servers: SERVERS, "transactional.id": "#{@topic}-open")
    thread = quiet_thread do
      writer.transaction do
        rows = offsets.map { |partition, offset| ["#{@topic}-in", partition, offset, nil] }
        writer.client.send_offsets_to_transaction(rows, @topic, nil)
        open << true
        done.pop
        raise Penstock::AbortTransaction
      end
    end
    open.pop
    yield
  ensure
    done << true
    thread.join
  end

  # @return [ExactlyOnceStorm] whose topics are this test's
  def storm(protocol) = @storm = ExactlyOnceStorm.new(SERVERS, protocol).tap { |storm| @topic = storm.name }

  # If offsets were already sent, the coordinator gives out no offsets of their partitions until it has aborted the transaction:
  # after the 10 s of transaction.timeout.ms, when it next looks for such transactions, which it does every 10 s.
  def thaw_when_another_has_gone_on(storm, count)
    storm.join(1)
    # What the frozen member holds may be in an open transaction.
    eventually(60) { storm.visible(committed: false).size >= count - 40 }
    Process.kill(:CONT, storm.members[0])
    assert_outputs(count, storm.finish(count))
  end
end

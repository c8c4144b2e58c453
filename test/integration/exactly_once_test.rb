# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/reader"
require "securerandom"

# Producer#transaction with a consumer, on a real Apache Kafka, as a reader of committed messages sees it.
class KafkaExactlyOnceTest < PenstockTest
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }
  PARTITIONS = 4 # Kafka's default in tests
  MEMBERS = 3
  DISTURBANCES = 5

  def setup
    super
    @topic = "penstock-once-#{SecureRandom.hex(6)}"
    @workers = {}
    @consumers = []
  end

  def teardown
    @workers.each_value { |pid| end_worker(pid, :KILL) }
    @consumers.each { |consumer| consumer.close(timeout: 5) }
    super
  end

  # Reads "in", writes "out". It ends in good order with SIGTERM, and when its producer was fenced. Now and then a block raises,
  # aborts or takes long.
  WORKER = <<~'RUBY'
    require "penstock"
    servers, topic, number, settings = ARGV
    settings = settings.split(",").to_h { |setting| setting.split("=") }
    stopping = false
    trap("TERM") { stopping = true }
    producer = Penstock::Producer.new("bootstrap.servers": servers, "transactional.id": "#{topic}-#{number}",
                                     "transaction.timeout.ms": 10_000, log_level: 0)
    consumer = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest", log_level: 0,
                       "enable.auto.commit": false, **settings }
    end
    consumer.subscribe("#{topic}-in")
    until stopping
      begin
        producer.transaction(consumer, max: rand(1..40), timeout: 0.2) do |batch|
          batch.each { |message| producer.produce_async(topic: "#{topic}-out", payload: message.payload, key: message.payload) }
          case rand(12)
          when 0 then raise "failed"
          when 1 then raise Penstock::AbortTransaction
          when 2 then sleep rand * 0.3
          end
        end
      rescue Penstock::ProducerFencedError
        stopping = true
      rescue RuntimeError, Penstock::TransactionError
        nil
      end
    end
    consumer.close
    producer.close
  RUBY

  CLASSIC = { "session.timeout.ms" => 6_000, "heartbeat.interval.ms" => 200 }.freeze
  PROTOCOLS = {
    "range" => CLASSIC.merge("partition.assignment.strategy" => "range"),
    "cooperative_sticky" => CLASSIC.merge("partition.assignment.strategy" => "cooperative-sticky"),
    "the_consumer_protocol" => { "group.protocol" => "consumer" }
  }.freeze

  PROTOCOLS.each do |name, settings|
    slow define_method(:"test_members_that_fail_and_are_killed_process_each_message_once_with_#{name}") {
      skip "librdkafka 2.12 has it" if settings["group.protocol"] && old?
      count = fill(4_000)
      MEMBERS.times { |number| start_worker(number, settings) }
      eventually(30) { visible(wait: false).size > 100 }
      DISTURBANCES.times do |i|
        sleep rand * 3
        disturb(i, settings)
      end
      outputs = all_outputs(count)
      assert_equal [count, count], [outputs.uniq.size, outputs.size], "missing or repeated"
    }
  end

  # A member that was thought dead comes back in the middle of its transaction.
  def test_a_member_that_was_frozen_commits_nothing_that_another_has_processed
    count = fill(400)
    start_worker(0, PROTOCOLS["range"])
    eventually(30) { visible.size > 50 }
    Process.kill(:STOP, @workers[0])
    thaw_when_another_has_gone_on(count)
  end

  def test_a_member_that_was_frozen_after_it_sent_its_offsets_commits_nothing_that_another_has_processed
    count = fill(400)
    start_worker(0, PROTOCOLS["range"], "-e", FREEZING)
    Process.wait2(@workers[0], Process::WUNTRACED).then { |_, status| assert_predicate status, :stopped? }
    thaw_when_another_has_gone_on(count)
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
    slow define_method(:"test_partitions_whose_offsets_were_kept_back_begin_at_the_committed_offsets_with_#{name}") {
      fill(80)
      ends = all_ends
      consumer.assign({}).commit({ "#{@topic}-in" => ends.transform_values { |offset| offset / 2 } })
      processed = Thread::Queue.new
      threads = []
      keeping_back(ends) do
        MEMBERS_OF_TWO.each do |number, partitions|
          threads << processing(number, PROTOCOLS[name], processed)
          eventually(40) { @consumers.last.assignment.values.flatten.size == partitions }
          sleep 0.5 # it asks for the offsets
        end
      end
      expected = ends.flat_map { |partition, offset| (offset / 2...offset).map { |one| [partition, one] } }
      eventually(60) { processed.size >= expected.size || threads.any? { |thread| !thread.alive? } }
      sleep 1 # nothing more
      threads.each { |thread| thread.kill.join(20) } # raises what has ended it
      assert_equal expected, Array.new(processed.size) { processed.pop }.sort
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
    assert_equal 20, committed.uniq.size
    ends = all_ends
    assert_equal(ends.reject { |_, offset| offset.zero? }, one.committed("#{@topic}-in", ends.keys, timeout: 10).compact)
  end

  private

  def old? = (Penstock.librdkafka_version.split(".").map(&:to_i) <=> [2, 12]).negative?

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

  # If offsets were already sent, the coordinator gives out no offsets of their partitions until it has aborted the transaction:
  # after the 10 s of transaction.timeout.ms, when it next looks for such transactions, which it does every 10 s.
  def thaw_when_another_has_gone_on(count)
    start_worker(1, PROTOCOLS["range"])
    eventually(60) { visible(wait: false).size >= count - 40 } # what the frozen member holds may be in an open transaction
    Process.kill(:CONT, @workers[0])
    assert_equal count, all_outputs(count).size
  end

  # @param before [Array<String>] arguments of Ruby
  def start_worker(number, settings, *before)
    lib = File.expand_path("../../lib", __dir__)
    @workers[number] = Process.spawn(RbConfig.ruby, "-I", lib, *before, "-e", WORKER, SERVERS, @topic, number.to_s,
                                     settings.map { |pair| pair.join("=") }.join(","))
  end

  def end_worker(pid, signal)
    Process.kill(signal, pid)
    _, status = Timeout.timeout(40) { Process.wait2(pid) }
    assert status.success? || aborted?(status), status.inspect if signal == :TERM
  end

  # With librdkafka 2.0.2, a member that leaves while it assigns partitions as the group's leader fails an assertion
  # (rd_kafka_sticky_assignor_state_destroy). That is as good as a SIGKILL.
  def aborted?(status) = status.termsig == Signal.list["ABRT"]

  # Ends the workers when each message has an output.
  def all_outputs(count)
    found = nil
    60.times { (found = visible).uniq.size < count ? sleep(1) : break }
    assert_equal count, found.uniq.size, "outputs within a minute"
    @workers.shift.then { |_, pid| end_worker(pid, :TERM) } until @workers.empty?
    visible
  end

  # Ends one worker, in turns without and with notice, and starts it again.
  def disturb(times, settings)
    number = times % MEMBERS
    end_worker(@workers.delete(number), times.even? ? :KILL : :TERM)
    start_worker(number, settings)
  end

  def visible(wait: true)
    reader = Reader.new(SERVERS, "isolation.level": wait ? "read_committed" : "read_uncommitted")
    reader.read("#{@topic}-out", partitions: 0...PARTITIONS, seconds: 20).map(&:payload)
  rescue RuntimeError
    [] # an open transaction keeps readers from the end
  end
end

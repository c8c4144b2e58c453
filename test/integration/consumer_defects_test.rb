# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../proofs/support/consumer_storm"
require_relative "../support/kafka_topics"
require_relative "../support/slow_calls"
require "tmpdir"

# Defects of librdkafka that need a real Kafka, see docs/evidence/defects.md.
class KafkaConsumerDefectsTest < ConsumerTestCase
  include SlowCalls

  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }

  def consumer(servers: SERVERS, **settings, &block) = super

  def producer(servers: SERVERS, **settings, &block) = super

  # Kafka creates it with 4 partitions.
  def filled(messages)
    "penstock-test-#{SecureRandom.hex(6)}".tap do |name|
      @sender = producer
      4.times { |partition| produce(name, Array.new(messages) { "#{partition} x" }, partition:, on: @sender) }
    end
  end

  # librdkafka #4059 (2.10.0): a commit during a cooperative rebalance is refused, and costs the member its assignment.
  # defect C7
  def test_07_commits_during_rebalances_lose_no_assignment
    name = filled(500)
    lost = []
    listener = Object.new
    listener.define_singleton_method(:lost) { |rebalance| lost << rebalance.partitions }
    settings = { "partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 100,
                 "enable.auto.commit": false }
    one = group_consumer(name, **settings) { |config| config.rebalance_listener = listener }.subscribe(name)
    take(one, 10)
    over = false
    commits = 0
    committing = quiet_thread do
      until over
        one.poll_batch(max: 3, timeout: 0.01)
        commits += 1 if one.commit
      end
    end
    3.times do
      other = group_consumer(name, **settings).subscribe(name)
      eventually(30) { other.poll_batch(max: 1, timeout: 0.05) && other.assignment.any? }
      other.close
    end
    eventually(30) { one.assignment.values.flatten.size == 4 }
    over = true
    committing.join
    assert_operator commits, :>, 5
    assert_empty lost
  end

  # The second member notices only after some seconds that the third one joins, so the first one's JoinGroup request has no answer
  # until then. Its commit has begun before the third member joins, and takes a second until librdkafka has it.
  COMMITTING = <<~'RUBY'
    servers, topic = ARGV
    lost = []
    listener = Object.new
    listener.define_singleton_method(:lost) { |rebalance| lost << rebalance.partitions }
    make = lambda do |heartbeat|
      Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": servers, "group.id": "committing-#{topic}", "auto.offset.reset": "earliest",
                         "heartbeat.interval.ms": heartbeat, "enable.auto.commit": false, log_level: 0,
                         "partition.assignment.strategy": "cooperative-sticky" }
        config.rebalance_listener = listener
      end.subscribe(topic)
    end
    polling = lambda do |one, over|
      Thread.new { one.poll(timeout: 0.05) until over.call }
    end
    over = false
    one, two = make.call(100), make.call(3_000)
    threads = [one, two].map { |member| polling.call(member, -> { over }) }
    sleep 0.01 until [one, two].all? { |member| member.assignment.fetch(topic, []).size == 2 }
    sleep 1.5 # librdkafka joins once a second
    File.write(ENV["SLOW_COMMIT"], "")
    committed = Thread.new { one.commit({ topic => one.assignment.fetch(topic).to_h { |partition| [partition, 1] } }) }
    sleep 0.01 while File.exist?(ENV["SLOW_COMMIT"])
    three = make.call(100)
    threads << polling.call(three, -> { over })
    sleep 0.01 until [one, two, three].sum { |member| member.assignment.fetch(topic, []).size } == 4 && three.assignment.any?
    puts committed.value, lost.inspect
    over = true
    threads.each(&:join)
    [one, two, three].each(&:close)
  RUBY

  # defect C7
  slow def test_07_a_commit_that_has_begun_before_the_member_joins_loses_no_assignment
    name = filled(10)
    Dir.mktmpdir do |path|
      assert_equal "true\n[]\n", slow!(COMMITTING, SERVERS, name, commit: File.join(path, "commits"), commit_ms: 1_000)
    end
  end

  # The topic is deleted while the consumer reads it.
  DELETED = <<~'RUBY'
    servers, topic = ARGV
    consumer = Penstock::Consumer.new("bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest", log_level: 0,
                                      "topic.metadata.refresh.interval.ms": 200)
    consumer.subscribe(topic)
    nil until consumer.poll(timeout: 1)
    puts "reads"
    $stdout.flush
    $stdin.gets
    until_then = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 2
    begin
      consumer.poll(timeout: 0.1) while Process.clock_gettime(Process::CLOCK_MONOTONIC) < until_then
    rescue Penstock::ConsumeError
      retry
    end
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    report = consumer.close(timeout: 5)
    puts Process.clock_gettime(Process::CLOCK_MONOTONIC) - started, report.complete?
    $stdout.flush
    exit!(0)
  RUBY

  # librdkafka #4187 (2.1.0), #4724 (2.6.1): a deleted partition keeps a consumer from closing. `close` then returns at its
  # timeout.
  # defect C16
  thorough def test_16_close_of_a_consumer_whose_topic_was_deleted_returns_in_time
    name = filled(1_000)
    program = IO.popen([RbConfig.ruby, "-I", LIBRARY, "-r", "penstock", "-e", DELETED, SERVERS, name], "r+")
    assert_equal "reads\n", program.gets
    KafkaTopics.admin { |admin| admin.delete_topics(name).raise! }
    program.puts
    assert_operator Float(program.gets), :<, 7
    complete = program.gets
    assert_equal "true\n", complete if ConsumerStorm.librdkafka >= Gem::Version.new("2.6.1")
  ensure
    program&.close
  end

  # A member in its own process, which the block may freeze. The block gets its pid.
  def frozen_member(name, **kafka)
    Dir.mktmpdir do |directory|
      kafka = { "bootstrap.servers": SERVERS, "group.id": name, "fetch.wait.max.ms": 50, "auto.commit.interval.ms": 100, **kafka }
      pid = in_own_process({ id: "frozen", directory:, topic: name, manual: false, kafka: })
      yield pid, -> { File.exist?("#{directory}/frozen.ledger") ? File.readlines("#{directory}/frozen.ledger") : [] }
    ensure
      Process.kill(:KILL, pid) && Process.wait(pid) if pid
    end
  end

  def in_own_process(settings)
    program = "require #{ConsumerStorm::MEMBER.inspect}; ConsumerStorm::Member.new(**Marshal.load($stdin.read)).run"
    read, write = IO.pipe(binmode: true)
    pid = spawn(RbConfig.ruby, "-I", LIBRARY, "-r", "penstock", "-e", program, in: read)
    read.close
    write.write(Marshal.dump(settings))
    write.close
    pid
  end

  # librdkafka #3437 (open): a static member that was away for longer than its session hung.
  # defect C24
  thorough def test_24_a_static_member_that_was_frozen_past_its_session_goes_on
    name = filled(50)
    classic = { "session.timeout.ms": 1_500, "heartbeat.interval.ms": 200 }
    frozen_member(name, "group.instance.id": "one", **classic) do |pid, ledger|
      group = group_consumer(name)
      eventually(30) { group.committed(name, 0..3).values.compact.sum == 200 }
      Process.kill(:STOP, pid)
      sleep 3
      4.times { |partition| produce(name, ["#{partition} more"], partition:, on: @sender) }
      Process.kill(:CONT, pid)
      eventually(30, -> { ledger.call.last(10).join }) { group.committed(name, 0..3).values.compact.sum == 204 }
    end
  end

  # librdkafka #5541 (2.15.0): with the protocol "consumer", a member that exceeded max.poll.interval.ms got a fatal error.
  # defect C19
  def test_19_a_member_of_the_protocol_consumer_that_polls_too_late_comes_back
    skip "librdkafka #{Penstock.librdkafka_version} has no group.protocol=consumer" unless ConsumerStorm.consumer_protocol?

    name = filled(10)
    one = consumer("group.id": name, "group.protocol": "consumer", "auto.offset.reset": "earliest", "max.poll.interval.ms": 6_000)
    one.subscribe(name)
    take(one, 40)
    sleep 8
    @sender.produce_sync(topic: name, payload: "0 more", partition: 0)
    error = assert_raises(Penstock::ConsumeError) { eventually(10) { one.poll(timeout: 0.2) && false } }
    return if error.fatal? && ConsumerStorm.librdkafka < Gem::Version.new("2.15") # a new client is required: docs/errors.md

    assert_equal :max_poll_exceeded, error.code
    eventually(30) { one.poll(timeout: 0.2)&.payload == "0 more" }
  end

  # A member takes its 51st message, or some more at once, while another one, which reads another topic, joins the group.
  JOINING = <<~'RUBY'
    servers, topic, other = ARGV
    make = -> do
      Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": servers, "group.id": "joining-#{topic}", "auto.offset.reset": "earliest",
                         "heartbeat.interval.ms": 200, "partition.assignment.strategy": "cooperative-sticky" }
        config.mark = :manual
      end
    end
    one = make.call.subscribe(topic)
    offsets = []
    offsets.concat(one.poll_batch(max: 50 - offsets.size).map(&:offset)) while offsets.size < 50
    sleep 0.01 until one.metrics.queue_length >= 100 # so many that it takes them without the GVL
    File.write(ENV["SLOW_MESSAGE"], "")
    polling = Thread.new { one.poll_batch(max: 100).map(&:offset) }
    sleep 0.05 while File.exist?(ENV["SLOW_MESSAGE"])
    two = make.call.subscribe(other)
    joining = Thread.new { two.poll(timeout: 0.1) until two.assignment.any? }
    offsets.concat(polling.value)
    puts offsets.size
    offsets.concat(one.poll_batch(timeout: 0.5).map(&:offset)) while offsets.size < 201
    puts offsets.join(" ")
    one.poll(timeout: 0.1) while joining.alive?
    one.close
    two.close
  RUBY

  # librdkafka reads on at the messages that the program is just taking when it pauses the partitions that stay: they came twice.
  # defect C37
  thorough def test_37_messages_that_are_taken_when_the_group_rebalances_come_once
    sender = producer
    names = Array.new(2) { "penstock-test-#{SecureRandom.hex(6)}" }
    names.each { |name| sender.produce_sync(topic: name, payload: "first", partition: 0) }
    produce(names[0], Array.new(200, &:to_s), partition: 0, on: sender)
    Dir.mktmpdir do |path|
      before, offsets = slow!(JOINING, SERVERS, *names, message: File.join(path, "taken"), message_ms: 8_000).split("\n")
      assert_includes 51..54, Integer(before) # librdkafka has dropped what it had read ahead
      assert_each_once((0..200).to_a, offsets.split.map(&:to_i))
    end
  end
end

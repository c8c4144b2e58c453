# frozen_string_literal: true

require_relative "../support/advertising_broker"
require_relative "../support/allocation_counts"
AllocationCounts.preload
require "penstock"
require_relative "../support/internal"
require_relative "../support/plain_scheduler"
require "timeout"

# Goes through every error path many times, and looks whether all that was made of librdkafka's has been destroyed, and whether
# memory has grown: ruby test/proofs/allocations.rb [LOOPS=10000] [PART OF A NAME]
class Allocations
  WARM_UP = 5 # per cent of the loops before memory is looked at
  BYTES = 64 # what memory may grow by for each loop, beside
  SLACK = 6 << 20 # what it may always do
  PATIENCE = 20 # seconds until what was dropped is closed
  # client.c: what librdkafka could not make a client of, and would free twice.
  LOSES_CONF = Gem::Version.new(Penstock.librdkafka_version) < Gem::Version.new("2.14")

  Path = Struct.new(:name, :body, :divisor, :least, :expected)
  @paths = []

  class << self
    attr_reader :paths

    # @param divisor [Integer] of the loops: for what takes long
    # @param least [Integer] how many loops at least
    # @param lost [Hash] of each loop, what stays, and is known to
    def path(name, divisor: 1, least: 3, lost: {}, &body) = @paths << Path.new(name, body, divisor, least, lost)
  end

  BAD_SETTINGS = [
    { "no.such.setting": 1 }, { "acks" => "some" }, { "linger.ms": 1.0 / 0 }, { "linger.ms": "5 s" }, { "client.id" => "a\0b" },
    { "acks" => 1, acks: 1 }, { 5 => 1 }, { "linger.ms": nil }, { "delivery.report.only.error": true },
    { "transactional.id": "x", "enable.idempotence": false }, { "transactional.id": "" }, { "bootstrap.servers": "" },
    { "ssl.key.password": "x\0" }, { "enable.idempotence": true, acks: 1 }
  ].freeze
  path("producers with a wrong setting") do |loop, servers|
    settings = { "bootstrap.servers": servers, **BAD_SETTINGS[loop % BAD_SETTINGS.size] }
    refused(Penstock::ConfigurationInvalidError) { Penstock::Producer.new { |config| config.kafka = settings } }
  end

  BAD_CONSUMERS = [
    { "no.such.setting": 1 }, { "fetch.min.bytes" => "many" }, { "auto.offset.reset": "never" }, { "group.id" => "a\0b" },
    { "bootstrap.servers": "" }, { 5 => 1 }
  ].freeze
  path("consumers with a wrong setting") do |loop, servers|
    settings = { "bootstrap.servers": servers, **BAD_CONSUMERS[loop % BAD_CONSUMERS.size] }
    refused(Penstock::ConfigurationInvalidError) { Penstock::Consumer.new { |config| config.kafka = settings } }
  end

  NO_AUTHORITY = { "security.protocol": "ssl", "ssl.ca.location": __FILE__ }.freeze # no certificate, which only OpenSSL sees
  path("producers that librdkafka refuses when they are opened", lost: LOSES_CONF ? { "conf" => 1 } : {}) do |_, servers|
    client = new_client(servers, **NO_AUTHORITY)
    refused(Penstock::ConfigurationInvalidError) { client.connect }
    client.close(0)
  end

  path("one producer that librdkafka refuses again and again") do |_, servers|
    @refused ||= new_client(servers, **NO_AUTHORITY).tap do |client|
      refused(Penstock::ConfigurationInvalidError) { client.connect } # loses what there is to lose
      @baseline = true
    end
    refused(Penstock::ConfigurationInvalidError) { @refused.connect }
  end

  path("consumers that librdkafka refuses when they are opened") do |_, servers|
    consumer = new_consumer(servers, **NO_AUTHORITY)
    refused(Penstock::ConfigurationInvalidError) { consumer.assign("x" => [0]) }
    consumer.close
  end

  BAD_MESSAGES = [
    nil, {}, { topic: "t" }, { topic: 1, payload: "x" }, { topic: "a b", payload: "x" }, { topic: "t", payload: :x },
    { topic: "t", payload: "x", key: 1 }, { topic: "t", payload: "x", partition: 2**40 }, { topic: "t", payload: "x", other: 1 },
    { topic: "t", payload: "x", headers: { "a" => "b", "c" => 1 } }, { topic: "t", payload: "x", headers: { "a" => ["b", nil] } },
    { topic: "t", payload: "x", headers: { "a" => "b", 5 => "c" } }, { topic: "t", payload: "x", timestamp: -1 },
    { topic: "t", payload: "x", partition: 1, partition_key: "a" }, { topic: "t", payload: "x" * 2_000_000 }
  ].freeze
  path("messages with something wrong") do |loop, servers|
    @client ||= opened(new_client(servers))
    message = BAD_MESSAGES[loop % BAD_MESSAGES.size]
    refused(Penstock::MessageInvalidError) { @client.produce(message) }
    good = { topic: "t", payload: "x", headers: { "a" => "b" }, partition_key: "k" }
    refused(Penstock::MessageInvalidError) { @client.produce_many([good, message, good], false) }
  end

  WITH_HEADERS = { topic: "known", payload: "x", key: "k", partition_key: nil, headers: { "a" => "b", "c" => %w[d e] } }.freeze
  path("messages with headers for a partition that does not exist") do |_, servers|
    @client ||= known_to(opened(new_client(servers)))
    refused(Penstock::ProduceError) { @client.produce({ **WITH_HEADERS, partition: 99 }) }
    batch = [{ **WITH_HEADERS, partition: 99 }] * 3
    _, error, = @client.produce_many(batch, false)
    expect(error.is_a?(Penstock::ProduceError))
    expect(@client.produce_many(batch * 50, false)[1].is_a?(Penstock::ProduceError)) # handed over without the GVL
  end

  # Before librdkafka has asked for the topic, then when it has given it up, and asks once a second.
  path("messages for a topic that does not exist", divisor: 20) do |loop, _|
    @lacking ||= AdvertisingBroker.new
    @client ||= opened(new_client(@lacking.address, "topic.metadata.propagation.max.ms": 10))
    message = { **WITH_HEADERS, topic: "lacking-#{loop / 5}" }
    perhaps { @client.produce(message).wait(max_wait_timeout_ms: 10_000) }
    handles, error, = @client.produce_many([message] * 3, 10_000)
    expect(error.is_a?(Penstock::ProduceError) || handles.all? { |handle| handle.error.code == :unknown_topic_or_part })
    refused(Penstock::ProduceError) { @client.produce(message) }
  end

  SMALL = { "queue.buffering.max.messages": 3 }.freeze
  path("full queues") do |_, _|
    @client ||= filled(new_client(NOBODY, **SMALL) { |config| config.on_queue_full = :raise })
    @dropping ||= filled(new_client(NOBODY, **SMALL) { |config| config.on_queue_full = :drop })
    @waiting ||= filled(new_client(NOBODY, **SMALL) { |config| config.wait_timeout_on_queue_full = 1 })
    batch = [WITH_HEADERS] * 3
    refused(Penstock::QueueFullError) { @client.produce(WITH_HEADERS) }
    expect(@client.produce_many(batch, false)[1].is_a?(Penstock::QueueFullError))
    expect(@client.produce_many(batch * 50, false)[1].is_a?(Penstock::QueueFullError))
    expect(@dropping.produce(WITH_HEADERS).error.code == :queue_full)
    refused(Penstock::QueueFullError) { @waiting.produce(WITH_HEADERS) }
  end

  path("waits for room that are interrupted") do |_, _|
    @client ||= filled(new_client(NOBODY, **SMALL))
    batch = [WITH_HEADERS] * 2
    interrupted { @client.produce(WITH_HEADERS) }
    interrupted { @client.produce_many(batch, nil) }
  end

  path("waits for room in fibers that are dropped") do |loop, _|
    @client ||= filled(new_client(NOBODY, **SMALL))
    batch = [WITH_HEADERS] * 2
    dropped { @client.produce(WITH_HEADERS) }
    dropped { @client.produce_many(batch, nil) }
    dropped { @client.produce_many(batch * 75, nil) } # handed over without the GVL
    GC.start if (loop % 5).zero? # fibers are large, and the collector does not know it
  end

  path("messages that are purged, and flushes that run out of time or are interrupted") do |_, _|
    @client ||= opened(new_client(NOBODY))
    @client.produce_many([WITH_HEADERS] * 5, false)
    expect(@client.flush(0) == false)
    interrupted { @client.flush(nil) }
    @client.purge
  end

  path("questions for partitions that nobody answers") do |loop, servers|
    @client ||= opened(new_client(servers))
    @lonely ||= opened(new_client(NOBODY))
    refused(Penstock::MessageInvalidError) { @client.partition_count("a b", 100, 0) }
    refused(Penstock::Error) { @lonely.partition_count("known", 1, 0) }
    interrupted { @lonely.partition_count("known", 1_000, 0) } if (loop % 100).zero? # goes on for its second
    expect(@client.partition_count("known", 5_000, 0) == 1)
  end

  path("calls of transactions in wrong states") do |loop, servers|
    @plain ||= opened(new_client(servers))
    @fresh ||= opened(new_client(servers, "transactional.id": "fresh"))
    @ready ||= opened(new_client(servers, "transactional.id": "ready")).tap { |client| client.init_transactions(10_000) }
    offsets = [["known", 0, 5, "metadata"]]
    refused(Penstock::TransactionError) { @plain.begin_transaction }
    [@fresh, @ready].each do |client|
      refused(Penstock::TransactionError) { client.commit_transaction(100) }
      refused(Penstock::TransactionError) { client.send_offsets_to_transaction(offsets, "group", 100) }
    end
    refused(Penstock::TransactionError) { @fresh.begin_transaction }
    refused(Penstock::TransactionError) { @fresh.abort_transaction(100) }
    refused(ArgumentError) { @ready.send_offsets_to_transaction([*offsets, ["known", -1, 5, nil]], "group", 100) }
    refused(ArgumentError) { @ready.send_offsets_to_transaction(offsets, "", 100) }
    refused(ArgumentError) { @ready.send_offsets_to_transaction(offsets, "a\0", 100) }
    interrupted { @ready.begin_transaction } if loop.even?
    perhaps { @ready.abort_transaction(1_000) }
  end

  path("transactions that nobody answers", divisor: 10) do |_, _|
    @client ||= opened(new_client(NOBODY, "transactional.id": "lonely"))
    refused(Penstock::TransactionError) { @client.init_transactions(1) }
    interrupted { @client.init_transactions(1) }
  end

  path("fatal errors", divisor: 20) do |_, servers|
    client = opened(new_client(servers, "transactional.id": "fatal"))
    client.__send__(:call_test_fatal_error, 47, "for a test")
    refused(Penstock::Error) { client.__send__(:call_test_fatal_error, 47, "again") }
    refused(Penstock::ProduceError) { client.produce(WITH_HEADERS) }
    refused(Penstock::TransactionError) { client.begin_transaction }
    client.close(1_000)
  end

  path("what a consumer cannot do") do |_, servers|
    @groupless ||= new_consumer(servers).assign("known" => [0])
    @plain ||= new_consumer(servers, "group.id": "plain").assign("known" => [0])
    refused(ArgumentError) { @plain.assign("known" => 5) }
    refused(ArgumentError) { @plain.assign("known" => { 0 => "first" }) }
    refused(Penstock::ConfigurationInvalidError) { @groupless.group_metadata }
    refused(Penstock::ConfigurationInvalidError) { @groupless.commit({ "known" => { 0 => 1 } }) }
    refused(Penstock::ConsumeError) { @plain.seek("elsewhere", 0, 0, timeout: 0.1) }
    expect(@plain.group_metadata.is_a?(String))
    @plain.position("known", 0)
    @plain.poll(timeout: 0)
  end

  path("what a consumer is waiting for in vain, or interrupted", divisor: 20) do |loop, _|
    @lone ||= new_consumer(NOBODY, "group.id": "lone", "session.timeout.ms": 1_000).subscribe("x")
    refused(Penstock::ConsumeError, Penstock::ConsumeTimeoutError) { @lone.committed("known", [0], timeout: 0.001) }
    refused(Penstock::ConsumeError, Penstock::ConsumeTimeoutError) { @lone.watermarks("known", 0, timeout: 0.001) }
    interrupted { @lone.poll(timeout: 10) }
    interrupted { @lone.committed("known", [0], timeout: 1) }
    interrupted { @lone.assignment } if loop.even?
  end

  path("polling what does not exist", divisor: 100) do |_, servers|
    consumer = new_consumer(servers, "auto.offset.reset": "error").assign("known" => { 0 => 5_000 })
    refused(Penstock::ConsumeError) { 50.times { consumer.poll(timeout: 0.2) } }
    consumer.close(timeout: 2)
  end

  path("messages that are consumed, and polls that are interrupted", divisor: 10) do |loop, servers|
    @sender ||= opened(new_client(servers))
    @reader ||= new_consumer(servers, "fetch.wait.max.ms": 5).assign("known" => { 0 => :end })
                                                             .tap { |one| one.poll(timeout: 0.1) }
    @sender.produce_many([WITH_HEADERS, { topic: "known", payload: nil }, { topic: "known", payload: "x", key: "k" }], 10_000)
    interrupted { @reader.poll(timeout: 10) }
    interrupted { @reader.poll_batch(max: 100, timeout: 10) } if loop.even?
    @reader.poll_batch(max: 100, timeout: 0.02).each(&:headers)
    @reader.seek("known", 0, :beginning).poll(timeout: 0.02) if (loop % 100).zero?
  end

  # The embedded cluster lets the first member of each wait for 3 seconds.
  path("groups that are joined and left", divisor: 1_000, least: 2) do |loop, servers|
    members = Array.new(5) do |i|
      new_consumer(servers, "group.id": "joined-#{loop}-#{i}", "auto.offset.reset": "earliest", "session.timeout.ms": 6_000)
        .subscribe("known")
    end
    members.each do |one|
      interrupted { one.poll(timeout: 1) } until one.assignment.any?
      one.poll(timeout: 0)
    end
    members.first(3).each(&:unsubscribe)
    members.each { |one| one.close(timeout: 5) }
  end

  path("producers that are opened and dropped, or interrupted meanwhile") do |loop, servers|
    client = new_client(servers)
    interrupted { client.connect }
    client.close(1_000) if loop.even?
    GC.start if (loop % 50).zero?
  end

  path("consumers that are opened and dropped, or interrupted meanwhile", divisor: 10) do |loop, servers|
    consumer = new_consumer(servers, "group.id": "opened")
    interrupted { consumer.assign("known" => [0]) }
    consumer.close(timeout: 2) if loop.even?
    GC.start if (loop % 50).zero?
  end

  path("what is closed") do |_, servers|
    @client ||= new_client(servers).tap { |client| client.close(0) }
    @consumer ||= new_consumer(servers).tap(&:close)
    refused(Penstock::ProducerClosedError) { @client.produce(WITH_HEADERS) }
    refused(Penstock::ProducerClosedError) { @client.partition_count("known", 10, 0) }
    refused(Penstock::ConsumerClosedError) { @consumer.poll(timeout: 0) }
    refused(Penstock::ConsumerClosedError) { @consumer.assign("known" => [0]) }
  end

  path("passwords that are of no use") do |_, servers|
    @client ||= opened(new_client(servers))
    refused(ArgumentError) { @client.set_credentials("user\0", "password") }
    @consumer ||= new_consumer(servers).assign("known" => [0])
    refused(Penstock::ConfigurationInvalidError) { @consumer.set_credentials("user", "password") }
  end

  path("embedded clusters", divisor: 20) do |_, _|
    cluster = Penstock::EmbeddedCluster.new(brokers: 1)
    refused(Penstock::Error) { 2.times { cluster.create_topic("twice", partitions: 1) } }
    refused(ArgumentError) { cluster.broker_down(7) }
    refused(Penstock::Error) { cluster.move_leader("twice", 0, 9) } if cluster.brokers > 8
    cluster.close
    refused(Penstock::Error) { cluster.bootstrap_servers }
  end

  NOBODY = "127.0.0.1:1" # nobody listens there

  # What a path may use: each has an object of its own, whose instance variables last from loop to loop.
  class Surroundings
    class Unexpected < StandardError; end

    attr_reader :baseline # what is lost once has been lost

    def new_client(servers, **kafka, &block)
      producer = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": servers, log_level: 0, **kafka }
        config.kafka[:"enable.idempotence"] = kafka.key?(:"transactional.id")
        block&.call(config)
      end
      Internal.of(producer).build_client(producer.config.kafka)
    end

    def new_consumer(servers, **kafka)
      Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": servers, log_level: 0, **kafka } }
    end

    def opened(client) = client.tap(&:connect)

    # So that librdkafka knows the topic, and refuses what is not in it.
    def known_to(client)
      client.tap { expect(client.produce_many([{ topic: "known", payload: "x" }], 10_000).last) }
    end

    def filled(client) = client.tap { 3.times { client.produce({ topic: "known", payload: "x" }) } }

    def expect(true_one) = true_one || raise(Unexpected, "something else came out")

    def refused(*errors)
      yield
      raise Unexpected, "it was not refused"
    rescue *errors
      nil
    end

    # At another moment each time; it may end before.
    def interrupted(&block)
      thread = Thread.new(&block)
      thread.report_on_exception = false
      Thread.pass
      sleep(rand * 0.0005) if rand(2).zero?
      thread.kill
      thread.join
    rescue Penstock::Error
      nil
    end

    # In a fiber whose scheduler ends while it waits.
    def dropped(&block)
      scheduler = PlainScheduler.new
      def scheduler.close = nil
      Thread.new do
        Fiber.set_scheduler(scheduler)
        fiber = Fiber.new(blocking: false, &block)
        fiber.resume
        expect(scheduler.waiting?(fiber))
      end.join
    end

    # What was kept from loop to loop.
    def close
      instance_variables.map { |name| instance_variable_get(name) }.each do |kept|
        kept.close(0) if kept.is_a?(Internal::ProducerClient)
        kept.close(timeout: 2) if kept.is_a?(Penstock::Consumer)
      end
    end

    def perhaps
      yield
    rescue Penstock::Error
      nil
    end
  end

  def initialize(loops)
    @loops = loops
    @cluster = Penstock::EmbeddedCluster.new(brokers: 1)
    @cluster.create_topic("known", partitions: 1)
  end

  # @return [Boolean] whether nothing was lost
  def call(chosen)
    unknown = AllocationCounts.unknown_functions
    puts "functions of librdkafka that nobody counts: #{unknown.join(" ")}" if unknown.any?
    lines = chosen.map { |path| run(path).tap { |fault, line| puts "#{fault ? "LOST  " : "even  "} #{line}" } }
    made = AllocationCounts.counts.values.sum(&:first)
    puts "allocations: #{lines.count(&:first)} of #{chosen.size} error paths lost something; " \
         "librdkafka made #{made} things for us, in #{@loops} loops each where a path has no other number"
    unknown.empty? && lines.none?(&:first)
  end

  private

  # @return [Array(Object, String)] what is wrong, or nil; and a line about it
  def run(path)
    Thread.report_on_exception = false
    loops = [@loops / path.divisor, path.least].max
    before = settled
    # On a thread of its own, as the collector might find things on this one's stack for long.
    memory, baseline = Thread.new { with_surroundings { |surroundings| repeat(path, surroundings, loops) } }.value
    before = before.merge("conf" => before.fetch("conf") + 1) if baseline && LOSES_CONF
    lost = missing(before, path.expected.transform_values { |each| each * loops })
    grown = path.expected.empty? && memory > SLACK + (BYTES * loops)
    result = lost.empty? ? "nothing lost" : "lost #{lost}"
    [lost.any? || grown, format("#{path.name}, #{loops} loops: #{result}, memory %+.1f MB", memory / 1e6)]
  end

  def with_surroundings
    surroundings = Surroundings.new
    [yield(surroundings), surroundings.baseline]
  ensure
    surroundings.close
  end

  # @return [Integer] by how many bytes memory has grown after the first loops
  def repeat(path, surroundings, loops)
    warm = [loops * WARM_UP / 100, 1].max
    first = 0
    loops.times do |loop|
      surroundings.instance_exec(loop, @cluster.bootstrap_servers, &path.body)
      first = resident if loop == warm
    end
    resident - first
  end

  def missing(before, expected)
    deadline = now + PATIENCE
    loop do
      lost = settled.to_h { |kind, count| [kind, count - before[kind]] }.reject { |kind, more| more == expected.fetch(kind, 0) }
      return lost if lost.empty? || now > deadline

      sleep 0.05
    end
  end

  # Nothing is open but the cluster, as far as that can be reached.
  def settled
    deadline = now + PATIENCE
    loop do
      3.times { GC.start }
      break if Internal::ProducerClient.open_count.zero? || now > deadline

      sleep 0.02
    end
    AllocationCounts.live
  end

  def resident
    GC.start
    Integer(File.read("/proc/self/statm").split[1]) * 4096
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

if $PROGRAM_NAME == __FILE__
  $stdout.sync = true
  $stderr.reopen(File.expand_path("../../tmp/allocations.log", __dir__), "w") # librdkafka tells of what it is put through
  chosen = Allocations.paths.select { |path| path.name.include?(ARGV.fetch(1, "")) }
  begin
    exit Allocations.new(Integer(ARGV.fetch(0, "10000"))).call(chosen)
  rescue StandardError => e
    puts e.full_message(highlight: false) # not to the log
    exit false
  end
end

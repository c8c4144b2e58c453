# frozen_string_literal: true

require_relative "../support/advertising_broker"
require_relative "../support/allocation_counts"
AllocationCounts.preload
require "penstock"
require_relative "../support/internal"
require_relative "../support/plain_scheduler"
require "timeout"

# Runs every error path many times. Checks that every librdkafka object that Penstock created is destroyed, and that memory does
# not grow: ruby test/proofs/allocations.rb [LOOPS=10000] [PART OF A NAME]
class Allocations
  WARM_UP = 5 # percent of the loops that run before memory is measured
  BYTES = 64 # allowed growth of memory for each loop, in addition to SLACK
  SLACK = 6 << 20 # allowed growth of memory in all
  PATIENCE = 20 # seconds until unreferenced clients are closed
  # client.c: a configuration that librdkafka rejects is leaked on purpose, because older versions would free it twice.
  LOSES_CONF = Gem::Version.new(Penstock.librdkafka_version) < Gem::Version.new("2.14")

  Path = Struct.new(:name, :body, :divisor, :least, :expected)
  @paths = []

  class << self
    attr_reader :paths

    # @param divisor [Integer] divides the number of loops, for slow paths
    # @param least [Integer] minimum number of loops
    # @param lost [Hash] known leaks: kind of object => number for each loop
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
    expect_error(Penstock::ConfigurationInvalidError) { Penstock::Producer.new { |config| config.kafka = settings } }
  end

  BAD_CONSUMERS = [
    { "no.such.setting": 1 }, { "fetch.min.bytes" => "many" }, { "auto.offset.reset": "never" }, { "group.id" => "a\0b" },
    { "bootstrap.servers": "" }, { 5 => 1 }
  ].freeze
  path("consumers with a wrong setting") do |loop, servers|
    settings = { "bootstrap.servers": servers, **BAD_CONSUMERS[loop % BAD_CONSUMERS.size] }
    expect_error(Penstock::ConfigurationInvalidError) { Penstock::Consumer.new { |config| config.kafka = settings } }
  end

  NO_AUTHORITY = { "security.protocol": "ssl", "ssl.ca.location": __FILE__ }.freeze # no certificate; only OpenSSL notices
  path("producers that librdkafka rejects when they open", lost: LOSES_CONF ? { "conf" => 1 } : {}) do |_, servers|
    client = new_client(servers, **NO_AUTHORITY)
    expect_error(Penstock::ConfigurationInvalidError) { client.connect }
    client.close(0)
  end

  path("one producer that librdkafka rejects repeatedly") do |_, servers|
    @rejected ||= new_client(servers, **NO_AUTHORITY).tap do |client|
      expect_error(Penstock::ConfigurationInvalidError) { client.connect } # leaks the configuration once
      @baseline = true
    end
    expect_error(Penstock::ConfigurationInvalidError) { @rejected.connect }
  end

  path("consumers that librdkafka rejects when they open") do |_, servers|
    consumer = new_consumer(servers, **NO_AUTHORITY)
    expect_error(Penstock::ConfigurationInvalidError) { consumer.assign("x" => [0]) }
    consumer.close
  end

  BAD_MESSAGES = [
    nil, {}, { topic: "t" }, { topic: 1, payload: "x" }, { topic: "a b", payload: "x" }, { topic: "t", payload: :x },
    { topic: "t", payload: "x", key: 1 }, { topic: "t", payload: "x", partition: 2**40 }, { topic: "t", payload: "x", other: 1 },
    { topic: "t", payload: "x", headers: { "a" => "b", "c" => 1 } }, { topic: "t", payload: "x", headers: { "a" => ["b", nil] } },
    { topic: "t", payload: "x", headers: { "a" => "b", 5 => "c" } }, { topic: "t", payload: "x", timestamp: -1 },
    { topic: "t", payload: "x", partition: 1, partition_key: "a" }, { topic: "t", payload: "x" * 2_000_000 }
  ].freeze
  path("invalid messages") do |loop, servers|
    @client ||= opened(new_client(servers))
    message = BAD_MESSAGES[loop % BAD_MESSAGES.size]
    expect_error(Penstock::MessageInvalidError) { @client.produce(message) }
    good = { topic: "t", payload: "x", headers: { "a" => "b" }, partition_key: "k" }
    expect_error(Penstock::MessageInvalidError) { @client.produce_many([good, message, good], false) }
  end

  WITH_HEADERS = { topic: "known", payload: "x", key: "k", partition_key: nil, headers: { "a" => "b", "c" => %w[d e] } }.freeze
  path("messages with headers for a partition that does not exist") do |_, servers|
    @client ||= known_to(opened(new_client(servers)))
    expect_error(Penstock::ProduceError) { @client.produce({ **WITH_HEADERS, partition: 99 }) }
    batch = [{ **WITH_HEADERS, partition: 99 }] * 3
    _, error, = @client.produce_many(batch, false)
    expect(error.is_a?(Penstock::ProduceError))
    expect(@client.produce_many(batch * 50, false)[1].is_a?(Penstock::ProduceError)) # sent without the GVL
  end

  # First before librdkafka has requested the topic's metadata. Later librdkafka reports the topic as unknown and requests its
  # metadata once a second.
  path("messages for a topic that does not exist", divisor: 20) do |loop, _|
    @lacking ||= AdvertisingBroker.new
    @client ||= opened(new_client(@lacking.address, "topic.metadata.propagation.max.ms": 10))
    message = { **WITH_HEADERS, topic: "lacking-#{loop / 5}" }
    ignoring_errors { @client.produce(message).wait(max_wait_timeout_ms: 10_000) }
    handles, error, = @client.produce_many([message] * 3, 10_000)
    expect(error.is_a?(Penstock::ProduceError) || handles.all? { |handle| handle.error.code == :unknown_topic_or_part })
    expect_error(Penstock::ProduceError) { @client.produce(message) }
  end

  SMALL = { "queue.buffering.max.messages": 3 }.freeze
  path("full queues") do |_, _|
    @client ||= filled(new_client(UNREACHABLE, **SMALL) { |config| config.on_queue_full = :raise })
    @dropping ||= filled(new_client(UNREACHABLE, **SMALL) { |config| config.on_queue_full = :drop })
    @waiting ||= filled(new_client(UNREACHABLE, **SMALL) { |config| config.wait_timeout_on_queue_full = 1 })
    batch = [WITH_HEADERS] * 3
    expect_error(Penstock::QueueFullError) { @client.produce(WITH_HEADERS) }
    expect(@client.produce_many(batch, false)[1].is_a?(Penstock::QueueFullError))
    expect(@client.produce_many(batch * 50, false)[1].is_a?(Penstock::QueueFullError))
    expect(@dropping.produce(WITH_HEADERS).error.code == :queue_full)
    expect_error(Penstock::QueueFullError) { @waiting.produce(WITH_HEADERS) }
  end

  path("interrupted waits for queue space") do |_, _|
    @client ||= filled(new_client(UNREACHABLE, **SMALL))
    batch = [WITH_HEADERS] * 2
    interrupted { @client.produce(WITH_HEADERS) }
    interrupted { @client.produce_many(batch, nil) }
  end

  path("waits for queue space in unreferenced fibers") do |loop, _|
    @client ||= filled(new_client(UNREACHABLE, **SMALL))
    batch = [WITH_HEADERS] * 2
    dropped { @client.produce(WITH_HEADERS) }
    dropped { @client.produce_many(batch, nil) }
    dropped { @client.produce_many(batch * 75, nil) } # sent without the GVL
    GC.start if (loop % 5).zero? # fibers use memory that the collector does not count
  end

  path("purged messages, and flushes that time out or are interrupted") do |_, _|
    @client ||= opened(new_client(UNREACHABLE))
    @client.produce_many([WITH_HEADERS] * 5, false)
    expect(@client.flush(0) == false)
    interrupted { @client.flush(nil) }
    @client.purge
  end

  path("unanswered requests for the partition count") do |loop, servers|
    @client ||= opened(new_client(servers))
    @lonely ||= opened(new_client(UNREACHABLE))
    expect_error(Penstock::MessageInvalidError) { @client.partition_count("a b", 100, 0) }
    expect_error(Penstock::Error) { @lonely.partition_count("known", 1, 0) }
    interrupted { @lonely.partition_count("known", 1_000, 0) } if (loop % 100).zero? # continues natively for one second
    expect(@client.partition_count("known", 5_000, 0) == 1)
  end

  path("transaction calls in the wrong state") do |loop, servers|
    @plain ||= opened(new_client(servers))
    @fresh ||= opened(new_client(servers, "transactional.id": "fresh"))
    @ready ||= opened(new_client(servers, "transactional.id": "ready")).tap { |client| client.init_transactions(10_000) }
    offsets = [["known", 0, 5, "metadata"]]
    expect_error(Penstock::TransactionError) { @plain.begin_transaction }
    [@fresh, @ready].each do |client|
      expect_error(Penstock::TransactionError) { client.commit_transaction(100) }
      expect_error(Penstock::TransactionError) { client.send_offsets_to_transaction(offsets, "group", 100) }
    end
    expect_error(Penstock::TransactionError) { @fresh.begin_transaction }
    expect_error(Penstock::TransactionError) { @fresh.abort_transaction(100) }
    expect_error(ArgumentError) { @ready.send_offsets_to_transaction([*offsets, ["known", -1, 5, nil]], "group", 100) }
    expect_error(ArgumentError) { @ready.send_offsets_to_transaction(offsets, "", 100) }
    expect_error(ArgumentError) { @ready.send_offsets_to_transaction(offsets, "a\0", 100) }
    interrupted { @ready.begin_transaction } if loop.even?
    ignoring_errors { @ready.abort_transaction(1_000) }
  end

  path("transactions without an answer", divisor: 10) do |_, _|
    @client ||= opened(new_client(UNREACHABLE, "transactional.id": "lonely"))
    expect_error(Penstock::TransactionError) { @client.init_transactions(1) }
    interrupted { @client.init_transactions(1) }
  end

  path("fatal errors", divisor: 20) do |_, servers|
    client = opened(new_client(servers, "transactional.id": "fatal"))
    client.__send__(:call_test_fatal_error, 47, "for a test")
    expect_error(Penstock::Error) { client.__send__(:call_test_fatal_error, 47, "again") }
    expect_error(Penstock::ProduceError) { client.produce(WITH_HEADERS) }
    expect_error(Penstock::TransactionError) { client.begin_transaction }
    client.close(1_000)
  end

  path("invalid calls of a consumer") do |_, servers|
    @groupless ||= new_consumer(servers).assign("known" => [0])
    @plain ||= new_consumer(servers, "group.id": "plain").assign("known" => [0])
    expect_error(ArgumentError) { @plain.assign("known" => 5) }
    expect_error(ArgumentError) { @plain.assign("known" => { 0 => "first" }) }
    expect_error(Penstock::ConfigurationInvalidError) { @groupless.group_metadata }
    expect_error(Penstock::ConfigurationInvalidError) { @groupless.commit({ "known" => { 0 => 1 } }) }
    expect_error(Penstock::ConsumeError) { @plain.seek("elsewhere", 0, 0, timeout: 0.1) }
    expect(@plain.group_metadata.is_a?(String))
    @plain.position("known", 0)
    @plain.poll(timeout: 0)
  end

  path("calls of a consumer that time out or are interrupted", divisor: 20) do |loop, _|
    @lone ||= new_consumer(UNREACHABLE, "group.id": "lone", "session.timeout.ms": 4_000).subscribe("x")
    expect_error(Penstock::ConsumeError, Penstock::ConsumeTimeoutError) { @lone.committed("known", [0], timeout: 0.001) }
    expect_error(Penstock::ConsumeError, Penstock::ConsumeTimeoutError) { @lone.watermarks("known", 0, timeout: 0.001) }
    interrupted { @lone.poll(timeout: 10) }
    interrupted { @lone.committed("known", [0], timeout: 1) }
    interrupted { @lone.assignment } if loop.even?
  end

  path("polling an offset that does not exist", divisor: 100) do |_, servers|
    consumer = new_consumer(servers, "auto.offset.reset": "error").assign("known" => { 0 => 5_000 })
    expect_error(Penstock::ConsumeError) { 50.times { consumer.poll(timeout: 0.2) } }
    consumer.close(timeout: 2)
  end

  path("consumed messages, and interrupted polls", divisor: 10) do |loop, servers|
    @sender ||= opened(new_client(servers))
    @reader ||= new_consumer(servers, "fetch.wait.max.ms": 5).assign("known" => { 0 => :end })
                                                             .tap { |one| one.poll(timeout: 0.1) }
    @sender.produce_many([WITH_HEADERS, { topic: "known", payload: nil }, { topic: "known", payload: "x", key: "k" }], 10_000)
    interrupted { @reader.poll(timeout: 10) }
    interrupted { @reader.poll_batch(max: 100, timeout: 10) } if loop.even?
    @reader.poll_batch(max: 100, timeout: 0.02).each(&:headers)
    @reader.seek("known", 0, :beginning).poll(timeout: 0.02) if (loop % 100).zero?
  end

  # In the embedded cluster the first member of each group waits 3 seconds.
  path("joining and leaving groups", divisor: 1_000, least: 2) do |loop, servers|
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

  path("producers that are dropped after opening, or interrupted while they open") do |loop, servers|
    client = new_client(servers)
    interrupted { client.connect }
    client.close(1_000) if loop.even?
    GC.start if (loop % 50).zero?
  end

  path("consumers that are dropped after opening, or interrupted while they open", divisor: 10) do |loop, servers|
    consumer = new_consumer(servers, "group.id": "opened")
    interrupted { consumer.assign("known" => [0]) }
    consumer.close(timeout: 2) if loop.even?
    GC.start if (loop % 50).zero?
  end

  BAD_ADMINS = [{ "no.such.setting": 1 }, { "client.id" => "a\0b" }, { "bootstrap.servers": "" }, { 5 => 1 }].freeze
  path("admin clients with a wrong setting") do |loop, servers|
    settings = { "bootstrap.servers": servers, **BAD_ADMINS[loop % BAD_ADMINS.size] }
    expect_error(Penstock::ConfigurationInvalidError) { Penstock::Admin.new { |config| config.kafka = settings } }
  end

  TOPICS = { "x" => { config: { "a" => 1 }, replicas: [[1, 2], [2, 1]] }, "y" => { partitions: 5 } }.freeze
  path("requests of an admin client that time out or are interrupted", divisor: 10) do |_, _|
    @admin ||= new_admin(UNREACHABLE)
    expect_error(Penstock::AdminTimeoutError) { @admin.create_topics(TOPICS, timeout: 0.001) }
    expect_error(Penstock::AdminTimeoutError) do
      @admin.create_partitions({ "x" => { total: 3, replicas: [[1]] } }, timeout: 0.001)
    end
    interrupted { @admin.delete_topics("x", "y", timeout: 0.02) } # the answer comes later
    expect_soon { AllocationCounts.live.fetch("event").zero? } # while the client is open
  end

  path("questions of an admin client, answered, or too late, or interrupted", divisor: 10) do |loop, servers|
    @admin ||= new_admin(servers)
    @lonely ||= new_admin(UNREACHABLE)
    expect(@admin.topics("known", "unknown").errors.size == 1)
    expect(@admin.cluster.brokers.size == 1)
    expect_error(Penstock::AdminTimeoutError) { @lonely.topics(timeout: 0.001) }
    interrupted { @lonely.topics(timeout: 1) } if (loop % 20).zero?
  end

  path("requests and questions of an admin client in unreferenced fibers", divisor: 20) do |loop, _|
    @admin ||= new_admin(UNREACHABLE)
    dropped { @admin.create_topics(TOPICS, timeout: 0.05) }
    dropped { @admin.topics(timeout: 0.05) }
    GC.start if (loop % 5).zero?
  end

  # The fiber stays, so that nobody takes the answer.
  path("admin clients that close with answers which nobody takes, and with requests in flight", divisor: 20) do |_, _|
    one = new_admin(UNREACHABLE)
    expect_error(Penstock::AdminTimeoutError) { one.topics(timeout: 0.001) }
    fibers = [0.05, 60].map { |timeout| dropped { one.create_topics(TOPICS, timeout:) } }
    sleep 0.1 # the first is answered
    expect(one.close(timeout: 5))
    fibers.clear
  end

  path("admin clients that are dropped after opening, or interrupted while they open", divisor: 10) do |loop, servers|
    one = new_admin(servers)
    interrupted { one.topics }
    one.close if loop.even?
    GC.start if (loop % 50).zero?
  end

  path("calls of a closed producer and consumer") do |_, servers|
    @client ||= new_client(servers).tap { |client| client.close(0) }
    @consumer ||= new_consumer(servers).tap(&:close)
    expect_error(Penstock::ProducerClosedError) { @client.produce(WITH_HEADERS) }
    expect_error(Penstock::ProducerClosedError) { @client.partition_count("known", 10, 0) }
    expect_error(Penstock::ConsumerClosedError) { @consumer.poll(timeout: 0) }
    expect_error(Penstock::ConsumerClosedError) { @consumer.assign("known" => [0]) }
  end

  path("unusable credentials") do |_, servers|
    @client ||= opened(new_client(servers))
    expect_error(ArgumentError) { @client.set_credentials("user\0", "password") }
    @consumer ||= new_consumer(servers).assign("known" => [0])
    expect_error(Penstock::ConfigurationInvalidError) { @consumer.set_credentials("user", "password") }
  end

  path("embedded clusters", divisor: 20) do |_, _|
    cluster = Penstock::EmbeddedCluster.new(brokers: 1)
    expect_error(Penstock::Error) { 2.times { cluster.create_topic("twice", partitions: 1) } }
    expect_error(ArgumentError) { cluster.broker_down(7) }
    expect_error(Penstock::Error) { cluster.move_leader("twice", 0, 9) } if cluster.brokers > 8
    cluster.close
    expect_error(Penstock::Error) { cluster.bootstrap_servers }
  end

  UNREACHABLE = "127.0.0.1:1" # no server listens on this port

  # The self of a path's block. Each path has its own, whose instance variables persist from loop to loop.
  class Surroundings
    class Unexpected < StandardError; end

    attr_reader :baseline # true once one-time leaks have happened

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

    def new_admin(servers)
      Penstock::Admin.new { |config| config.kafka = { "bootstrap.servers": servers, log_level: 0 } }
    end

    def opened(client) = client.tap(&:connect)

    # Makes librdkafka know the topic, so that it rejects partitions that do not exist.
    def known_to(client)
      client.tap { expect(client.produce_many([{ topic: "known", payload: "x" }], 10_000).last) }
    end

    def filled(client) = client.tap { 3.times { client.produce({ topic: "known", payload: "x" }) } }

    def expect(condition) = condition || raise(Unexpected, "an unexpected result")

    def expect_soon
      1_000.times { yield ? return : sleep(0.005) }
      raise Unexpected, "what was expected did not come"
    end

    def expect_error(*errors)
      yield
      raise Unexpected, "no error was raised"
    rescue *errors
      nil
    end

    # Interrupts the block at a different moment each time. The block may end earlier.
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

    # Runs the block in a fiber whose scheduler ends while the fiber waits.
    # @return [Fiber] which the GC collects unless the caller keeps it
    def dropped(&block)
      scheduler = PlainScheduler.new
      def scheduler.close = nil
      Thread.new do
        Fiber.set_scheduler(scheduler)
        fiber = Fiber.new(blocking: false, &block)
        fiber.resume
        expect(scheduler.waiting?(fiber))
        fiber
      end.value
    end

    # Closes the objects that the path kept from loop to loop.
    def close
      instance_variables.map { |name| instance_variable_get(name) }.each do |kept|
        kept.close(0) if kept.is_a?(Internal::ProducerClient)
        kept.close(timeout: 2) if kept.is_a?(Penstock::Consumer) || kept.is_a?(Penstock::Admin)
      end
    end

    def ignoring_errors
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

  # @return [Boolean] whether nothing leaked
  def call(chosen)
    unknown = AllocationCounts.unknown_functions
    puts "uncounted librdkafka functions: #{unknown.join(" ")}" if unknown.any?
    lines = chosen.map { |path| run(path).tap { |fault, line| puts "#{fault ? "LOST  " : "even  "} #{line}" } }
    made = AllocationCounts.counts.values.sum(&:first)
    puts "allocations: #{lines.count(&:first)} of #{chosen.size} error paths leaked something; " \
         "librdkafka created #{made} objects for Penstock; #{@loops} loops of each path unless the path has its own number"
    unknown.empty? && lines.none?(&:first)
  end

  private

  # @return [Array(Object, String)] the problem or nil, and a line that describes it
  def run(path)
    Thread.report_on_exception = false
    loops = [@loops / path.divisor, path.least].max
    before = settled
    # Uses a separate thread, because references on this thread's stack could keep objects alive.
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

  # @return [Integer] growth of memory after the warm-up, in bytes
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

  # Waits until nothing but the cluster is open, for up to PATIENCE.
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
  $stderr.reopen(File.expand_path("../../tmp/allocations.log", __dir__), "w") # librdkafka logs every failure to stderr
  chosen = Allocations.paths.select { |path| path.name.include?(ARGV.fetch(1, "")) }
  begin
    exit Allocations.new(Integer(ARGV.fetch(0, "10000"))).call(chosen)
  rescue StandardError => e
    puts e.full_message(highlight: false) # to stdout, because stderr is the log
    exit false
  end
end

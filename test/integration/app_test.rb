# frozen_string_literal: true

require "stringio"
require "penstock/cli"
require_relative "../test_helper"
require_relative "../support/app_test_case"
require_relative "../support/shared_kafka"

# Applications on a real Kafka, which keeps what the embedded cluster would drop.
class KafkaAppTest < AppTestCase
  SIZE = 100_000
  BROKERS = SharedKafka.new
  private_constant :BROKERS

  def cluster = BROKERS

  # @return [Array] what was seen of this partition
  def offsets(found, partition) = found.select { |one,| one == partition }.map(&:last)

  # More than twice the memory of the application waits in partition 0.
  thorough def test_a_partition_that_waits_leaves_memory_to_others
    name = topic(partitions: 2)
    down = true
    pauses = Thread::Queue.new
    settings = lambda do |app|
      app.memory = 16 << 20
      app.monitor.subscribe("client.pause") { |event| pauses << event.payload }
    end
    400.times { produce(name, ["x" * SIZE]) }
    server = start(name, configure: settings, retry: { from: 0.2, to: 0.2 }) do |record|
      raise "down" if down && record.partition.zero?

      @seen << [record.partition, record.offset]
    end
    eventually { !pauses.empty? }
    100.times { |i| produce(name, [i], partition: 1) }
    assert_equal [*0...100], offsets(seen(100), 1)
    down = false
    assert_equal [*0...400], offsets(seen(400, seconds: 60), 0)
    eventually { committed_offset(name) == 400 }
    assert_predicate server.stop, :complete?
    assert_empty @seen
  end

  def test_a_seek_and_the_end_of_a_partition
    name = topic(partitions: 1)
    produce(name, 0...20)
    log = @seen
    start(name, processor do
      define_method(:caught_up) { log << :caught_up }
      define_method(:process) do |record|
        log << record.offset
        seek(15) if record.offset == 19 && (@sought = !@sought)
      end
    end)
    assert_equal [*0...20, *15...20, :caught_up], seen(26)
    eventually { committed_offset(name) == 20 }
    produce(name, [20])
    assert_equal [20, :caught_up], seen(2)
  end

  # Message 3 fails until the cause is mended and its dead letter is sent again. Message 5 succeeds in the second topic.
  def test_retry_topics_hold_back_no_commit_and_a_dead_letter_is_replayed
    name = topic(partitions: 1)
    dead = topic(partitions: 1)
    %w[0.5s 1s].each { |delay| cluster.create_topic("#{name}.#{@group}.retry.#{delay}", partitions: 1) }
    tried = Hash.new(0)
    mended = false
    produce(name, 0...8, headers: { "trace" => "a" })
    start(name, order: :unordered, retry: { topics: [0.5, 1] }, dead_letter: dead) do |record|
      number = Integer(record.payload)
      tried[number] += 1
      raise "not yet" if (number == 3 && !mended) || (number == 5 && tried[5] < 3)

      @seen << [number, record.headers.values_at("trace", "source_attempts")]
    end
    assert_equal [[0, nil], [1, nil], [2, nil], [4, nil], [5, "2"], [6, nil], [7, nil]],
                 seen(7).map { |number, (_, attempts)| [number, attempts] }.sort
    eventually { committed_offset(name) == 8 }
    eventually { listed(dead).size == 1 }
    assert_equal ["#{name}/0/3", "3", @group], listed(dead).first.values_at("source", "attempts", "group")
    mended = true
    assert_equal [0, "1 message sent\n"], dead_letters("replay", dead)
    assert_equal [[3, ["a", nil]]], seen(1)
    assert_equal [0, "0 messages sent\n"], dead_letters("replay", dead)
    eventually { committed_offset(name) == 9 }
    assert_equal 3 + 1, tried[3]
  end

  # A second member with the same group.instance.id fences the first one, which has work that is not committed.
  def test_a_member_that_is_fenced_sees_it_in_its_work_and_commits_nothing_more
    name = topic(partitions: 1)
    produce(name, 0...3)
    commits = Thread::Queue.new
    log = @seen
    working = processor do
      define_method(:process) do |record|
        log << record.offset
        next if record.offset.zero?

        sleep 0.01 until revoked?
        log << :revoked
      end
    end
    server = fenced_application(name, working, commits).start
    @servers << server
    assert_equal [0, 1], seen(2)
    @servers << fenced_application(name, ->(_) {}, Thread::Queue.new).start
    eventually(60) { !server.running? }
    assert_equal [:revoked], seen(1)
    assert_equal 1, server.wait.status
    assert_equal [[], nil], [Array.new(commits.size) { commits.pop }, committed_offset(name)]
  end

  # The last offsets are two markers and the messages of the transaction that was aborted.
  def test_a_partition_that_ends_with_markers_of_transactions_is_not_stalled
    name = topic(partitions: 1)
    sending = producer("bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "markers-#{rand(2**32)}")
    sending.transaction { 3.times { |i| sending.produce_async(topic: name, payload: i.to_s) } }
    sending.transaction do
      sending.produce_async(topic: name, payload: "aborted")
      sending.flush
      raise Penstock::AbortTransaction
    end
    stalled = Thread::Queue.new
    looks = Thread::Queue.new
    start(name, configure: lambda do |app|
      app.stall_after = 0.5
      app.monitor.subscribe("app.stalled") { |event| stalled << event.payload }
      app.monitor.subscribe("app.metrics") { looks << true }
    end) { |record| @seen << record.payload }
    assert_equal %w[0 1 2], seen(3)
    looks.clear
    4.times { looks.pop } # one a second
    assert_empty Array.new(stalled.size) { stalled.pop }.reject { |stall| stall[:reason] == :group }
  end

  private

  def dead_letters(action, topic, *more)
    out = StringIO.new
    err = StringIO.new
    status = Penstock::CLI.start(["dead-letters", action, topic, "-b", cluster.bootstrap_servers, *more], out:, err:)
    assert_empty err.string
    [status, out.string]
  end

  def listed(topic) = dead_letters("list", topic, "--json").last.lines.map { |line| JSON.parse(line) }

  def fenced_application(topic, processor, commits)
    Penstock.app do |app|
      app.kafka = { "bootstrap.servers": cluster.bootstrap_servers }
      app.commit_interval = 3_600
      %w[offsets.committed offsets.commit_failed].each { |event| app.monitor.subscribe(event) { |one| commits << one.payload } }
      app.group(@group, kafka: { **KAFKA, "group.instance.id": "one" }) { |group| group.topic topic, to: processor }
    end
  end
end

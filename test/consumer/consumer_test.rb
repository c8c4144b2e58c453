# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../support/raw_records"

class ConsumerTest < ConsumerTestCase
  slow(/_called_during_close_ends/)

  # ---- messages ----

  # defect 30
  def test_a_message_has_the_bytes_that_were_produced
    name = topic(partitions: 1)
    payload = Random.bytes(70_000)
    producer.produce_sync(topic: name, payload:, key: "\x00ключ".b, timestamp: 1_600_000_000_123)
    message = reading(name).poll(timeout: 10)
    assert_equal [name, 0, 0, 1_600_000_000_123, :create_time, "\x00ключ".b, payload, {}],
                 [message.topic, message.partition, message.offset, message.timestamp, message.timestamp_type, message.key,
                  message.payload, message.headers]
    assert_equal [Encoding::BINARY, Encoding::BINARY, Encoding::UTF_8],
                 [message.payload, message.key, message.topic].map(&:encoding)
  end

  # defect 30
  def test_nil_and_empty_keys_and_payloads_stay_different
    name = topic(partitions: 1)
    one = producer
    [[nil, nil], ["", ""], ["k", nil], [nil, "p"]].each { |key, payload| one.produce_sync(topic: name, key:, payload:) }
    messages = take(reading(name), 4)
    assert_equal([[nil, nil], ["", ""], ["k", nil], [nil, "p"]], messages.map { |message| [message.key, message.payload] })
    assert_equal [true, false, true, false], messages.map(&:tombstone?)
  end

  # defect 30
  def test_headers_may_be_single_repeated_empty_or_absent
    name = topic(partitions: 1)
    one = producer
    sent = [{ "one" => "1", "many" => %w[2 3 4], "empty" => "", "ключ" => "\xFF\x00".b }, {}]
    sent.each { |headers| one.produce_sync(topic: name, payload: "x", headers:) }
    first, second = take(reading(name), 2).map(&:headers)
    assert_equal sent, [first, second]
    assert_equal([Encoding::UTF_8, Encoding::BINARY], [first.keys.last, first["one"]].map(&:encoding))
    assert(([first, second] + first.values + first["many"]).all?(&:frozen?))
  end

  def test_header_names_may_be_symbols
    name = topic(partitions: 1)
    dynamic = "made #{rand}".to_sym
    headers = { trace: "1", "é": %w[2 3], dynamic => "4", "same" => "5", same: "6", "": "7" }
    producer.produce_sync(topic: name, payload: "x", headers:)
    producer.produce_many_sync([{ topic: name, payload: "x", headers: }])
    expected = { "trace" => "1", "é" => %w[2 3], dynamic.name => "4", "same" => %w[5 6], "" => "7" }
    assert_equal [expected] * 2, take(reading(name), 2).map(&:headers)
  end

  # defect 30
  def test_headers_of_other_clients_can_be_read
    name = topic(partitions: 1, on: embedded_cluster)
    many = ["1", nil, ""].map { |value| ["many", value] }
    headers = RawRecords.headers(["none", nil], ["", "nameless"], ["\xFF\xFE", "no UTF-8"], *many)
    RawRecords.write(embedded_cluster, name, [RawRecords.record(0, headers)])
    message = embedded(name).poll(timeout: 10)
    assert_equal({ "none" => nil, "" => "nameless", "\uFFFD\uFFFD" => "no UTF-8", "many" => ["1", nil, ""] }, message.headers)
    assert_equal [Encoding::UTF_8], message.headers.keys.map(&:encoding).uniq
    assert Ractor.shareable?(message)
  end

  # defect 6
  def test_a_message_is_immutable_shareable_and_outlives_its_consumer
    name = topic(partitions: 1)
    2.times { producer.produce_sync(topic: name, payload: "p", key: "k", headers: { "a" => %w[1 2] }) }
    one = reading(name)
    first, second = take(one, 2)
    one.close
    assert Ractor.shareable?(first)
    assert_same first.topic, second.topic
    assert_raises(FrozenError) { first.payload << "x" }
    assert_raises(FrozenError) { first.instance_variable_set(:@a, 1) }
    assert_raises(TypeError) { Penstock::Message.allocate }
    case first
    in { topic: ^name, payload: "p", headers: }
      assert_equal [{ "a" => %w[1 2] }, "offset=0"], [headers, first.inspect[/offset=0/]]
    end
    refute_equal first, second
    assert_equal first, first
  end

  slow def test_many_messages_arrive_once_and_in_order_with_any_batch_size
    name = topic(partitions: 2)
    payloads = Array.new(5_000, &:to_s)
    2.times { |partition| produce(name, payloads, partition:) }
    [1, 7, 1_000, 100_000].each do |batch|
      count = batch == 1 ? 1_000 : 10_000
      one = reading(name, partitions: [0, 1])
      messages = take(one, count, batch:)
      messages.group_by(&:partition).each_value do |part|
        assert_equal (0...part.size).to_a, part.map(&:offset)
        assert_equal payloads.first(part.size), part.map(&:payload)
      end
      one.close
    end
  end

  def test_poll_batch_waits_only_for_the_first_message
    name = topic(partitions: 1)
    one = reading(name)
    assert_empty one.poll_batch(max: 10, timeout: 0)
    produce(name, %w[a])
    assert_took(20, seconds_of { assert_equal %w[a], one.poll_batch(max: 1_000, timeout: 60).map(&:payload) })
  end

  def test_poll_returns_nil_if_no_message_arrives_in_time
    one = reading(topic(partitions: 1))
    assert_operator(seconds_of { assert_nil one.poll(timeout: 0.3) }, :>=, 0.3)
    assert_nil one.poll(timeout: 0)
    assert_empty one.poll_batch(max: 5, timeout: 0.0005)
  end

  slow def test_a_message_wakes_a_thread_that_polls
    name = topic(partitions: 1)
    sender = producer("linger.ms": 0)
    one = reading(name)
    assert_nil one.poll(timeout: 0.1)
    taken = Queue.new
    waiting = Thread.new { 200.times { taken << one.poll(timeout: nil).payload } }
    duration = seconds_of do
      200.times do |i|
        sender.produce_sync(topic: name, payload: i.to_s, partition: 0)
        assert_equal i.to_s, taken.pop
      end
    end
    waiting.join
    assert_took(30, duration)
  end

  # defect 13
  def test_threads_that_poll_one_consumer_share_its_messages
    name = topic(partitions: 2)
    2.times { |partition| produce(name, Array.new(2_000) { |i| "#{partition}-#{i}" }, partition:) }
    one = reading(name, partitions: [0, 1])
    taken = Queue.new
    threads = Array.new(4) do |i|
      Thread.new do
        while taken.size < 4_000
          messages = i.even? ? one.poll_batch(max: 50, timeout: 0.1) : [one.poll(timeout: 0.1)].compact
          messages.each { |message| taken << message }
        end
      end
    end
    eventually(60) { taken.size >= 4_000 }
    threads.each(&:join)
    assert_equal (0..1).flat_map { |partition| Array.new(2_000) { |i| "#{partition}-#{i}" } }.sort,
                 Array.new(taken.size) { taken.pop.payload }.sort
  end

  # The queue's callback runs once for messages that arrive together.
  # defect 17
  def test_a_thread_that_takes_one_of_two_messages_wakes_another_thread_for_the_second
    name = topic(partitions: 1)
    sender = producer
    one = reading(name)
    assert_nil one.poll(timeout: 0.1)
    taken = Queue.new
    duration = seconds_of do
      15.times do
        threads = Array.new(2) { Thread.new { taken << one.poll(timeout: nil) } }
        eventually { threads.all? { |thread| thread.status == "sleep" } }
        produce(name, %w[a b], on: sender)
        2.times { refute_nil taken.pop }
        threads.each(&:join)
      end
    end
    assert_took(13, duration) # 15 if a polling thread found every second message only one second later
  end

  # ---- positions ----

  def test_assign_begins_at_the_given_positions
    name = topic(partitions: 3)
    3.times { |partition| produce(name, %w[a b c], partition:) }
    one = consumer("auto.offset.reset": "earliest").assign(name.to_sym => { 0 => 2, 1 => :end, 2 => :beginning })
    assert_equal({ name => [0, 1, 2] }, one.assignment)
    assert_equal [[0, 2], [2, 0], [2, 1], [2, 2]], take(one, 4).map { |message| [message.partition, message.offset] }.sort
    assert_equal [3, 3], [one.position(name, 0), one.position(name, 2)]
    one.assign(name => [1])
    assert_equal [0, 1, 2], take(one, 3).map(&:offset)
    one.assign({})
    assert_empty one.assignment
    assert_nil one.poll(timeout: 0.1)
  end

  # librdkafka 2.0.2 fails an assertion, which ends the process, if it must stop a partition that it is already stopping.
  # defect C18
  slow def test_partitions_can_be_reassigned_at_any_moment
    ruby!(<<~RUBY, cluster.bootstrap_servers, topic(partitions: 3))
      servers, topic = ARGV
      6.times do |round|
        consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": servers, "group.id": "\#{topic}-\#{round}" } }
        threads = Array.new(1 + round % 3) { Thread.new { 20.times { consumer.assign(topic => { rand(3) => 0, 0 => 0 }) } } }
        threads.each(&:join)
        consumer.close
      end
    RUBY
  end

  def test_seek_continues_at_the_given_offset
    name = topic(partitions: 1)
    produce(name, %w[a b c])
    one = reading(name)
    take(one, 3)
    assert_equal %w[b c], take(one.seek(name, 0, 1), 2).map(&:payload)
    assert_equal %w[a b c], take(one.seek(name, 0, :beginning), 3).map(&:payload)
    error = assert_raises(Penstock::ConsumeError) { one.seek("elsewhere", 0, 0) }
    assert_equal "elsewhere", error.topic
  end

  # librdkafka before 2.1.0 waited only a thousandth of the timeout.
  slow def test_seek_may_use_its_whole_timeout
    name = topic(partitions: 1)
    produce(name, %w[a b c])
    readers = Array.new(20) { reading(name, "statistics.interval.ms": 1) } # these readers compete for the processors
    readers.each { |one| take(one, 1) }
    threads = readers.map { |one| quiet_thread { 20.times { one.seek(name, 0, 1) } } }
    threads.each(&:value)
    assert_equal ["b"], readers.map { |one| take(one, 1).first.payload }.uniq
  end

  def test_watermarks_returns_the_first_and_the_next_offset
    name = topic(partitions: 2)
    produce(name, %w[a b c])
    one = consumer
    assert_equal [0, 3], one.watermarks(name, 0)
    assert_equal [0, 0], one.watermarks(name, 1)
    assert_nil one.position(name, 0)
  end

  def test_invalid_arguments_raise_with_their_names
    one = consumer
    assert_match(/must be a String or Symbol/, assert_raises(ArgumentError) { one.assign(1 => [0]) }.message)
    assert_match(/a partition/, assert_raises(ArgumentError) { one.assign("a" => [-1]) }.message)
    assert_match(/an offset .* :begin\b/, assert_raises(ArgumentError) { one.assign("a" => { 0 => :begin }) }.message)
    assert_match(/Hash or Array/, assert_raises(ArgumentError) { one.assign("a" => 0) }.message)
    assert_match(/Hash of topics/, assert_raises(ArgumentError) { one.assign("a") }.message)
    assert_match(/at least 1/, assert_raises(ArgumentError) { one.poll_batch(max: 0) }.message)
    assert_match(/number of seconds from 0, not -1/, assert_raises(ArgumentError) { one.poll(timeout: -1) }.message)
    assert_match(/number of seconds/, assert_raises(ArgumentError) { one.poll(timeout: "1") }.message)
    assert_equal 0, Internal::ProducerClient.open_count, "a client was opened" if @producers.empty?
  end

  # ---- groups ----

  thorough slow def test_a_group_resumes_at_the_committed_offset
    name = topic(partitions: 1)
    produce(name, Array.new(10, &:to_s))
    one = group_consumer("the-group-#{name}", "enable.auto.commit": false).subscribe(name.to_sym)
    messages = take(one, 10)
    assert_equal({ name => [0] }, one.assignment)
    assert_equal({ 0 => nil }, one.committed(name, 0))
    one.commit(messages[3])
    assert_equal({ 0 => 4 }, one.committed(name, [0]))
    one.commit({ name => { 0 => 2 } })
    assert_equal({ 0 => 2 }, one.committed(name, [0]))
    assert one.commit(messages[5], async: true)
    eventually { one.committed(name, 0) == { 0 => 6 } }
    one.poll(timeout: 0.01)
    assert_equal 10, one.position(name, 0)
    one.commit
    assert_equal({ 0 => 10 }, one.committed(name, 0))
    assert one.commit(messages[6])
    assert_equal({ 0 => 10 }, one.committed(name, 0))
    one.commit({ name => { 0 => 7 } })
    assert_operator one.group_metadata.bytesize, :>, 0
    one.close
    assert_equal %w[7 8 9], take(group_consumer("the-group-#{name}").subscribe(name), 3).map(&:payload)
  end

  thorough slow def test_close_commits_processed_messages_and_leaves_the_group
    name = topic(partitions: 1)
    produce(name, %w[a b c])
    one = group_consumer("closing-#{name}").subscribe(name)
    assert one.mark(take(one, 2, batch: 1).last)
    assert_predicate one.close, :complete?
    two = group_consumer("closing-#{name}", "enable.auto.commit": false).subscribe(name)
    assert_equal %w[c], take(two, 1).map(&:payload)
    two.unsubscribe
    eventually(30) { two.poll(timeout: 0.05) || two.assignment.empty? }
  end

  def test_calls_that_require_a_group_say_so
    one = consumer
    [-> { one.subscribe("a") }, -> { one.commit }, -> { one.committed("a", 0) }, -> { one.assign("a" => { 0 => :stored }) },
     -> { one.group_metadata }].each do |use|
      assert_match(/group\.id/, assert_raises(Penstock::ConfigurationInvalidError, &use).message)
    end
  end

  # ---- waiting ----

  # A lost wake-up delays a message until the thread looks again after a second, or until statistics arrive. The unreachable
  # broker causes errors.
  # defect 17
  alone slow def test_waiting_consumers_get_each_message_soon_despite_statistics_and_errors
    skip "too slow under GC stress" if GCLevel.slow?
    name = topic(partitions: 1)
    sender = producer("linger.ms": 0)
    got = Queue.new
    over = false
    readers = Array.new(4) do |i|
      servers = "#{cluster.bootstrap_servers},127.0.0.1:1"
      reading(name, servers:, "statistics.interval.ms": 601 + i, log_level: 0) { |config| config.logger = Logger.new(nil) }
    end
    threads = readers.each_with_index.map do |one, i|
      Thread.new { got << one.poll(timeout: [nil, 5][i % 2]) until over }
    end
    seconds = Array.new(101) do
      sleep rand * 0.02 # by then most threads are asleep
      sender.produce_sync(topic: name, payload: "x", partition: 0)
      seconds_of { 4.times { assert got.pop } }
    end
    assert_empty(seconds.drop(1).select { |one| one > 0.5 }) # the first message includes the time to connect
    over = true
    sender.produce_sync(topic: name, payload: "x", partition: 0)
    threads.each(&:join)
  end

  # ---- errors ----

  # defect 21
  slow def test_an_error_of_one_partition_is_raised_once_and_loses_no_message
    own = own_cluster(brokers: 2)
    own.create_topic(name = "erring", partitions: 2)
    produce(name, Array.new(500, &:to_s), on: producer(servers: own.bootstrap_servers))
    own.set_round_trip_time(seconds: 0.05)
    one = consumer(servers: own.bootstrap_servers, "auto.offset.reset": "error").assign(name => { 0 => 0, 1 => 1_000 })
    # These requests use the same connections as the fetches. Once they are answered, the messages and the error are queued.
    2.times { |partition| 5.times { one.watermarks(name, partition) } }
    messages = []
    errors = []
    eventually(20) do
      begin
        messages.concat(one.poll_batch(max: 1_000, timeout: 0.1))
      rescue Penstock::ConsumeError => e
        errors << e
      end
      messages.size == 500 && errors.any?
    end
    assert_equal (0...500).to_a, messages.map(&:offset)
    assert_equal [[:auto_offset_reset, name, 1, one.id, nil]],
                 (errors.map { |error| [error.code, error.topic, error.partition, error.consumer_id, error.producer_id] })
    assert_match(/Seek to an offset that exists/, errors.first.message)
  end

  # Headers that end too early, or contain an impossible length or number.
  DAMAGED = [
    "#{RawRecords.int(3)}\x02a", "\xFF", RawRecords.int(1) + RawRecords.int(-1) + RawRecords.int(0),
    "#{RawRecords.int(1)}\x02a#{RawRecords.int(-2)}", "#{RawRecords.int(1)}\x02a#{RawRecords.int(2**40)}", RawRecords.int(200_000)
  ].map(&:b).freeze

  # @return [String] the name of a topic with `count` messages "p0", "p1", ..., which are damaged at the given offsets
  def damaged_topic(offsets, count: 6)
    topic(partitions: 1, on: embedded_cluster).tap do |name|
      records = Array.new(count) do |i|
        RawRecords.record(i, offsets.include?(i) ? DAMAGED[i % DAMAGED.size] : RawRecords.headers(["i", i.to_s]))
      end
      RawRecords.write(embedded_cluster, name, records)
    end
  end

  def embedded(name, **kafka)
    group_consumer("group-#{name}", servers: embedded_cluster.bootstrap_servers, **kafka).assign(name => [0])
  end

  def assert_damaged(name, offset, error)
    assert_equal [Penstock::ConsumeError, :bad_msg, name, 0, offset, false],
                 [error.class, error.code, error.topic, error.partition, error.offset, error.fatal?]
    assert_match(/headers cannot be read.*topic #{name}, partition 0, offset #{offset}\]/, error.message)
    assert_equal offset, Ractor.make_shareable(error).offset
  end

  # defect 21, C30
  def test_a_message_with_damaged_headers_loses_nothing_else
    one = embedded(name = damaged_topic([1, 2, 3, 4, 5, 6], count: 8))
    messages = take(one, 8)
    assert_equal Array.new(8) { |i| "p#{i}" }, messages.map(&:payload)
    assert_equal [{ "i" => "0" }, { "i" => "7" }], [messages.first, messages.last].map(&:headers)
    assert_equal [nil, nil], [messages.first, messages.last].map(&:error)
    messages[1..6].each do |message|
      assert_damaged(name, message.offset, message.error)
      assert_damaged(name, message.offset, assert_raises(Penstock::ConsumeError) { message.headers })
      assert_raises(Penstock::ConsumeError) { message.to_h }
      assert_match(/offset=#{message.offset}/, message.inspect)
    end
  end

  # defect 21
  def test_a_batch_names_its_damaged_messages
    one = embedded(name = damaged_topic([1, 3]))
    batches = []
    eventually { (batches << one.poll_batch(timeout: 1)).sum(&:size) == 6 }
    errors = batches.flat_map(&:errors)
    assert_equal [1, 3], errors.map(&:offset)
    errors.each { |error| assert_damaged(name, error.offset, error) }
    assert batches.all? { |batch| batch.errors.frozen? }
    assert_empty reading(topic(partitions: 1)).poll_batch(timeout: 0.1).errors
  end

  # The consumer does not report them.
  # defect 21
  def test_partition_ends_are_no_errors_and_lose_no_message
    name = topic(partitions: 3)
    one = reading(name, partitions: [0, 1, 2], "enable.partition.eof": true)
    10.times do |round|
      3.times { |partition| produce(name, Array.new(20) { |i| "#{round}-#{i}" }, partition:) }
      assert_equal (0...20).flat_map { |i| ["#{round}-#{i}"] * 3 }.sort, take(one, 60).map(&:payload).sort
      assert_nil one.poll(timeout: 0.02)
    end
  end

  # defect 24
  thorough slow def test_every_later_poll_raises_a_fatal_error
    own = own_cluster
    own.create_topic(name = "fatal", partitions: 1)
    produce(name, %w[a b c], on: producer(servers: own.bootstrap_servers))
    kafka = { "group.instance.id": "me", "heartbeat.interval.ms": 50, log_level: 0 }
    one = group_consumer(servers: own.bootstrap_servers, **kafka) { |config| config.logger = Logger.new(nil) }.subscribe(name)
    take(one, 1, batch: 1)
    own.inject_errors(:heartbeat, :fenced_instance_id)
    first = nil
    eventually { first = fatal_error_of { one.poll(timeout: 0.01) } }
    later = [-> { one.poll(timeout: 0) }, -> { one.poll_batch(max: 10, timeout: 60) }, -> { one.each { flunk } }] * 2
    later.map! { |polling| fatal_error_of(&polling) }
    threads = Array.new(8) { quiet_thread { fatal_error_of { one.poll(timeout: 60) } } }
    [first, *later, *threads.map(&:value)].each do |error|
      assert_equal [:fenced_instance_id, true, one.id], [error.code, error.fatal?, error.consumer_id]
      assert_match(/Another consumer with the same group\.instance\.id/, error.message)
    end
    assert_took(10, seconds_of { assert_predicate one.close, :complete? })
  end

  def with_fatal_error
    own = own_cluster
    own.create_topic("fatal", partitions: 1)
    own.inject_errors(:join_group, *[:fenced_instance_id] * 5)
    kafka = { "group.instance.id": "me", log_level: 0 }
    one = group_consumer(servers: own.bootstrap_servers, **kafka) { |config| config.logger = Logger.new(nil) }.subscribe("fatal")
    refute_predicate one.status, :fatal?
    first = nil
    eventually { first = fatal_error_of { one.poll(timeout: 0.05) } }
    assert_equal [:fenced_instance_id, true], [first.code, first.fatal?]
    one
  end

  def test_polls_raise_a_fatal_error_when_their_time_is_up
    one = with_fatal_error
    assert_equal [:fatal, true, false, false],
                 [one.status.to_sym, one.status.fatal?, one.status.connected?, one.status.active?]
    raised = 0
    seconds = seconds_of { 5.times { raised += 1 if fatal_error_of { one.poll_batch(timeout: 0.05) } } }
    assert_equal 5, raised
    assert_operator seconds, :>=, 0.25
    assert fatal_error_of { one.poll(timeout: 0) }
    one.close
    assert_equal :closed, one.status.to_sym
  end

  slow def test_a_poll_with_a_long_or_no_limit_raises_a_fatal_error_after_a_second
    one = with_fatal_error
    [60, nil].each do |timeout|
      error = nil
      seconds = seconds_of { error = fatal_error_of { one.poll(timeout:) } }
      assert_equal :fenced_instance_id, error.code
      assert_operator seconds, :>=, 1
      assert_took(20, seconds)
    end
    assert fatal_error_of { one.each(timeout: nil) { flunk } }
  end

  # @return [Penstock::Error, nil]
  def fatal_error_of
    yield
    nil
  rescue Penstock::ConsumeError => e
    e
  end

  def test_unreachable_brokers_are_logged_and_not_raised
    text = StringIO.new
    one = unreachable_consumer(log_level: 4, "socket.connection.setup.timeout.ms": 1_000) do |config|
      config.logger = Logger.new(text)
    end
    one.assign("test" => { 0 => 0 })
    eventually { one.poll(timeout: 0.05).nil? && text.string.match?(/\[#{one.id}\] .*127\.0\.0\.1:1/) }
    error = assert_raises(Penstock::ConsumeError) { one.watermarks("test", 0, timeout: 0.3) }
    assert_includes error.message, "127.0.0.1:1"
    assert_predicate one.close, :complete?
  end

  # If log lines were events, they would accumulate in a queue of librdkafka.
  # defect 31
  def test_log_lines_arrive_while_no_thread_polls
    text = StringIO.new
    one = reading(topic, debug: "fetch") { |config| config.logger = Logger.new(text) }
    eventually { text.string.scan(/\[#{one.id}\] FETCH/).size > 5 }
  end

  # defect C21
  slow def test_a_request_without_an_answer_in_time_raises_a_timeout_error
    own = own_cluster
    own.create_topic("slow", partitions: 1)
    one = consumer(servers: own.bootstrap_servers)
    assert_equal [0, 0], one.watermarks("slow", 0)
    own.set_round_trip_time(seconds: 3)
    error = assert_raises(Penstock::ConsumeTimeoutError) { one.watermarks("slow", 0, timeout: 0.2) }
    assert_kind_of Penstock::TimeoutError, error
    assert_equal [:timed_out, one.id], [error.code, error.consumer_id]
  end

  thorough slow def test_a_commit_without_brokers_times_out_and_a_close_ends_it
    one = unreachable_consumer("group.id": "g", "session.timeout.ms": 5_000, "heartbeat.interval.ms": 1_000)
    error = assert_raises(Penstock::ConsumeTimeoutError) { one.commit({ "test" => { 0 => 1 } }, timeout: 0.1) }
    assert_equal :timed_out, error.code
    committing = Thread.new { one.commit({ "test" => { 0 => 1 } }, timeout: nil) }
    committing.report_on_exception = false
    eventually { committing.status == "sleep" }
    one.close(timeout: 0)
    assert_took(10, seconds_of { assert_raises(Penstock::ConsumerClosedError) { committing.value } })
  end

  # librdkafka tells only of the first thing in an empty queue.
  def test_messages_behind_an_error_that_passes_by_itself_are_there_at_once
    own = own_cluster
    own.create_topic("behind", partitions: 1)
    sender = producer("bootstrap.servers": own.bootstrap_servers)
    sender.produce_many_sync([{ topic: "behind", payload: "a", partition: 0 }] * 10)
    own.inject_errors(:fetch, :request_timed_out)
    one = consumer(servers: own.bootstrap_servers, log_level: 0, "fetch.error.backoff.ms": 10) do |config|
      config.logger = Logger.new(nil)
    end
    one.assign("behind" => { 0 => 0 })
    eventually { one.metrics.queue_length >= 10 }
    assert_equal "a", one.poll(timeout: 0)&.payload
  end

  # They count as processed when the program knows of the error and polls on.
  slow def test_messages_behind_an_error_come_after_it
    own = own_cluster
    own.create_topic("behind", partitions: 1)
    sender = producer(servers: own.bootstrap_servers)
    produce("behind", %w[a] * 100, on: sender)
    one = consumer(servers: own.bootstrap_servers, "fetch.error.backoff.ms": 10).assign("behind" => { 0 => 0 })
    eventually { one.metrics.queue_length >= 100 }
    own.inject_errors(:fetch, :topic_authorization_failed)
    eventually { one.metrics.queue_length >= 101 }
    produce("behind", %w[b] * 100, on: sender)
    eventually { one.metrics.queue_length >= 201 }
    polled = Array.new(3) do
      one.poll_batch(max: 200).payloads.uniq
    rescue Penstock::ConsumeError => e
      e.code
    end
    assert_equal [["a"], :topic_authorization_failed, ["b"]], polled
  end

  # Librdkafka gives such a partition up. The error's advice is to seek.
  def test_a_seek_begins_a_partition_whose_offset_does_not_exist
    name = topic(partitions: 2)
    2.times { |partition| produce(name, %w[a b c], partition:) }
    [group_consumer("auto.offset.reset": "error").subscribe(name),
     consumer("auto.offset.reset": "error").assign(name => { 0 => 500, 1 => 500 })].each do |one|
      2.times { eventually { raises_no_offset?(one) } }
      one.seek({ name => { 0 => 1, 1 => :end } })
      messages = take(one, 2)
      assert_equal %w[b c], messages.map(&:payload)
      assert one.mark(messages.last)
      produce(name, ["behind the end"], partition: 1)
      assert_equal ["behind the end"], take(one, 1).map(&:payload)
      one.seek(name, 0, 2)
      assert_equal %w[c], take(one, 1).map(&:payload)
    end
  end

  def raises_no_offset?(one)
    one.poll(timeout: 0.1)
    false
  rescue Penstock::ConsumeError => e
    e.code == :auto_offset_reset
  end

  # For longer than max.poll.interval.ms.
  thorough slow def test_a_member_with_many_errors_to_raise_keeps_its_partitions
    own = own_cluster
    own.create_topic("erring", partitions: 200)
    one = group_consumer("g", servers: own.bootstrap_servers, "auto.offset.reset": "error", "max.poll.interval.ms": 6_000)
    one.subscribe("erring")
    one.keep_alive { eventually { one.metrics.queue_length >= 200 } }
    codes = Array.new(40) do |i|
      sleep 0.6 if i < 12
      assert_raises(Penstock::ConsumeError) { one.poll_batch }.code
    end
    assert_equal [:auto_offset_reset], codes.uniq
    assert_equal 200, one.assignment.fetch("erring").size
  end

  def test_the_error_of_a_partition_that_does_not_exist_names_it_once
    name = topic(partitions: 2)
    one = consumer("topic.metadata.propagation.max.ms": 1) { |config| config.id = "reader" }.assign(name => { 7 => 0 })
    error = assert_raises(Penstock::ConsumeError) { one.poll(timeout: 10) }
    assert_equal "Desired partition is not available: Local: Unknown partition (unknown_partition) [consumer reader, " \
                 "topic #{name}, partition 7]. Check that the topic has the partition, and that it is assigned to " \
                 "this consumer.", error.message
  end

  def test_unknown_settings_and_invalid_values_raise_with_their_names
    error_for = lambda do |**kafka|
      assert_raises(Penstock::ConfigurationInvalidError) { consumer(**kafka) }.message
    end
    assert_match(/"group\.idd" \(did you mean "group\.id"\?\)/, error_for.call("group.idd": "x"))
    assert_match(/fetch\.min\.bytes/, error_for.call("fetch.min.bytes": "many"))
    assert_match(/enable\.auto\.commit.*"group\.id"/, error_for.call("enable.auto.commit": true))
    error = assert_raises(Penstock::ConfigurationInvalidError) { Penstock::Consumer.new }
    assert_match(/bootstrap\.servers/, error.message)
    assert_raises(Penstock::ConfigurationInvalidError) { consumer { |config| config.close_timeout = -1 } }
    assert_raises(Penstock::ConfigurationInvalidError) { consumer { |config| config.kafka = nil } }
    assert_raises(Penstock::ConfigurationInvalidError) { consumer { |config| config.restart_stuck = true } }
    error = assert_raises(Penstock::ConfigurationInvalidError) { consumer { |config| config.kafka = { 5 => 1 } } }
    assert_match(/Symbols or Strings, not Integer/, error.message)
    assert_raises(Penstock::ConfigurationInvalidError) { consumer { |config| config.id = "" } }
  end

  CONTRADICTIONS = {
    { "session.timeout.ms": 10_000, "max.poll.interval.ms": 5_000 } => /max\.poll\.interval\.ms/,
    { "max.poll.interval.ms": 5_000 } =>
      /max\.poll\.interval\.ms \(5000\) must be at least session\.timeout\.ms \(45000, the default\)/,
    { "heartbeat.interval.ms": 50_000 } =>
      /session\.timeout\.ms \(45000, the default\) must be at least heartbeat\.interval\.ms \(50000\) \+ 1/,
    { "session.timeout.ms": 3_000 } => /must be at least heartbeat\.interval\.ms \(3000, the default\) \+ 1/,
    { "session.timeout.ms": 3_000, "heartbeat.interval.ms": 3_000 } => /heartbeat\.interval\.ms \(3000\) \+ 1/,
    { "fetch.max.bytes": 100_000 } =>
      /fetch\.max\.bytes \(100000\) must be at least message\.max\.bytes \(1000000, the default\)/,
    { "fetch.max.bytes": 2_000_000, "receive.message.max.bytes": 2_000_511 } =>
      /receive\.message\.max\.bytes \(2000511\) must be at least fetch\.max\.bytes \(2000000\) \+ 512/,
    { "receive.message.max.bytes": 1_000_511 } => /receive\.message\.max\.bytes.* at least fetch\.max\.bytes \(1000000\) \+ 512/,
    { "reconnect.backoff.ms": 20_000 } =>
      /reconnect\.backoff\.max\.ms \(10000, the default\) must be at least reconnect\.backoff\.ms \(20000\)/,
    { "partition.assignment.strategy": "cooperative-sticky,range" } => /partition\.assignment\.strategy must not combine/
  }.freeze

  # librdkafka finds them when the client is made, which is at the first use.
  def test_contradictory_settings_raise
    CONTRADICTIONS.each do |settings, text|
      error = assert_raises(Penstock::ConfigurationInvalidError, settings.inspect) { consumer("group.id": "g", **settings) }
      assert_match text, error.message
    end
  end

  def test_settings_of_the_classic_protocol_contradict_the_protocol_consumer
    skip "this librdkafka knows only the classic protocol" if Internal::Settings.read("group.protocol", "consumer").nil?

    kafka = { "group.id": "g", "group.protocol": "consumer" }
    { "session.timeout.ms": 7_000, "heartbeat.interval.ms": 500, "partition.assignment.strategy": "range" }.each do |name, value|
      error = assert_raises(Penstock::ConfigurationInvalidError) { consumer(**kafka, name => value) }
      assert_match(/#{Regexp.escape(name.to_s)} must not be set with group\.protocol "consumer"/, error.message)
    end
    assert_empty unreachable_consumer(**kafka, "max.poll.interval.ms": 7_000).assignment # the session's default is not used
  end

  # fetch.max.bytes fits to the other limits, unless it is set too.
  def test_limits_that_contradict_only_defaults_are_accepted
    [{ "receive.message.max.bytes": 1_000_512 }, { "receive.message.max.bytes": 100_000, "message.max.bytes": 99_000 },
     { "receive.message.max.bytes": 5_000_000, "queued.max.messages.kbytes": 100_000 }, { "queued.max.messages.kbytes": 1 },
     { "message.max.bytes": 900_000_000 }, { "session.timeout.ms": 6_000, "max.poll.interval.ms": 6_000 }].each do |settings|
      one = unreachable_consumer("group.id": "g", **settings)
      assert_empty one.assignment, settings # it is open
    end
  end

  # A revocation that waits does not count as polling.
  def test_a_revocation_that_would_wait_longer_than_max_poll_interval_raises
    holding = ->(hold, **kafka) { consumer("group.id": "g", **kafka) { |config| config.hold_rebalances = hold } }
    error = assert_raises(Penstock::ConfigurationInvalidError) { holding.call(60_000, "max.poll.interval.ms": 60_000) }
    assert_match(/config\.hold_rebalances \(60000 ms\) must be less than max\.poll\.interval\.ms \(60000 ms\)/, error.message)
    error = assert_raises(Penstock::ConfigurationInvalidError) { holding.call(300_000) }
    assert_match(/300000 ms\) must be less than max\.poll\.interval\.ms \(300000 ms\)/, error.message)
    holding.call(59_999, "max.poll.interval.ms": "60000")
    holding.call(299_999)
    error = assert_raises(Penstock::ConfigurationInvalidError) { holding.call(1, "max.poll.interval.ms": "many") }
    refute_match(/hold_rebalances/, error.message)
  end

  def test_settings_that_librdkafka_rejects_at_open_raise_with_the_consumers_id
    one = consumer("security.protocol": "ssl", "ssl.ca.location": __FILE__, log_level: 0, "group.id": "g")
    error = assert_raises(Penstock::ConfigurationInvalidError) { one.poll }
    assert_match(/ssl\.ca\.location.*#{one.id}/, error.message)
  end

  def test_a_new_consumer_opens_no_connection_and_inspect_shows_no_settings
    one = consumer("security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "me",
                   "sasl.password": "hunter2") { |config| config.id = "reader" }
    assert_equal 0, Internal::ProducerClient.open_count
    assert_equal "#<Penstock::Consumer reader configured>", one.inspect
    refute_includes one.config.inspect, "hunter2"
    assert_predicate one.config, :frozen?
    assert_predicate one.close, :complete?
    assert_equal "#<Penstock::Consumer reader closed>", one.inspect
    assert_match(/\Apenstock-consumer-\h{12}\z/, consumer.id)
  end

  # ---- interruption ----

  # defect C33
  def test_every_wait_can_be_interrupted_at_once
    one = reading(topic(partitions: 1))
    thread = Thread.new { one.poll(timeout: nil) }
    thread.report_on_exception = false
    eventually { thread.status == "sleep" }
    thread.raise("enough")
    assert_took(5, seconds_of { assert_equal "enough", assert_raises(RuntimeError) { thread.value }.message })
    assert_raises(Timeout::Error) { Timeout.timeout(0.2) { one.poll_batch(max: 10, timeout: nil) } }
    killed = Thread.new { one.each {} }
    eventually { killed.status == "sleep" }
    killed.kill
    assert Slowness.join(killed, 5)
  end

  def test_a_consumer_works_after_an_interrupted_call
    name = topic(partitions: 1)
    one = reading(name)
    20.times { assert_raises(Timeout::Error) { Timeout.timeout(0.01) { one.poll(timeout: nil) } } }
    produce(name, %w[a])
    assert_equal "a", one.poll(timeout: 10).payload
  end

  # ---- closing ----

  def test_close_wakes_threads_that_poll
    one = reading(topic(partitions: 1))
    threads = [Thread.new { one.poll(timeout: nil) }, Thread.new { one.poll_batch(max: 5, timeout: nil) },
               Thread.new { one.each { flunk } }]
    eventually { threads.all? { |thread| thread.status == "sleep" } }
    assert_predicate one.close, :complete?
    assert_equal [nil, [], one], threads.map(&:value)
  end

  def test_after_close_every_call_but_close_raises
    one = reading(topic(partitions: 1))
    assert_predicate one.close, :complete?
    [-> { one.poll }, -> { one.poll_batch }, -> { one.assign({}) }, -> { one.assignment }, -> { one.watermarks("a", 0) },
     -> { one.position("a", 0) }, -> { one.seek("a", 0, 0) }, -> { one.unsubscribe }].each do |use|
      assert_match(/consumer is closed.*#{one.id}/, assert_raises(Penstock::ConsumerClosedError, &use).message)
    end
    assert_same(one, one.each { flunk })
    assert_predicate one.close, :complete?
    assert_predicate one, :closed?
  end

  def test_each_yields_messages_until_the_block_closes_the_consumer
    name = topic(partitions: 1)
    produce(name, %w[a b c])
    one = reading(name)
    got = []
    one.each do |message|
      got << message.payload
      one.close if got.size == 2
    end
    assert_equal %w[a b], got
    assert_equal %w[a b c], reading(name).each.first(3).map(&:payload)
  end

  def test_a_consumer_is_not_enumerable_because_its_messages_never_end
    one = unreachable_consumer
    assert_respond_to one, :each
    refute_kind_of Enumerable, one
    %i[count to_a map lazy each_entry each_slice first sort].each { |name| refute_respond_to one, name }
  end

  # Once a consumer has left its group, librdkafka drops requests without an answer, so the calling thread would wait for ever.
  %w[assignment group_metadata].each do |call|
    define_method("test_#{call}_called_during_close_ends") do
      ruby!(<<~RUBY, cluster.bootstrap_servers, call)
        300.times do
          consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0], "group.id": "g" } }
          consumer.assign("test" => [0])
          asking = Array.new(8) { Thread.new { consumer.public_send(ARGV[1]) rescue Penstock::Error } }
          closed = Thread.new { consumer.close(timeout: 10) }.value
          exit!(1) unless closed.complete? && asking.all? { |thread| thread.join(10) }
        end
      RUBY
    end
  end

  # defect 13
  def test_close_from_many_threads_closes_once
    name = topic(partitions: 1)
    produce(name, Array.new(1_000, "x"))
    one = reading(name)
    polling = Array.new(3) { Thread.new { one.each { Thread.pass } } }
    assert_equal [true] * 8, Array.new(8) { Thread.new { one.close } }.map { |thread| thread.value.complete? }
    polling.each(&:join)
  end

  # Each message goes to exactly one polling thread. All other calls return or raise. Longer: PENSTOCK_ROUNDS=100
  # defect 13
  thorough slow def test_eight_threads_use_and_close_one_consumer_repeatedly
    name = topic(partitions: 1)
    produce(name, Array.new(500, &:to_s))
    Integer(ENV.fetch("PENSTOCK_ROUNDS", "8")).times do |round|
      one = group_consumer("shared-#{name}", "enable.auto.commit": false).assign(name => { 0 => 0 })
      uses = [-> { one.poll(timeout: 0.02) }, -> { one.poll_batch(max: 50, timeout: 0.02) },
              -> { one.commit({ name => { 0 => 5 } }, timeout: 2) },
              -> { one.commit({ name => { 0 => 7 } }, async: true) }, -> { one.position(name, 0) }, -> { one.assignment },
              -> { one.poll(timeout: 0) }, -> { one.poll_batch(max: 5, timeout: 0.001) }]
      start = Queue.new
      threads = uses.map { |use| quiet_thread { start.pop && use_until_closed(use) } }
      uses.size.times { start << true }
      sleep rand * 0.1
      closed = Array.new(1 + (round % 3)) { quiet_thread { one.close(timeout: 10) } }
      assert_equal [[true, nil]], closed.map { |thread| thread.value.to_a }.uniq
      results = threads.map { |thread| Slowness.join(thread, 20) ? thread.value : flunk("a thread hangs: #{thread.backtrace}") }
      offsets = results.flatten.grep(Penstock::Message).map(&:offset)
      assert_equal offsets.uniq.size, offsets.size, "polled twice"
      assert_raises(Penstock::ConsumerClosedError) { one.poll(timeout: 0) }
    end
  end

  # @return [Array] the results of the call until the consumer was closed
  def use_until_closed(use)
    results = []
    loop do
      results << use.call
    rescue Penstock::ConsumerClosedError
      break results
    rescue Penstock::ConsumeError
      next # a commit that the cluster rejects
    end
  end

  # defect 6
  def test_close_does_not_wait_for_messages_that_no_thread_polled
    name = topic(partitions: 2)
    2.times { |partition| produce(name, Array.new(1_000, "x"), partition:) }
    one = reading(name, partitions: [0, 1])
    take(one, 10, batch: 1)
    assert_predicate one.close, :complete?
  end

  thorough slow def test_close_reports_whether_it_finished_in_time_and_left_the_group
    name = topic(partitions: 1)
    produce(name, %w[a])
    one = group_consumer.subscribe(name)
    take(one, 1)
    report = one.close(timeout: 30)
    assert_equal [true, true, true], [*report, report.complete?]
    assert_predicate report, :frozen?
    assert_equal report, one.close
    assert_equal [true, nil], reading(name).close.to_a, "without a group"
    assert_equal [true, nil], group_consumer.subscribe(name).unsubscribe.close.to_a, "after it left the group"
    assert_equal [true, nil], consumer.close.to_a, "never used"
  end

  thorough slow def test_a_close_that_takes_too_long_reports_that_it_continues
    name = topic(partitions: 1, on: embedded_cluster)
    one = consumer(servers: embedded_cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest").subscribe(name)
    eventually { one.poll(timeout: 0.05) || one.assignment.any? }
    embedded_cluster.set_round_trip_time(seconds: 2)
    report = one.close(timeout: 0)
    assert_equal [false, false, false], [*report, report.complete?]
  ensure
    embedded_cluster.set_round_trip_time(seconds: 0)
  end

  def test_close_without_a_broker_ends_in_time
    one = unreachable_consumer("group.id": "g").subscribe("test")
    assert_nil one.poll(timeout: 0.1)
    assert_took(10, seconds_of { one.close(timeout: 1) })
  end

  # defect 20
  def test_a_signal_trap_can_close_a_consumer_while_it_is_polled
    output = ruby!(<<~RUBY, cluster.bootstrap_servers, topic(partitions: 1))
      consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      consumer.assign(ARGV[1] => [0])
      trap("TERM") { $closed = consumer.close }
      Thread.new { Thread.pass until Thread.main.status == "sleep"; Process.kill(:TERM, Process.pid) }
      consumer.each { abort }
      print $closed.to_a
    RUBY
    assert_equal "[true, nil]", output
  end

  def test_a_consumer_without_references_is_closed
    name = topic(partitions: 1)
    produce(name, %w[a])
    Array.new(3) { Thread.new { reading(name).poll(timeout: 10) && @consumers.clear } }.each(&:join)
    eventually(20) do
      GC.start
      Internal::ProducerClient.open_count == @producers.size
    end
  end

  thorough slow def test_consumers_open_at_exit_commit_and_are_closed
    name = topic(partitions: 1)
    produce(name, %w[a b c])
    ruby!(<<~RUBY, cluster.bootstrap_servers, name)
      consumer = Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": ARGV[0], "group.id": "exit-\#{ARGV[1]}", "auto.offset.reset": "earliest" }
      end
      consumer.subscribe(ARGV[1])
      polling = Thread.new { consumer.each { |message| Thread.main.wakeup if message.payload == "c" } }
      sleep
    RUBY
    one = group_consumer("exit-#{name}", "enable.auto.commit": false)
    assert_equal({ 0 => 3 }, one.committed(name, 0))
  end

  # ---- fork ----

  # defect 7
  def test_a_fork_child_cannot_use_its_parents_consumer_and_does_not_disturb_it
    name = topic(partitions: 1)
    produce(name, %w[a b])
    one = reading(name)
    fresh = consumer
    assert_equal "a", one.poll(timeout: 10).payload
    result = in_child do
      calls = [-> { one.poll }, -> { one.each {} }, -> { one.assignment }, -> { one.commit({}) }]
              .map { |use| error_class(&use) }
      payload = fresh.assign(name => { 0 => 1 }).poll(timeout: 10).payload
      state = [calls, payload, one.close.to_a, one.closed?, one.inspect.include?("inherited"), fresh.close.to_a]
      one = nil
      3.times { GC.start }
      state
    end
    errors = [*[Penstock::ForkedError] * 3, Penstock::ConfigurationInvalidError]
    assert_equal [errors, "b", [true, nil], true, true, [true, nil]], result
    assert_equal "b", one.poll(timeout: 10).payload
  end

  def error_class
    yield
    nil
  rescue Penstock::Error => e
    e.class
  end

  # defect 7
  def test_a_fork_child_exits_cleanly_while_its_parent_polls
    name = topic(partitions: 1)
    sender = producer
    one = reading(name)
    polling = Thread.new { Array.new(20) { one.poll(timeout: 10).payload } }
    5.times do |i|
      assert in_child { one.closed? && 2.times { GC.start } }
      4.times { |j| sender.produce_sync(topic: name, payload: "#{i}#{j}", partition: 0) }
    end
    assert_equal Array.new(5) { |i| Array.new(4) { |j| "#{i}#{j}" } }.flatten, polling.value
  end

  # ---- the garbage collector ----

  # defect 29
  def test_consuming_works_under_gc_stress
    name = topic(partitions: 1)
    sender = producer
    5.times { |i| sender.produce_sync(topic: name, payload: "p#{i}", key: "k#{i}", headers: { "a" => %w[1 2], "b" => "3" }) }
    one = reading(name)
    assert_equal "p0", one.poll(timeout: 10).payload
    GC.stress = true
    messages = [one.poll(timeout: 10)]
    messages.concat(one.poll_batch(max: 10, timeout: 10)) until messages.size == 4
    assert_equal({ name => [0] }, one.assignment)
    GC.stress = false
    assert_equal %w[p1 p2 p3 p4], messages.map(&:payload)
    assert_equal [{ "a" => %w[1 2], "b" => "3" }] * 4, messages.map(&:headers)
  ensure
    GC.stress = false
  end

  def test_messages_survive_compaction
    name = topic(partitions: 1)
    produce(name, Array.new(300) { |i| "payload #{i}" })
    messages = take(reading(name), 300)
    option = RUBY_VERSION < "3.2" ? :double_heap : :expand_heap
    GC.verify_compaction_references(option => true, toward: :empty)
    assert_equal(Array.new(300) { |i| [name, "payload #{i}", {}] },
                 messages.map { |message| [message.topic, message.payload, message.headers] })
  end

  # ---- ways to leave the block of each ----

  class Mine < StandardError; end

  {
    raises: ->(_) { raise Mine }, raises_exception: ->(_) { raise Exception, "mine" }, # rubocop:disable Lint/RaiseException
    throws: ->(_) { throw :out }, breaks: nil, is_killed: ->(_) { Thread.current.kill }
  }.each do |name, ending|
    # defect 14
    define_method("test_a_block_of_each_that_#{name}_loses_no_message") do
      name_of = topic(partitions: 1)
      produce(name_of, Array.new(60, &:to_s))
      one = reading(name_of)
      seen = []
      20.times do
        left(ending) { |leave| one.each { |message| (seen << message.payload) && (leave ? leave.call(message) : break) } }
        seen.concat(take(one, 2, batch: 1).map(&:payload))
      end
      assert_equal Array.new(60, &:to_s), seen
      assert_equal 60, one.position(name_of, 0)
      assert_predicate one.close(timeout: 5), :complete?
    end
  end

  def left(ending)
    quiet_thread { catch(:out) { yield ending } }.join
  rescue Exception => e # rubocop:disable Lint/RescueException
    raise unless e.is_a?(Mine) || e.message == "mine"
  end
  # ---- messages held after close ----

  HELD = 1_000

  # close does not wait for messages that the program still holds, nor for fetched messages that no thread has polled.
  # defect 6
  thorough slow def test_messages_stay_readable_after_a_consumer_with_10_000_prefetched_messages_closes
    name = topic(partitions: 1)
    produce(name, Array.new(HELD + 10_000) { |i| "payload #{i}" })
    kept = in_thread do # a separate thread, so that its stack holds no references afterwards
      one = group_consumer.subscribe(name)
      messages = take(one, HELD)
      metadata = one.group_metadata
      error = assert_raises(Penstock::ConsumeError) { one.seek(name, 99, 0) }
      sleep 0.5 # the other messages are fetched meanwhile
      assert_took(GCLevel.slow? ? 20 : 5, seconds_of { assert_predicate one.close(timeout: 30), :complete? })
      @consumers.delete(one)
      [messages.select.with_index { |_, i| i.odd? }, metadata, error]
    end
    3.times { GC.start }
    GC.compact if GC.respond_to?(:compact) && !GCLevel.fragile?
    Array.new(50_000) { |i| "something else #{i}" }
    messages, metadata, error = kept
    assert_equal Array.new(HELD / 2) { |i| ["payload #{(i * 2) + 1}", (i * 2) + 1, name, nil, {}] },
                 messages.map { |message| [message.payload, message.offset, message.topic, message.key, message.headers] }
    assert_includes metadata, "group-"
    assert_equal [name, 99], [error.topic, error.partition]
    refute_empty error.full_message
  end

  # Metadata of a group that the consumer has left, of a closed consumer, and as bytes, used in a transaction.
  thorough slow def test_stale_group_metadata_in_a_transaction_causes_at_most_an_error
    name = topic(partitions: 1)
    produce(name, %w[a b])
    one = group_consumer("enable.auto.commit": false).subscribe(name)
    message = take(one, 1).first
    metadata = one.group_metadata
    writer = producer("transactional.id": name)
    writer.transaction { writer.transaction_mark_as_consumed(one, message) }
    one.unsubscribe
    eventually { one.poll(timeout: 0.02) || one.assignment.empty? }
    stale = [-> { writer.transaction_mark_as_consumed(one, message) },
             -> { writer.client.send_offsets_to_transaction([[name, 0, 1, nil]], metadata, 5_000) }]
    stale.each { |use| assert_harmless(writer, use) }
    one.close
    assert_raises(Penstock::ConsumerClosedError) { writer.transaction { stale[0].call } }
    assert_harmless(writer, stale[1])
    assert_predicate writer.produce_sync(topic: name, payload: "c"), :persisted?
  end

  # The mock cluster does not check generations and accepts any metadata.
  def assert_harmless(writer, use)
    writer.transaction { use.call }
  rescue Penstock::Error, ArgumentError => e
    refute_empty e.message
  end

  def in_thread(&block) = quiet_thread(&block).value
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../support/gc_pressure"

# The collector keeps objects that only a native object references. Each test fails without the mark or the write barrier that it
# tests.
class GCHeldTest < ConsumerTestCase
  include GCPressure

  MANY = 20 # a single object may survive by chance, because a stack may contain a value that looks like a reference to it

  def setup
    super
    GC.stress = false # each test decides when to collect
    @kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 }
    @settings = Internal::ProducerClient.settings_of(unreachable_producer.config)
  end

  # ---- marks: no other reference exists, and a full collection runs ----

  def test_a_client_keeps_its_poller
    assert_kept(Class.new(Penstock::Poller)) { |klass| new_client(poller: klass.new) }
  end

  def test_a_client_keeps_its_logger
    assert_kept { |klass| new_client(logger: klass.new) }
  end

  def test_a_client_keeps_its_event_source
    assert_kept(Class.new(Internal::EventSource)) { |klass| new_client.tap { |client| client.event_source = new_source(klass) } }
  end

  def test_a_client_keeps_its_token_refresher
    assert_kept { |klass| new_client.tap { |client| client.token_refresher = klass.new } }
  end

  def test_a_consumer_keeps_its_logger
    assert_kept { |klass| new_consumer(logger: klass.new) }
  end

  def test_a_consumer_keeps_its_token_refresher
    assert_kept { |klass| new_consumer(refresher: klass.new) }
  end

  def test_a_handle_keeps_its_label
    client = new_client
    assert_kept { |klass| client.produce({ topic: "t", payload: "x", label: klass.new }) }
    close client
  end

  # If the name was collected, the client would use the object that took its place: a String that the caller can change.
  def test_a_client_keeps_the_name_of_its_latest_topic
    clients = aside do
      Array.new(MANY) { |i| new_client.tap { |client| client.produce({ topic: topic_text(i), payload: "x" }) } }
    end
    numbers = Array.new(200) { |i| i % MANY }.cycle
    replace_garbage { topic_text(numbers.next) }
    handles = clients.each_with_index.map { |client, i| client.produce({ topic: topic_text(i), payload: "x" }) }
    assert_equal [true] * MANY, handles.map { |handle| handle.topic.frozen? }
    close(*clients)
  end

  def test_a_handle_keeps_the_name_of_its_topic
    client = new_client
    handles = aside do
      made = Array.new(MANY) { |i| client.produce({ topic: topic_text(i), payload: "x" }) }
      client.produce({ topic: "another", payload: "x" })
      made
    end
    replace_garbage
    assert_equal Array.new(MANY) { |i| topic_text(i) }, handles.map(&:topic)
    close client
  end

  # The consumer was collected, and with it all other references to the topic's name.
  def test_a_message_keeps_its_topic_key_payload_and_headers
    number = new_topic_number
    messages = aside { consumed(number, 200) }
    replace_garbage
    messages.each_with_index { |message, i| assert_equal expected(number, i), parts(message) }
  end

  def test_a_message_keeps_the_shared_empty_headers
    program = <<~RUBY
      require "support/gc_pressure"
      servers, name = ARGV
      consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": servers } }
      consumer.assign(name => { 0 => :beginning })
      GCPressure.replace_garbage { { 1 => 2 } }
      message = consumer.poll(timeout: 0.5) until message
      abort(message.headers.inspect) unless message.headers == {}
      consumer.close
    RUBY
    name = topic(partitions: 1)
    producer.produce_sync(topic: name, payload: "x")
    ruby!(program_with_support(program), cluster.bootstrap_servers, name)
  end

  # ---- write barriers: an old object references a young one ----

  def test_an_old_client_keeps_a_young_poller
    assert_young_kept(Class.new(Penstock::Poller), -> { Internal::ProducerClient.allocate }) do |client, klass|
      new_client(client, poller: klass.new)
    end
  end

  def test_an_old_client_keeps_a_young_logger
    allocate = -> { Internal::ProducerClient.allocate }
    assert_young_kept(Class.new, allocate) { |client, klass| new_client(client, logger: klass.new) }
  end

  def test_an_old_client_keeps_a_young_event_source
    assert_young_kept(Class.new(Internal::EventSource), -> { new_client }) do |client, klass|
      client.event_source = new_source(klass)
    end
  end

  def test_an_old_client_keeps_a_young_token_refresher
    assert_young_kept(Class.new, -> { new_client }) { |client, klass| client.token_refresher = klass.new }
  end

  def test_an_old_consumer_keeps_a_young_logger
    assert_young_kept(Class.new, -> { Internal::ConsumerClient.allocate }) { |one, klass| new_consumer(one, logger: klass.new) }
  end

  def test_an_old_consumer_keeps_a_young_token_refresher
    assert_young_kept(Class.new, -> { Internal::ConsumerClient.allocate }) do |one, klass|
      new_consumer(one, refresher: klass.new)
    end
  end

  def test_an_old_client_keeps_the_young_name_of_its_latest_topic
    clients = Array.new(MANY) { new_client.tap(&:connect) }
    grow_old
    aside { clients.each_with_index { |client, i| client.produce({ topic: topic_text(i), payload: "x" }) } }
    GC.verify_internal_consistency
    numbers = Array.new(200) { |i| i % MANY }.cycle
    replace_young_garbage { topic_text(numbers.next) }
    handles = clients.each_with_index.map { |client, i| client.produce({ topic: topic_text(i), payload: "x" }) }
    assert_equal [true] * MANY, handles.map { |handle| handle.topic.frozen? }
    close(*clients)
  end

  # ---- objects that a call needs ----

  # The Hashes reference only the caller's Strings. The batch's buffer holds the only references to the topic names made of them.
  def test_a_batch_keeps_the_names_of_its_topics_during_its_creation
    client = new_client.tap(&:connect)
    names = Array.new(MANY) { |i| topic_text(i) }
    handles = aside do
      batch = names.map { |name| { topic: +name.to_s, payload: "x" } }
      under_stress { client.produce_many(batch, false)[0] }
    end
    assert_equal names.map { |name| [name, true] }, handles.map { |handle| [handle.topic, handle.topic.frozen?] }
    close client
  end

  # While the messages wait for queue space, the program changes its Strings, and their old contents become garbage. Penstock
  # copies small and few payloads, and keeps references to many large ones.
  { "small" => [60, 100], "large" => [200, 3_000] }.each do |name, (count, size)|
    define_method("test_#{name}_payloads_that_wait_for_queue_space_do_not_change") do
      own = own_cluster
      own.create_topic("slow", partitions: 1)
      own.set_round_trip_time(seconds: 0.1)
      one = producer(servers: own.bootstrap_servers, "queue.buffering.max.messages": 10, "linger.ms": 0)
      one.partition_count("slow")
      expected = Array.new(count) { |i| "#{i} ".ljust(size, "abcdefgh"[i % 8]) }
      sent = expected.map { |payload| { topic: "slow", payload: payload[0..-2] + payload[-1] } }
      sending = quiet_thread { one.produce_many_sync(sent) }
      eventually { one.queue_size >= 5 }
      sent.each { |message| message[:payload].replace("!" * size) }
      replace_garbage(20_000) { "?" * size }
      sending.value
      own.set_round_trip_time(seconds: 0)
      messages = take(consumer(servers: own.bootstrap_servers).assign("slow" => { 0 => :beginning }), count)
      assert_equal expected, messages.map(&:payload)
    end
  end

  private

  # Creates the objects out of reach of the test's stack, so that their parts can be collected.
  def assert_kept(klass = Class.new)
    kept = aside { Array.new(MANY) { yield klass } }
    replace_garbage
    assert_equal MANY, count(klass)
    assert_equal MANY, kept.size
  end

  def assert_young_kept(klass, maker, &block)
    old = Array.new(MANY) { maker.call }
    grow_old
    aside { old.each { |one| block.call(one, klass) } }
    GC.verify_internal_consistency # prints what is missing and ends the process
    replace_young_garbage
    assert_equal MANY, count(klass)
    assert_equal MANY, old.size
  end

  # Allocates an object without initialize. The allocate method of these classes raises, so this calls that of Class.
  def bare(klass) = Class.instance_method(:allocate).bind_call(klass)

  def new_client(made = Internal::ProducerClient.allocate, poller: Penstock::Poller.instance, logger: nil)
    made.send(:initialize, { id: "client", kafka: @kafka, poller:, logger:, **@settings })
    made
  end

  def new_consumer(made = Internal::ConsumerClient.allocate, logger: nil, refresher: nil)
    made.send(:initialize, { id: "consumer", kafka: @kafka, logger:, close_timeout: 1_000, grouped: false, rejection_timeout: nil,
                             token_refresher: refresher, mark: :next_poll, listens: false, hold_rebalances: 0, deserializer: nil,
                             callbacks: nil })
    made
  end

  def new_source(klass)
    bare(klass).tap { |source| source.send(:initialize_queue, 10, false) }
  end

  def close(*clients) = clients.each { |client| client.close(0) }

  def topic_text(number) = "topic-#{number}-of-many"

  # Numbers for topics whose names exist nowhere else in memory.
  def new_topic_number = rand(2**40)
  def numbered_text(number) = "numbered-#{number}"
  def numbered_topic(number) = numbered_text(number).tap { |name| cluster.create_topic(name, partitions: 1) }

  def fill(name, count, **parts)
    one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers } }
    one.produce_many_sync(Array.new(count) { |i| { topic: name, payload: "x", **(parts.empty? ? {} : content(i)) } })
    one.close
  end

  def content(number)
    { payload: "payload #{number} " * 20, key: "key #{number} " * 20,
      headers: Array.new(4) { |n| ["name #{n}", "value #{number} " * 20] }.to_h }
  end

  def consumed(number, count, stress: nil)
    name = numbered_topic(number)
    fill(name, count, all: true)
    one = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers } }
    one.assign(name => { 0 => :beginning })
    messages = stress ? under_stress(stress) { take(one, count, batch: 1) } : take(one, count)
    one.close
    messages
  end

  def expected(number, index) = [numbered_text(number), *content(index).values_at(:key, :payload, :headers)]
  def parts(message) = [message.topic, message.key, message.payload, message.headers]

  def program_with_support(program) = "$LOAD_PATH << #{File.dirname(__dir__).dump}\n#{program}"
end

# frozen_string_literal: true

require "objspace"
require_relative "../test_helper"
require_relative "../support/gc_pressure"
require_relative "../support/plain_scheduler"
require_relative "../support/reader"

class GCTest < PenstockTest
  # A collection at each allocation covers only young objects, so configuring a producer takes a second instead of a minute.
  YOUNG = 1

  # While another thread compacts, Ruby protects pages of its heap. Native code must not read them without the GVL.
  def test_batches_are_sent_while_another_thread_compacts_the_heap
    ruby!(<<~RUBY, cluster.bootstrap_servers, topic(partitions: 1), seconds: 60)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      compacting = Thread.new { loop { Array.new(20_000) { "z" * rand(50) }.each_slice(2).map(&:first); GC.compact } }
      30.times do
        sent = Array.new(2_000) { |i| { topic: ARGV[1], payload: "abcdefgh"[i % 8] * [3, 10, 300, 3_000][i % 4], key: "k" * 5 } }
        producer.produce_many_sync(sent)
      end
      compacting.kill.join
    RUBY
  end

  # ---- under pressure ----

  def test_producing_works_under_gc_stress
    name = topic(partitions: 1)
    one = producer
    GCPressure.under_stress do
      handles = Array.new(10) do |i|
        one.produce_async(topic: name, payload: "p#{i}", key: "k#{i}", headers: { "h" => %w[a b] }, label: "l#{i}")
      end
      handles += one.produce_many_sync(Array.new(5) do |i|
                                         { topic: name, payload: "m#{i}", partition_key: "k#{i}", label: "l#{i + 10}" }
                                       end)
      handles.each_with_index { |handle, i| assert_equal [i, "l#{i}"], [handle.wait.offset, handle.label] }
    end
  end

  def test_everything_can_be_created_used_and_closed_under_gc_stress
    own = poller = one = nil
    GCPressure.under_stress(YOUNG) do
      own = own_cluster
      own.create_topic("stressed", partitions: 1)
      poller = Penstock::Poller.new
      one = producer(servers: own.bootstrap_servers) { |config| config.polling.poller = poller }
    end
    GCPressure.under_stress do
      assert_equal 0, one.produce_sync(topic: "stressed", payload: "x").offset
      assert_equal 1, one.partition_count("stressed")
      assert_equal 1, poller.stats[:messages]
      assert_predicate one.close, :complete?
    end
  end

  def test_errors_can_be_raised_under_gc_stress
    stuck = unreachable_producer
    impatient = unreachable_producer("message.timeout.ms": 300)
    GCPressure.under_stress do
      handle = stuck.produce_async(topic: "test", payload: "x", label: "label")
      assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 1) }
      error = assert_raises(Penstock::MessageTimedOutError) { impatient.produce_sync(topic: "test", payload: "x") }
      assert_includes error.message, "127.0.0.1:1"
      assert_raises(Penstock::MessageInvalidError) { stuck.produce_async(topic: "test", payload: "x", headers: { "a" => 1 }) }
    end
    GCPressure.under_stress(YOUNG) { assert_raises(Penstock::ConfigurationInvalidError) { producer("linger.ms": "long") } }
  end

  def test_objects_held_by_handles_and_producers_survive_automatic_compaction
    skip "no automatic compaction here, or Ruby itself dies of it" unless GCLevel.auto_compacts?
    name = topic(partitions: 1)
    poller = Penstock::Poller.new
    one = producer { |config| config.polling.poller = poller }
    before = GC.auto_compact
    GC.auto_compact = true
    handles = Array.new(50) { |i| one.produce_async(topic: name.dup, payload: "x", label: ["label", i]) }
    one.flush
    3.times { GC.start }
    assert_equal (0...50).map { |i| [i, ["label", i], name] }, handles.map { |h| [h.report.offset, h.label, h.topic] }
    assert_equal 50, poller.stats[:messages]
  ensure
    GC.auto_compact = before unless before.nil?
  end

  def test_references_are_correct_after_everything_moved
    skip "no compaction here" unless GC.respond_to?(:verify_compaction_references)
    name = topic(partitions: 1)
    lines = StringIO.new
    one = producer(debug: "broker") do |config|
      config.logger = Logger.new(lines)
      config.polling.poller = Penstock::Poller.new
    end
    handles = Array.new(20) { |i| one.produce_async(topic: name.dup, payload: "x", label: { number: i }) }
    GC.verify_compaction_references(**(RUBY_VERSION < "3.2" ? { double_heap: true } : { expand_heap: true }), toward: :empty)
    assert_equal (0...20).map { |i| [i, { number: i }, name] }, handles.map { |h| [h.wait.offset, h.label, h.topic] }
    eventually { !lines.string.empty? }
    assert_raises(Penstock::ConfigurationInvalidError) { producer("no.such.setting": 1) }
    producer { |config| config.logger = Logger.new(lines) }.produce_sync(topic: name, payload: "x")
  end

  def test_old_handles_keep_young_labels_and_topics_alive
    name = topic(partitions: 1)
    one = producer
    4.times { GC.start } # the producer, its poller and its configuration are old from now on
    handles = one.produce_many_async(Array.new(2_000) { |i| { topic: name.dup, payload: "x", label: "label #{i}" } })
    GC.verify_internal_consistency
    10_000.times { |i| "garbage #{i}" }
    GC.start(full_mark: false)
    GC.verify_internal_consistency
    handles.each_with_index { |handle, i| assert_equal ["label #{i}", name], [handle.label, handle.topic] }
  end

  def test_threads_that_create_many_labelled_handles_lose_no_label
    name = topic(partitions: 1)
    one = producer
    threads = Array.new(4) do |t|
      Thread.new do
        Array.new(5_000) do |i|
          handle = one.produce_async(topic: name, payload: "x", label: "#{t}-#{i}")
          "#{t}-#{i}" == handle.label && (i % 100 != 0 || handle.wait.label == handle.label)
        end.all?
      end
    end
    assert_equal [true] * 4, threads.map(&:value)
    one.flush
    assert_equal 20_000, one.produce_sync(topic: name, payload: "x").offset
  end

  # ---- objects without references ----

  # defect 3
  def test_100_000_handles_without_a_waiting_thread_leak_no_memory
    skip "no /proc here" unless File.exist?("/proc/self/statm")
    output = ruby!(<<~RUBY, cluster.bootstrap_servers, topic(partitions: 1), seconds: 60)
      one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      resident = lambda do
        one.flush
        GC.start
        File.read("/proc/self/statm").split[1].to_i * 4096
      end
      drop = lambda do
        50_000.times { one.produce_async(topic: ARGV[1], payload: "x" * 20, key: "k", partition_key: "p", label: "l") }
      rescue Penstock::QueueFullError
        one.flush
        retry
      end
      drop.call
      before = resident.call
      2.times { drop.call }
      puts resident.call - before
    RUBY
    assert_operator output.to_i, :<, 20_000_000 # leaked handles would take 100,000 times 200 bytes
  end

  # Earlier, the memory of all deliveries of a batch was freed only with its last handle.
  def test_a_kept_handle_keeps_only_its_own_chunk_of_a_large_batch
    skip "no /proc here" unless File.exist?("/proc/self/statm")
    output = ruby!(<<~RUBY, cluster.bootstrap_servers, topic(partitions: 1), seconds: 60)
      one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      messages = Array.new(20_000) { { topic: ARGV[1], payload: "x" } }
      kept = []
      keep = proc do
        kept << one.produce_many_sync(messages)[rand(20_000)]
        GC.start
      end
      resident = -> { File.read("/proc/self/statm").split[1].to_i * 4096 }
      5.times(&keep)
      before = resident.call
      25.times(&keep)
      abort "not delivered" unless kept.all? { |handle| handle.report.offset }
      puts resident.call - before
    RUBY
    assert_operator output.to_i, :<, 15_000_000 # 25 times 20,000 deliveries take 52 MB
  end

  def test_200_producers_dropped_without_close_leak_no_threads_and_descriptors
    skip "no /proc here" unless File.directory?("/proc/self/task")
    drop_producers(5)
    before = settled_resources
    20.times { drop_producers(10) }
    eventually(20) do
      GC.start
      settled_resources.zip(before).all? { |after, earlier| after <= earlier + 2 }
    end
  end

  DROPPED = <<~'RUBY'
    require "weakref"
    SERVERS, TOPIC, COUNT = ARGV
    DROPPED = Queue.new
    def use_and_drop(number)
      kafka = { "bootstrap.servers": SERVERS }
      one = Penstock::Producer.new { |config| config.kafka = { **kafka, "linger.ms": 5 } }
      5.times { |i| one.produce_async(topic: TOPIC, payload: "#{number} #{i}", partition: 0, label: one.id) }
      reader = Penstock::Consumer.new { |config| config.kafka = { **kafka, "fetch.wait.max.ms": 20 } }
      reader.assign(TOPIC => { 0 => :beginning }).poll(timeout: (number % 20) / 1000.0)
      DROPPED << WeakRef.new(one) << WeakRef.new(reader)
    end
    def drop(numbers) = numbers.map { |number| Thread.new { use_and_drop(number) } }.each(&:join)
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    all = [*0...Integer(COUNT)]
    all.each_slice(50) do |numbers|
      drop(numbers)
      GC.start
      GC.compact if GC.respond_to?(:compact)
    end
    refs = Array.new(DROPPED.size) { DROPPED.pop }
    deadline = now + 30
    loop do # references to some may remain on a stack
      alive = refs.count(&:weakref_alive?)
      break if alive < refs.size / 50 && Internal::ProducerClient.open_count <= alive
      abort "#{alive} of #{refs.size} live, #{Internal::ProducerClient.open_count} clients are open" if now > deadline
      GC.start
      sleep 0.05
    end
    drop(all.map { |number| number + all.size }.first(20)) # these producers are still open when the process ends
    puts now
  RUBY

  # Each has messages in flight, which arrive.
  # defect 10
  def test_500_producers_and_500_consumers_dropped_without_close_are_destroyed_and_the_process_exits
    name = topic(partitions: 1)
    printed_at = ruby!(DROPPED, cluster.bootstrap_servers, name, "500", seconds: 110).to_f
    assert_took(10, now - printed_at)
    expected = [*0...520].product([*0...5]).map { |pair| pair.join(" ") }
    assert_equal expected.sort, Reader.new(cluster.bootstrap_servers).read(name).map(&:payload).sort
  end

  # defect 2
  def test_50_producers_that_cannot_connect_leak_no_threads_and_descriptors
    skip "no /proc here" unless File.directory?("/proc/self/task")
    fail_to_connect
    before = settled_resources
    50.times { fail_to_connect }
    GC.start
    eventually { settled_resources.zip(before).all? { |after, earlier| after <= earlier } }
    assert_equal 0, Internal::ProducerClient.open_count
  end

  # Runs in a separate process, so that all threads and descriptors belong to these producers.
  TRANSACTIONAL = <<~RUBY
    require "logger"
    def resources = %w[task fd].map { |what| Dir.children("/proc/self/\#{what}").size }
    def fail(id)
      producer = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": "127.0.0.1:1", "transactional.id": id.to_s, log_level: 0 }
        config.logger = Logger.new(nil)
        config.max_wait_timeout = 50
        config.max_attempts_on_transaction_command = 1
      end
      producer.transaction { abort "a transaction without a broker" }
    rescue Penstock::TransactionError => e
      producer.close if id.even?
      e.code
    end
    def fail_in_threads(ids)
      ids = ids.each_with_object(Queue.new) { |id, queue| queue << id }.close
      threads = Array.new(8) { Thread.new { codes = []; while (id = ids.pop) do codes << fail(id) end; codes } }
      threads.flat_map(&:value).tally
    end
    def left?(before)
      GC.start
      Internal::ProducerClient.open_count.positive? || Thread.list.size > 1 || resources.zip(before).any? { |now, earlier| now > earlier }
    end
    fail_in_threads(0...8)
    sleep 0.1 while left?([1_000, 1_000])
    sleep 4 # some Rubies keep a native thread for 3 seconds after its end
    before = resources
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 40
    codes = fail_in_threads(0...200)
    sleep 0.1 while (left = left?(before)) && Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline
    left &&= [before, resources, Internal::ProducerClient.open_count, Thread.list]
    p codes.to_a, left
  RUBY

  # defect 2
  def test_200_transactional_producers_that_cannot_initialize_leak_nothing
    skip "no /proc here" unless File.directory?("/proc/self/task")
    assert_equal "[[:timed_out, 200]]\nfalse\n", ruby!(TRANSACTIONAL, seconds: 100)
  end

  def test_a_producer_that_cannot_connect_leaves_no_dispatcher_thread
    threads = Thread.list
    fail_to_connect { |config| config.logger = Logger.new(nil) }
    eventually { (Thread.list - threads).empty? }
  end

  def test_embedded_clusters_dropped_without_close_leak_no_threads
    skip "no /proc here" unless File.directory?("/proc/self/task")
    before = settled_resources
    Array.new(5) { Penstock::EmbeddedCluster.new }.clear
    eventually(10) do
      GC.start
      settled_resources.first <= before.first + 2 # a reference to one may remain on the stack
    end
  end

  # ---- allocated without initialize, and copied ----

  def test_a_client_that_was_only_allocated_raises_in_every_method
    methods = Internal::ProducerClient.public_instance_methods(false)
    assert_includes methods, :produce
    methods.each do |method|
      arity = Internal::ProducerClient.instance_method(method).arity
      arguments = Array.new(arity.negative? ? 2 : arity) # the last of produce_many's three arguments is optional
      assert_raises(TypeError, method.to_s) { Internal::ProducerClient.allocate.public_send(method, *arguments) }
    end
  end

  def test_a_cluster_that_was_only_allocated_is_closed
    made = Class.instance_method(:allocate).bind_call(Penstock::EmbeddedCluster)
    assert_equal [true, nil], [made.closed?, made.close]
    assert_raises(Penstock::ProducerClosedError) { made.bootstrap_servers }
    assert_match(/closed/, made.inspect)
  end

  def test_a_poller_that_was_only_allocated_works
    made = Penstock::Poller.allocate
    assert_equal [0, false, "penstock.poller##{made.id}"], [made.count, made.alive?, made.name]
  end

  # Objects that cannot be copied: each class with native state by its name in the extension, with a block that creates one.
  NOT_COPYABLE = {
    producer_client: :client.to_proc,
    client_reference: ->(_) { Internal::ClientReference.new },
    admin_client: ->(_) { Penstock::Admin.new("bootstrap.servers": "127.0.0.1:1").instance_variable_get(:@client) },
    consumer: ->(_) { Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1" } } },
    consumer_set: ->(_) { Penstock::ConsumerSet.new },
    decoding_message: ->(_) { Penstock::Message.new(topic: "copied", payload: "{}", deserializer: :json) },
    ledger: ->(_) { Internal::Ledger.new },
    delivery_handle: ->(one) { one.produce_async(topic: "copied", payload: "x") },
    embedded_cluster: ->(_) { embedded_cluster },
    event_source: ->(one) { Internal.of(one).events },
    event_worker: ->(_) { Internal::EventWorker.new },
    poller: ->(_) { Penstock::Poller.new },
    shareable_producer: :shareable.to_proc,
    message: ->(one) { first_batch(one).first },
    batch: ->(one) { first_batch(one) },
    bearer: ->(_) { bearer },
    fiber_group: ->(one) { fiber_group(one) },
    producer: ->(one) { one } # not native, but it owns the others
  }.freeze

  COPIES = [:dup.to_proc, :clone.to_proc, ->(object) { object.clone(freeze: true) }, Marshal.method(:dump)].freeze

  NOT_COPYABLE.each do |name, make|
    # defect 4
    define_method("test_a_#{name}_cannot_be_copied_or_dumped") { assert_not_copied(instance_exec(producer, &make)) }
  end

  def test_every_native_class_is_in_the_copy_tests
    types = Dir[File.expand_path("../../ext/penstock/**/*.c", __dir__)].flat_map do |file|
      File.read(file).scan(/"Penstock::(?:Native::)?(\w+)",$/)
    end
    names = types.flatten.map { |type| type.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase.to_sym }
    exempt = %i[secret] # dup of a Secret returns itself (secret_test.rb)
    assert_equal names.sort - exempt, NOT_COPYABLE.keys.sort - [:producer]
  end

  def test_a_connection_pool_cannot_be_copied_or_dumped
    require "connection_pool"
    pool = Penstock::ConnectionPool.new { nil }
    assert_not_copied(pool)
    pool.shutdown
  rescue LoadError
    skip "needs the connection_pool gem"
  end

  # The error is a sentence.
  def test_a_producer_works_after_a_failed_copy
    one = producer
    error = assert_raises(TypeError) { one.dup }
    assert_match(/a Penstock::Producer cannot be copied: .* make another with new/, error.message)
    assert_match(/a Penstock::Producer cannot be dumped/, assert_raises(TypeError) { Marshal.dump(one) }.message)
    3.times { GC.start }
    assert_predicate one.produce_sync(topic:, payload: "x"), :persisted?
  end

  # These objects own no resources. The copy of a variant uses the same producer. The copy of a monitor or a middleware is
  # independent of the original.
  def test_copies_of_variants_reports_monitors_and_middleware_work
    one = producer
    variant = one.with(max_wait_timeout: 5_000)
    assert_equal [one, 5_000], [variant.dup, variant.clone].map { |copy| [copy.producer, copy.max_wait_timeout] }.uniq.flatten
    report = variant.dup.produce_sync(topic:, payload: "x", label: "label")
    [report.dup, report.clone, Marshal.load(Marshal.dump(report))].each do |copy|
      assert_equal [report.topic, report.offset, :persisted, "label"], [copy.topic, copy.offset, copy.status, copy.label]
    end
    monitor = one.monitor.dup.tap { |copy| copy.subscribe("message.acknowledged") { nil } }
    middleware = one.middleware.dup.append { |message| message }
    assert_equal [true, false, true, false],
                 [one.monitor.silent?, monitor.silent?, one.middleware.to_a.empty?, middleware.to_a.empty?]
  end

  def test_native_objects_cannot_be_created_directly
    assert_raises(TypeError, NoMethodError) { Penstock::DeliveryHandle.new }
    assert_raises(TypeError) { Penstock::DeliveryHandle.allocate }
    assert_raises(TypeError) do
      producer.client.send(:initialize, "id", {}, Penstock::Poller.instance, nil, 1, 1, 1, 1, 1, false, 1, nil, 0, true)
    end
  end

  private

  def assert_not_copied(object)
    COPIES.each { |copy| assert_raises(TypeError, object.class.to_s) { copy.call(object) } }
    3.times { GC.start } # a half-made copy that shared native memory would free it here
  end

  def first_batch(producer)
    name = topic(partitions: 1)
    producer.produce_sync(topic: name, payload: "x")
    consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers } }
    consumer.assign(name => { 0 => :beginning })
    eventually { consumer.poll_batch(timeout: 0.5).then { |batch| batch unless batch.empty? } }
  ensure
    consumer&.close
  end

  def bearer
    taken = Queue.new
    provider = Object.new
    provider.define_singleton_method(:on_oauthbearer_token_refresh) { |event| taken << event[:bearer] }
    one = unreachable_producer("security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER") do |config|
      config.oauth.token_provider_listener = provider
    end
    one.client.connect
    taken.pop
  end

  # The fiber group is hidden in a thread whose fibers wait. ObjectSpace finds it.
  def fiber_group(producer)
    Thread.new do
      Fiber.set_scheduler(PlainScheduler.new)
      found = nil
      Fiber.schedule do
        producer.produce_sync(topic:, payload: "x")
        found = ObjectSpace.each_object(Object).find { |one| ObjectSpace.dump(one).include?('"struct":"Penstock::FiberGroup"') }
      end
      Fiber.set_scheduler(nil)
      found
    end.value
  end

  # @return [Array(Integer, Integer)] threads and open files
  def settled_resources
    GC.start
    [Dir.children("/proc/self/task").size, Dir.children("/proc/self/fd").size]
  end

  # Uses a thread, because the GC treats every value on a stack that looks like a reference as one. The thread's stack disappears
  # with it.
  def drop_producers(count)
    Thread.new do
      count.times do
        Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers } }
                          .produce_async(topic: "dropped", payload: "x")
      end
    end.join
    nil
  end

  def fail_to_connect
    impossible = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": "127.0.0.1:1", "security.protocol": "ssl", "ssl.ca.location": __FILE__,
                       log_level: 0 }
      yield config if block_given?
    end
    2.times { assert_raises(Penstock::ConfigurationInvalidError) { impossible.produce_async(topic: "test", payload: "x") } }
    impossible.close
    nil
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/reader"
require_relative "../support/slow_calls"
require_relative "../support/each_once"
require "tmpdir"

class ForkTest < PenstockTest
  include EachOnce

  include FreshCluster
  include SlowCalls

  # behaviour: A child never touches the parent's clients
  slow def test_a_child_can_use_producers_that_its_parent_configured_used_or_closed
    name = topic(partitions: 1)
    configured, used, closed = Array.new(3) { producer }
    [used, closed].each { |one| one.produce_sync(topic: name, payload: "parent") }
    closed.close
    result = in_child do
      [configured, used].each { |one| one.produce_sync(topic: name, payload: "child") }
      error = error_class { closed.produce_sync(topic: name, payload: "x") }
      [configured.close.pending, used.close.pending, closed.closed?, closed.close.pending, error]
    end
    assert_equal [0, 0, true, 0, Penstock::ProducerClosedError], result
    assert_equal 4, used.produce_sync(topic: name, payload: "parent").offset
    assert_equal 5, configured.produce_sync(topic: name, payload: "parent").offset
  end

  slow def test_a_producer_keeps_its_settings_in_the_child
    one = producer("client.id": "mine", "message.timeout.ms": 3_000) { |config| config.id = "named" }
    dead = unreachable_producer("message.timeout.ms": 300)
    one.produce_sync(topic:, payload: "x")
    result = in_child do
      message = begin
        dead.produce_sync(topic: "test", payload: "x")
      rescue Penstock::MessageTimedOutError => e
        e.message
      end
      [one.id, message.include?("127.0.0.1:1"), message.include?(dead.id)]
    end
    assert_equal ["named", true, true], result
  end

  def test_parent_and_four_children_with_several_threads_each_deliver_every_message_once
    name = topic(partitions: 1)
    shared = Array.new(3) { producer }
    shared.first.produce_sync(topic: name, payload: "before")
    work = lambda do
      Array.new(4) do |i|
        Thread.new do
          50.times do
            shared[i % 3].produce_sync(topic: name, payload: "x", partition: 0)
          end
        end
      end.each(&:join)
      true
    end
    parent = Thread.new(&work)
    children = Array.new(4) { Thread.new { in_child { work.call && shared.map { |one| one.close.pending } } } }
    assert_equal [[0, 0, 0]] * 4, children.map(&:value)
    parent.join
    assert_equal 1 + (5 * 200), shared.first.produce_sync(topic: name, payload: "after", partition: 0).offset
  end

  # defect 8
  slow def test_a_child_of_a_child_delivers
    name = topic(partitions: 1)
    one = producer
    one.produce_sync(topic: name, payload: "parent")
    result = in_child do
      one.produce_sync(topic: name, payload: "child")
      below = in_child { one.produce_sync(topic: name, payload: "grandchild").offset.tap { one.close } }
      [below, one.produce_sync(topic: name, payload: "child").offset].tap { one.close }
    end
    assert_equal [2, 3], result
    assert_equal 4, one.produce_sync(topic: name, payload: "parent").offset
  end

  # defect 7
  # behaviour: A child never touches the parent's clients
  def test_an_idle_child_exits_cleanly_in_every_way_and_does_not_affect_its_parent
    name = topic(partitions: 1)
    ruby!(<<~RUBY, cluster.bootstrap_servers, name)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0], "linger.ms": 250 } }
      handles = Array.new(10) { producer.produce_async(topic: ARGV[1], payload: "x", partition: 0) }
      endings = [
        [0, -> {}], [3, -> { exit 3 }], [4, -> { exit!(4) }], [1, -> { $stderr.reopen(IO::NULL); raise "uncaught" }],
        [0, -> { handles.clear; producer = nil; 3.times { GC.start } }], [0, -> { GC.compact if GC.respond_to?(:compact) }]
      ]
      endings.each do |code, ending|
        Process.wait(fork(&ending))
        abort "a child ended with \#{$?}" unless $?.exitstatus == code
      end
      reports = (handles + [producer.produce_async(topic: ARGV[1], payload: "last", partition: 0)]).map(&:wait)
      abort "offsets \#{reports.map(&:offset)}" unless reports.map(&:offset) == (0..10).to_a
    RUBY
  end

  def test_messages_in_flight_at_a_fork_are_delivered_once_by_the_parent
    name = topic(partitions: 1)
    one = producer("linger.ms": 250)
    handles = one.produce_many_async(Array.new(20) { { topic: name, payload: "x" } })
    assert_equal [0, 0, 0], in_child { [one.queue_size, one.flush ? 0 : 1, one.close.delivered] }
    assert_equal (0...20).to_a, handles.map { |handle| handle.wait.offset }
  end

  def test_waiting_in_the_child_for_a_message_of_the_parent_raises_at_once
    one, settled, pending = producer_with_settled_and_pending_handles
    result = in_child do
      error = begin
        pending.wait
      rescue Penstock::ForkedError => e
        e.message
      end
      [settled.wait.offset, settled.label, settled.pending?, pending.pending?, pending.report, pending.error, error]
    end
    assert_equal [0, :mine, false, true, nil, nil], result[0..5]
    assert_match(/forked/, result[6])
    one.close(timeout: 0)
  end

  def test_waiting_in_the_child_for_a_partly_settled_batch_of_the_parent_raises_at_once
    slow = own_cluster(brokers: 2)
    name = topic(on: slow, partitions: 2)
    2.times { |i| slow.move_leader(name, i, i + 1) }
    one = producer(servers: slow.bootstrap_servers)
    2.times { |partition| one.produce_sync(topic: name, payload: "x", partition:) }
    slow.set_round_trip_time(seconds: 60, broker: 2)
    handles = one.produce_many_async(Array.new(2) { |partition| { topic: name, payload: "x", partition: } })
    eventually { handles.map(&:pending?) == [false, true] }
    assert_equal Penstock::ForkedError, in_child { error_class { Penstock::DeliveryHandle.await_all(handles, timeout: 1) } }
  ensure
    one&.close(timeout: 0)
  end

  { wait: "handle.wait", wait_for_room: "producer.produce_async(topic: 'test', payload: 'x')" }.each do |name, call|
    define_method("test_a_#{name}_interrupted_by_a_fork_in_a_signal_handler_raises_in_the_child") do
      assert_equal "Penstock::ForkedError", ruby!(<<~RUBY, seconds: 15)
        producer = Penstock::Producer.new do |config|
          config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0, "queue.buffering.max.messages": 1 }
          config.wait_timeout_on_queue_full = nil
        end
        handle = producer.produce_async(topic: "test", payload: "x")
        trap("USR1") { fork ? exit!(Process.wait2.last.success?) : Thread.new { sleep(10) && exit!(1) } }
        main = Thread.current
        Thread.new { sleep 0.01 until main.stop?; Process.kill("USR1", Process.pid) }
        begin
          #{call}
        rescue StandardError => e
          $stdout.write(e.class)
          $stdout.flush
          exit!(0)
        end
      RUBY
    end
  end

  def test_the_poller_of_a_child_is_a_new_thread_with_statistics_of_its_own
    dedicated = Penstock::Poller.new
    one = producer("linger.ms": 0) { |config| config.polling.poller = dedicated } # no flusher
    5.times { one.produce_sync(topic:, payload: "x") }
    # A caller that waits takes its delivery results itself, so it may be done before the poller's thread has begun.
    before = eventually { dedicated.stats.then { |stats| stats if stats[:thread_id] } }
    result = in_child do
      unused = dedicated.stats
      one.produce_sync(topic: "child", payload: "x")
      eventually { dedicated.alive? && native_threads.any? }
      used = dedicated.stats.merge(threads: native_threads.size)
      one.close
      [unused.slice(:clients, :messages, :starts, :thread_id), used, eventually { !dedicated.alive? }]
    end
    assert_equal [{ clients: 0, messages: 0, starts: 0, thread_id: nil }, true], result.values_at(0, 2)
    assert_equal({ clients: 1, messages: 1, starts: 1, threads: 1 }, result[1].slice(:clients, :messages, :starts, :threads))
    refute_equal before[:thread_id], result[1][:thread_id]
    assert_equal before[:thread_id], dedicated.stats[:thread_id]
    assert_equal 5, dedicated.stats[:messages]
  end

  def test_the_parents_embedded_cluster_raises_in_the_child_and_keeps_running
    shared = embedded_cluster
    servers = shared.bootstrap_servers
    result = in_child do
      [error_class { shared.bootstrap_servers }, error_class { shared.create_topic("child") }, shared.close, servers]
    end
    assert_equal [Penstock::ForkedError, Penstock::ForkedError, nil, servers], result
    producer(servers:).produce_sync(topic: topic(on: shared), payload: "x")
  end

  def test_a_child_can_start_an_embedded_cluster_of_its_own
    result = in_child do
      own = Penstock::EmbeddedCluster.new
      one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": own.bootstrap_servers } }
      one.produce_sync(topic: "child", payload: "x").offset.tap { [one, own].each(&:close) }
    end
    assert_equal 0, result
  end

  # defect 8
  def test_a_producers_logger_gets_lines_in_the_child
    lines = StringIO.new
    one = unreachable_producer { |config| config.logger = Logger.new(lines) }
    one.produce_async(topic: "test", payload: "x")
    eventually { lines.string.include?(one.id) }
    assert in_child {
      lines.truncate(0)
      one.produce_async(topic: "test", payload: "x")
      eventually { lines.string.include?(one.id) }.tap { one.close(timeout: 0) }
    }
    one.close(timeout: 0)
  end

  def test_a_daemon_created_by_forking_twice_delivers
    name = topic(partitions: 1)
    program = <<~RUBY
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      producer.produce_sync(topic: ARGV[1], payload: "before", partition: 0)
      RUBY_DAEMON
      producer.produce_async(topic: ARGV[1], payload: "daemon", partition: 0)
    RUBY
    ["Process.daemon(true, true)", "exit if fork; Process.setsid; exit if fork"].each do |daemon|
      ruby!(program.sub("RUBY_DAEMON", daemon), cluster.bootstrap_servers, name)
    end
    probe = producer
    sent = 0 # by this probe
    eventually(10) { probe.produce_sync(topic: name, payload: "probe", partition: 0).offset == 4 + (sent += 1) - 1 }
  end

  INHERITED = <<~'RUBY'
    inherited = -> { `ls -l /proc/self/fd`.scan(/ (\d+) -> (?:pipe|anon_inode)/).flatten.map(&:to_i).select { |fd| fd > 2 } }
    before = inherited.call
    cluster = Penstock::EmbeddedCluster.new(brokers: 3)
    cluster.create_topic("t", partitions: 3)
    servers = cluster.bootstrap_servers.split(",").first # the others are found out later
    producer = Penstock::Producer.new("bootstrap.servers": servers)
    producer.produce_many_sync(Array.new(9) { |i| { topic: "t", partition: i % 3, payload: "x" } })
    consumer = Penstock::Consumer.new("bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest")
    read = 0
    consumer.assign("t" => { 0 => 0, 1 => 0, 2 => 0 }).each { break if (read += 1) == 9 }
    Penstock::Admin.new("bootstrap.servers": servers).cluster
    # The threads of the other brokers, which mark their pipes, may be about to begin.
    1_000.times { (inherited.call - before).empty? ? break : sleep(0.01) }
    p inherited.call - before
  RUBY

  def test_programs_that_the_process_starts_inherit_no_pipes_of_librdkafka
    skip "only Linux tells which pipes are librdkafka's" unless RUBY_PLATFORM.include?("linux")
    assert_equal "[]", ruby!(INHERITED).strip
  end

  # As docs/forking.md says.
  def test_what_is_flushed_before_the_process_becomes_another_is_delivered
    ["Process.daemon(true, true)", "exec(\"true\")", "exit!(true)"].each do |becoming|
      name = topic(partitions: 1)
      ruby!(<<~RUBY, cluster.bootstrap_servers, name)
        producer = Penstock::Producer.new("bootstrap.servers": ARGV[0], "linger.ms": 60_000)
        50.times { producer.produce_async(topic: ARGV[1], payload: "x") }
        producer.buffer(topic: ARGV[1], payload: "x")
        producer.flush_sync
        producer.flush
        #{becoming}
      RUBY
      assert_equal 51, Reader.new(cluster.bootstrap_servers).read(name).size
    end
  end

  def test_running_other_programs_does_not_disturb_a_producer
    name = topic(partitions: 1)
    one = producer("linger.ms": 50)
    handles = Array.new(20) do
      one.produce_async(topic: name, payload: "x").tap do
        system("true", exception: true)
        assert_equal "x\n", `echo x`
        Process.wait(spawn("true"))
      end
    end
    assert_equal (0...20).to_a, handles.map { |handle| handle.wait.offset }
  end

  # The threads do not open producers or start native threads that use OpenSSL for the first time: see decision 0014.
  slow def test_children_forked_while_threads_produce_work
    stop = false
    busy = producer("linger.ms": 0)
    busy.produce_sync(topic: "fork-noise", payload: "x")
    batch = Array.new(200) { { topic: "fork-noise", payload: "x" } }
    threads = [
      -> { busy.produce_sync(batch.first) },
      -> { busy.produce_many_sync(batch) },
      -> { busy.produce_async(batch.first).wait }
    ]
    threads.map! { |work| Thread.new { work.call until stop } }
    name = topic(partitions: 1)
    shared = producer
    30.times do
      pending = in_child(5) do
        shared.produce_sync(topic: name, payload: "x", partition: 0)
        shared.close(timeout: 4).pending
      end
      assert_equal 0, pending
    end
    assert_equal 30, shared.produce_sync(topic: name, payload: "x", partition: 0).offset
  ensure
    stop = true
    threads&.each(&:join)
  end

  # ---- the layers above the client ----

  slow def test_parent_and_four_children_send_through_every_layer_and_each_message_arrives_once
    name = topic(partitions: 1)
    layers = layers_used_before_the_fork(name)
    children = Array.new(4) { |i| Thread.new { in_child(40) { send_through(layers, "child#{i}", name) } } }
    parent = Thread.new { send_through(layers, "parent", name) }
    assert_equal [true] * 5, [*children, parent].map(&:value)
    payloads = Reader.new(cluster.bootstrap_servers).read(name).map(&:payload).grep_v(/before/)
    assert_each_once(payloads.uniq, payloads, ordered: false)
    assert_equal 5 * layers.size * 2 * 20, payloads.size
  ensure
    @pool&.shutdown(timeout: 5)
  end

  def test_a_child_does_not_send_its_parents_buffer_and_loses_none_of_its_own_messages
    name = topic(partitions: 1)
    one = producer
    one.buffer(topic: name, payload: "parent")
    result = in_child do
      gate = Queue.new
      threads = Array.new(8) { |i| Thread.new { gate.pop && one.buffer(topic: name, payload: "child #{i}") } }
      8.times { gate << true }
      threads.each(&:join)
      [one.messages.size, one.flush_sync.size, one.close.complete?]
    end
    assert_equal [8, 8, true], result
    assert_equal 1, one.messages.size
    assert_equal 8, one.flush_sync.first.report.offset
  end

  def test_a_child_forked_during_a_flush_or_transaction_of_another_thread_is_not_blocked
    name = topic(partitions: 1)
    one = unreachable_producer
    one.buffer(topic: name, payload: "parent")
    flushing = Thread.new do
      one.flush_sync
    rescue Penstock::ProduceManyError
      nil
    end
    busy = producer("transactional.id": "tx-#{rand(2**32)}")
    leave = Queue.new
    transaction = Thread.new { busy.transaction { leave.pop } }
    eventually { one.queue_size == 1 && leave.num_waiting == 1 && flushing.stop? }
    result = in_child do
      one.buffer(topic: name, payload: "child")
      sent = begin
        one.with(max_wait_timeout: 100).flush_sync
      rescue Penstock::WaitTimeoutError
        :handed_over
      end
      [sent, one.close(timeout: 0).purged, busy.transaction?, busy.disconnectable?, busy.close(timeout: 5).to_a]
    end
    assert_equal [:handed_over, 1, false, true, [0] * 6], result
    leave << true
    transaction.join
    one.close(timeout: 0)
    flushing.join
  end

  # behaviour: ProducerUsedInParentProcess
  # behaviour: A child never touches the parent's clients
  def test_a_transactional_producer_used_before_the_fork_raises_in_the_child
    name = topic(partitions: 1)
    one = producer("transactional.id": "tx-#{rand(2**32)}")
    one.produce_sync(topic: name, payload: "x")
    errors = in_child do
      message = { topic: name, payload: "x" }
      [-> { one.transaction { one.produce_async(message) } }, -> { one.produce_sync(message) },
       -> { one.produce_many_async([message]) }, -> { one.buffer(message) && one.flush_sync }].map { |call| error_class(&call) }
    end
    assert_equal [Penstock::ForkedError] * 4, errors
    assert_predicate one.produce_sync(topic: name, payload: "x"), :persisted?
  end

  def test_the_first_transactions_of_a_childs_threads_take_turns
    name = topic(partitions: 1)
    one = producer("transactional.id": "tx-#{rand(2**32)}")
    result = in_child do
      inside = 0
      most = 0
      gate = Queue.new
      threads = Array.new(8) do
        Thread.new do
          gate.pop
          one.transaction do
            most = [most, inside += 1].max
            one.produce_sync(topic: name, payload: "x")
            inside -= 1
          end
        end
      end
      8.times { gate << true }
      threads.each(&:join)
      [most, one.close.complete?]
    end
    assert_equal [1, true], result
  end

  slow def test_a_child_can_create_variants_disconnect_purge_and_close
    name = topic(partitions: 1)
    one = producer
    variant = one.with(topic_config: { acks: 1 })
    2.times { variant.produce_sync(topic: name, payload: "x") }
    one.produce_sync(topic: name, payload: "x")
    result = in_child do
      senders = [variant, one, one.with(topic_config: { acks: "all" })]
      offsets = senders.map { |sender| sender.produce_sync(topic: name, payload: "x").offset }
      [offsets, one.purge, one.disconnect, one.status.to_sym, variant.produce_sync(topic: name, payload: "x").offset,
       one.close.complete?, Internal::ProducerClient.open_count]
    end
    assert_equal [[3, 4, 5], 0, true, :disconnected, 6, true, 0], result
    assert_equal 7, variant.produce_sync(topic: name, payload: "x").offset
  end

  # Producers of all kinds, used before the fork. `every_lock` returns every Mutex of theirs and of Penstock's modules by name.
  # `live` uses all producers and forks again.
  EVERY_LOCK = <<~RUBY.freeze
    require "logger"
    require #{File.expand_path("../support/limited", __dir__).dump}
    begin
      require "connection_pool"
    rescue LoadError
      nil
    end
    SERVERS, TOPIC = ARGV
    MESSAGE = { topic: TOPIC, payload: "x", partition: 0 }.freeze
    def producer(servers = SERVERS, **kafka)
      Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": servers, "linger.ms": 0, log_level: 0, "enable.idempotence": false, **kafka }
        yield config if block_given?
      end
    end
    class Output
      def count(*) = nil
      alias gauge count
      alias histogram count
    end
    class Provider
      def asked = (@asked ||= Hash.new(0))
      def on_oauthbearer_token_refresh(event) = asked[Process.pid] += 1
    end

    PROVIDER = Provider.new
    ONE = producer(debug: "broker", log_level: 7) do |config|
      config.logger = Logger.new(File::NULL)
      config.idle_disconnect_timeout = 60_000
    end
    TOKENS = producer("127.0.0.1:1", "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER") do |config|
      config.oauth.token_provider_listener = PROVIDER
    end
    POOL = defined?(::ConnectionPool) && Penstock::ConnectionPool.setup(size: 1) do |config|
      config.kafka = { "bootstrap.servers": SERVERS, "linger.ms": 0, "enable.idempotence": false }
    end
    WATCHED = Penstock::Consumer.new("bootstrap.servers": SERVERS) { |config| config.stuck_after = 60_000 }
    STATSD = Penstock::Listeners::Statsd.new(client: Output.new)
    [STATSD, Penstock::Listeners::Prometheus.new].each { |listener| ONE.monitor.subscribe(listener) }
    ACKNOWLEDGED = Hash.new(0)
    ONE.monitor.subscribe("message.acknowledged") { ACKNOWLEDGED[Process.pid] += 1 }

    def await(what, seconds = 80)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      sleep 0.005 until yield || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      yield or raise what
    end

    def live(generations, &within)
      ONE.with(topic_config: { acks: 1 }).produce_sync(MESSAGE)
      ONE.around { |sending| sending.call }
      ONE.middleware.append { |message| message }
      ONE.monitor.subscribe("producer.closing") { nil }
      Penstock.monitor.subscribe("producer.closing") { nil }
      ONE.tags.add(:child)
      ONE.produce_sync(MESSAGE)
      ONE.buffer(MESSAGE)
      ONE.flush_sync
      await("no event was published") { ACKNOWLEDGED[Process.pid] >= 3 }
      TOKENS.client.connect
      await("no token was requested") { PROVIDER.asked[Process.pid].positive? }
      POOL && Penstock::ConnectionPool.with { |lent| lent.produce_sync(MESSAGE) }
      yield if within
      child { live(generations - 1) } if generations.positive?
      TOKENS.close(timeout: 0)
      Penstock::ConnectionPool.shutdown if POOL
      ONE.close(timeout: 10).complete? or raise "some messages were not delivered"
    end

    # Runs the block in a child, which must exit with status 0 in time.
    def child(what = nil)
      pid = fork do
        yield
        exit!(0)
      rescue Exception => e
        warn "\#{what}: \#{e.full_message(highlight: false)}"
        exit!(1)
      end
      watch = Process.detach(pid)
      trouble = Limited.wait(watch, 30) and raise "a child of \#{what} \#{trouble}"
      watch.value.success? or raise "a child of \#{what} has failed"
    end

    # @return [Array<Array(String, Mutex)>] the locks of an object and of the objects that belong to it
    def locks_of(object, name, seen = {}.compare_by_identity)
      return [] if seen[object]

      seen[object] = true
      object.instance_variables.flat_map do |variable|
        value = object.instance_variable_get(variable)
        next [["\#{name}\#{variable}", value]] if value.is_a?(Thread::Mutex)

        values = value.is_a?(Hash) ? value.values : [value]
        values.select { |one| one.class.name.to_s.start_with?("Penstock") }.flat_map { |one| locks_of(one, one.class.name, seen) }
      end
    end

    def every_lock
      modules = [Internal::EventDispatcher, Internal::LogDispatcher, Internal::TokenRefresher, Penstock::ConnectionPool,
                 Penstock::Producer.const_get(:IdleDisconnector)]
      objects = [ONE, WATCHED, STATSD, Penstock.monitor, Penstock::ConnectionPool.default_pool].compact
      modules.flat_map { |one| locks_of(one, "\#{one.name}.") } + objects.flat_map { |one| locks_of(one, one.class.name) }
    end
  RUBY

  # OpenSSL holds a lock while it seeds, which no thread of the child could unlock. Here it seeds in a child, which must not go on
  # with its parent's numbers. Since librdkafka 2.13 each of its threads draws random numbers.
  slow def test_a_fork_waits_for_a_thread_that_seeds_random_numbers_so_that_the_child_can_open_clients
    Dir.mktmpdir do |directory|
      seeding = File.join(directory, "seeding")
      slow!(<<~RUBY, cluster.bootstrap_servers, topic(partitions: 1), seeding, entropy: seeding, entropy_ms: 300)
        SERVERS, TOPIC, SEEDING = ARGV
        def deliver
          one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": SERVERS, "linger.ms": 0 } }
          one.produce_sync(topic: TOPIC, payload: "x")
          one.close
        end
        def await(child) = Process.wait2(child).last.success? || raise("the child has failed")
        deliver
        File.delete(SEEDING) if File.exist?(SEEDING)
        await(fork do
          delivering = Thread.new { deliver }
          sleep 0.001 until File.exist?(SEEDING) || !delivering.alive?
          children = []
          while delivering.alive?
            children << fork { deliver }
            sleep 0.1
          end
          children.each { |child| await(child) }
          delivering.join
        end)
      RUBY
    end
  end

  # Ruby unlocks mutexes of threads that do not exist in the child. This shows that nothing else waits for those threads.
  # defect 8
  slow def test_children_forked_while_a_thread_holds_each_ruby_mutex_work_fork_and_exit_cleanly
    names = ruby!(EVERY_LOCK + <<~RUBY, cluster.bootstrap_servers, topic(partitions: 1), seconds: 100).lines(chomp: true)
      ONE.produce_sync(MESSAGE)
      TOKENS.client.connect
      POOL && Penstock::ConnectionPool.with { |lent| lent.produce_sync(MESSAGE) }
      await("no event was published") { ACKNOWLEDGED[Process.pid] == 1 }
      every_lock.each do |name, lock|
        held = Queue.new
        release = Queue.new
        thread = Thread.new { lock.synchronize { (held << true) && release.pop } }
        held.pop
        child(name) { live(name.hash % 4 == 0 ? 1 : 0) }
        release << true
        thread.join
        puts name.delete_prefix("Penstock::")
      end
      child("all") { live(1) }
      TOKENS.close(timeout: 0)
      Penstock::ConnectionPool.shutdown if POOL
      ONE.close
    RUBY
    names << "ConnectionPool@lock" # without the gem there is no pool
    assert_equal mutexes, names.uniq.size
  end

  # @return [Integer] places in lib/ that create a Mutex, except in the clients that use no Kafka
  def mutexes
    root = File.expand_path("../../lib/penstock", __dir__)
    files = Dir["#{root}/**/*.rb"] - %w[dummy in_memory_consumer].map { |name| "#{root}/testing/clients/#{name}.rb" }
    files.sum { |file| File.read(file).scan(/^ *@\w+ = Mutex\.new$/).size } # without the lock that a fork replaces
  end

  # Ruby does not unlock mutexes of the thread that forks.
  # defect 8
  slow def test_children_forked_inside_a_listener_a_logger_and_a_hook_work_and_exit_cleanly
    ruby!(EVERY_LOCK + <<~RUBY, cluster.bootstrap_servers, topic(partitions: 1), seconds: 100)
      results = Queue.new
      forking = {}
      inside = lambda do |place|
        next if forking[place]

        forking[place] = true
        results << [place, child(place) { live(1) }]
      rescue StandardError => e
        results << [place, e.message]
      end
      ONE.monitor.subscribe("message.acknowledged") { inside.call(:listener) }
      ONE.config.logger.define_singleton_method(:add) { |*arguments| super(*arguments).tap { inside.call(:logger) } }
      ONE.around do |sending|
        inside.call(:before)
        sending.call.tap { inside.call(:after) }
      end
      ONE.middleware.append { |message| message.tap { inside.call(:middleware) } }
      PROVIDER.define_singleton_method(:on_oauthbearer_token_refresh) { |event| super(event).tap { inside.call(:provider) } }
      ONE.produce_sync(MESSAGE)
      TOKENS.client.connect
      found = Array.new(6) { results.pop }
      wrong = found.reject { |_, result| result == true }
      abort wrong.inspect unless wrong.empty?
      TOKENS.close(timeout: 0)
      ONE.close
    RUBY
  end

  private

  # @return [Hash{Symbol=>Proc}] blocks that send a batch and wait for its delivery results
  def layers_used_before_the_fork(name)
    configured, used, buffering, varied, idle = Array.new(5) do
      producer { |config| config.idle_disconnect_timeout = 30_000 if rand < 0.5 }
    end
    variant = varied.with(topic_config: { acks: 1 })
    [used, buffering, variant, idle].each { |one| one.produce_sync(topic: name, payload: "before", partition: 0) }
    idle.disconnect
    buffering.buffer(topic: name, payload: "before, and the parent's", partition: 0)
    {
      configured: ->(batch) { configured.produce_many_sync(batch) },
      used: ->(batch) { used.produce_async(batch.first).wait },
      buffer: ->(batch) { buffering.buffer_many(batch) && buffering.flush_sync },
      variant: ->(batch) { variant.produce_sync(batch.first) },
      disconnected: ->(batch) { idle.produce_sync(batch.first) },
      pool: pool_used_before_the_fork(name)
    }.compact
  end

  # @return [Proc, nil] nil if the gem is not installed
  def pool_used_before_the_fork(name)
    servers = cluster.bootstrap_servers
    @pool = pool = Penstock::ConnectionPool.new(size: 2, timeout: 20) do |config, index|
      config.kafka = { "bootstrap.servers": servers, "transactional.id": "fork-#{Process.pid}-#{index}" }
    end
    pool.with { |one| one.produce_sync(topic: name, payload: "before", partition: 0) }
    ->(batch) { pool.transaction { |one| one.produce_many_sync(batch) } }
  rescue LoadError
    nil
  end

  # Sends with two threads for each layer.
  def send_through(layers, process, topic)
    threads = layers.to_a.product([0, 1]).map do |(layer, send), number|
      Thread.new { 20.times { |i| send.call([{ topic:, payload: "#{process} #{layer} #{number} #{i}", partition: 0 }]) } }
    end
    threads.each(&:join)
    true
  end

  # @return [Class, nil] the class of the error that the block raises
  def error_class
    yield
    nil
  rescue StandardError => e
    e.class
  end

  def producer_with_settled_and_pending_handles
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    one = producer(servers: slow.bootstrap_servers)
    settled = one.produce_async(topic: name, payload: "x", label: :mine).tap(&:wait)
    slow.set_round_trip_time(seconds: 60)
    [one, settled, one.produce_async(topic: name, payload: "x")]
  end
end

# frozen_string_literal: true

require_relative "../test_helper"

class PollerTest < PenstockTest
  slow(/threads_and_descriptors_that_are_documented/)

  COUNTERS = %i[wakeups drains events messages slices_cut sweeps missed_wakeups starts].freeze

  # ---- which poller ----

  def test_the_default_instance_is_one_frozen_shareable_object
    default = Penstock::Poller.instance
    assert_same default, Penstock::Poller.instance
    assert_predicate default, :frozen?
    assert Ractor.shareable?(default)
    assert_equal 0, default.id
    assert_equal "penstock.poller#0", default.name
  end

  def test_dedicated_pollers_have_increasing_ids_and_can_be_made_shareable
    first, second = Array.new(2) { Penstock::Poller.new }
    assert_operator second.id, :>, first.id
    assert_operator first.id, :>, 0
    assert_equal "penstock.poller##{second.id}", second.name
    assert Ractor.shareable?(Ractor.make_shareable(first))
  end

  # behaviour: polling.poller
  def test_a_producer_uses_the_default_poller_unless_configured_otherwise
    dedicated = Penstock::Poller.new
    default_before = Penstock::Poller.instance.stats[:messages]
    special = producer { |config| config.polling.poller = dedicated }
    [special, producer].each { |one| one.produce_sync(topic:, payload: "x") }
    assert_equal [1, 1], [dedicated.count, Penstock::Poller.instance.count]
    assert_equal [1, default_before + 1], [dedicated, Penstock::Poller.instance].map { |poller| poller.stats[:messages] }
    assert_match(/clients=1/, dedicated.inspect)
  end

  # behaviour: polling.poller
  def test_an_object_that_is_no_poller_is_rejected_by_name
    [Object.new, :default, Penstock::Poller].each do |wrong|
      error = assert_raises(Penstock::ConfigurationInvalidError) { producer { |config| config.polling.poller = wrong } }
      assert_match(/polling\.poller/, error.message)
    end
  end

  # ---- its thread ----

  def test_the_thread_starts_with_the_first_client_stops_with_the_last_and_starts_again
    poller = Penstock::Poller.new
    2.times do |round|
      refute_predicate poller, :alive?
      clients = Array.new(3) { producer { |config| config.polling.poller = poller } }
      refute_predicate poller, :alive?, "configuring must not connect"
      clients.each { |one| one.produce_sync(topic: "poller", payload: "x") }
      assert_equal [true, round + 1, 3], [poller.alive?, poller.stats[:starts], poller.count]
      clients.first(2).each(&:close)
      assert_equal [true, 1], [poller.alive?, poller.count]
      clients.last.close
      eventually { !poller.alive? }
      assert_equal 0, poller.count
    end
  end

  def test_the_native_thread_has_the_first_15_characters_of_the_name
    skip "no /proc here" unless File.directory?("/proc/self/task")
    producer.produce_sync(topic:, payload: "x")
    eventually { Penstock::Poller.instance.stats[:thread_id] } # the caller itself may poll before the thread has begun
    thread = Penstock::Poller.instance.stats[:thread_id]
    assert_equal "penstock.poller", File.read("/proc/self/task/#{thread}/comm").chomp
  end

  # ---- the cost of a client ----

  COSTS = <<~'RUBY'
    SERVERS, TOPIC, KIND, *EXPECTED = ARGV
    PARTITIONS = [*0...Integer(EXPECTED.shift)]
    def producer
      one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": SERVERS, "linger.ms": 0 } } # no flusher
      PARTITIONS.each { |partition| one.produce_sync(topic: TOPIC, payload: "x", partition:) }
      one
    end
    def consumer
      one = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": SERVERS, "fetch.wait.max.ms": 20 } }
      one.assign(TOPIC => PARTITIONS.to_h { |partition| [partition, :beginning] })
      seen = []
      seen |= [one.poll(timeout: 1)&.partition].compact until seen.size == PARTITIONS.size
      one
    end
    def held = [Dir.children("/proc/self/task").size, Dir.children("/proc/self/fd").size]
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    expected = EXPECTED.map { |number| Integer(number) * 4 }
    $kept = [producer, send(KIND)] # together with what a process has once
    sleep 0.5
    before = held
    $kept.concat(Array.new(4) { send(KIND) })
    deadline = now + 10
    sleep 0.05 until (more = held.zip(before).map { |after, once| after - once }) == expected || now > deadline
    print more.map { |number| number / 4.0 }.join(" ")
  RUBY

  # The numbers come from docs/waiting.md, for the librdkafka version that it names.
  %w[producer consumer].product([1, 3]).each do |kind, brokers|
    # defect 34
    define_method("test_a_#{kind}_costs_the_threads_and_descriptors_that_are_documented_with_#{brokers}_brokers") do
      skip "no /proc here" unless File.directory?("/proc/self/task")
      documented = documented_costs(kind).map { |row| row.fetch(brokers) }
      own = own_cluster(brokers:)
      own.create_topic("used", partitions: brokers)
      brokers.times { |partition| own.move_leader("used", partition, partition + 1) }
      filling = producer(servers: own.bootstrap_servers)
      brokers.times { |partition| filling.produce_sync(topic: "used", payload: "x", partition:) }
      costs = ruby!(COSTS, own.bootstrap_servers, "used", kind, brokers.to_s, *documented.map(&:to_s),
                    seconds: 60).split.map(&:to_f)
      next assert_equal documented, costs if Penstock.librdkafka_version.start_with?("2.0.")

      costs.zip(documented).each { |cost, limit| assert_operator cost, :<=, limit }
    end
  end

  # @return [Array<Hash{Integer => Integer}>] threads and descriptors, by brokers
  def documented_costs(kind)
    page = File.read(File.expand_path("../../docs/waiting.md", __dir__))
    table = page[/^\| each [^|]*#{kind}[^|]* \| with 1 broker \| with 3 brokers \|\n(?:\|.*\n)+/]
    %w[threads descriptors].map { |what| [1, 3].zip(table[/^\| #{what}.*/].scan(/\| (\d+) /).flatten.map(&:to_i)).to_h }
  end

  # defect 34
  def test_25_producers_share_one_native_thread_and_need_no_ruby_thread
    ruby_threads = Thread.list.size
    producers = Array.new(25) { producer("linger.ms": 0) }
    producers.map { |one| one.produce_async(topic: "shared", payload: "x") }.each(&:wait)
    assert_equal [25, 1, ruby_threads], [Penstock::Poller.instance.count, native_threads.size, Thread.list.size]
  end

  alone slow def test_an_idle_poller_uses_next_to_no_processor_time
    producers = Array.new(25) { producer }
    producers.map { |one| one.produce_async(topic: "shared", payload: "x") }.each(&:wait)
    before = Penstock::Poller.instance.stats
    sleep 1
    after = Penstock::Poller.instance.stats
    assert_operator after[:cpu_seconds] - before[:cpu_seconds], :<, 0.02
    assert_operator after[:wakeups] - before[:wakeups], :<, 25
  end

  # ---- its statistics ----

  def test_stats_has_its_keys_and_counts_the_pollers_work
    poller = Penstock::Poller.new
    assert_equal (COUNTERS + %i[clients cpu_seconds thread_id]).sort, poller.stats.keys.sort
    assert_equal [0], poller.stats.values_at(:clients, *COUNTERS).uniq
    assert_nil poller.stats[:thread_id]

    one = producer { |config| config.polling.poller = poller }
    10.times do
      handle = one.produce_async(topic:, payload: "x")
      eventually { !handle.pending? } # a thread that waits would serve the client itself, without the poller's thread
    end
    stats = poller.stats
    assert_equal [10, 1, 1, 0], stats.values_at(:messages, :clients, :starts, :missed_wakeups)
    %i[wakeups drains events].each { |counter| assert_operator stats[counter], :>=, 10, counter }
    assert_operator stats[:cpu_seconds], :>, 0
    assert_kind_of Integer, stats[:thread_id]
  end

  # behaviour: polling.fd.periodic_poll_interval
  def test_the_sweep_runs_at_the_interval_of_the_most_impatient_producer
    poller = Penstock::Poller.new
    [5_000, 100].each do |interval|
      one = producer do |config|
        config.polling.poller = poller
        config.polling.fd.periodic_poll_interval = interval
      end
      one.produce_sync(topic:, payload: "x")
    end
    before = poller.stats[:sweeps]
    eventually(3) { poller.stats[:sweeps] >= before + 5 }
    assert_equal 0, poller.stats[:missed_wakeups]
  end

  # ---- time slices ----

  # defect 17
  # behaviour: polling.fd.max_time
  slow def test_max_time_limits_the_drains_of_a_busy_producer_and_no_message_is_lost
    poller = Penstock::Poller.new
    busy = Array.new(2) do
      # One report has up to 100,000 messages, which take longer than 1 ms to settle.
      producer("batch.num.messages": 100_000, "linger.ms": 1_000, "queue.buffering.max.messages": 200_000) do |config|
        config.polling.poller = poller
        config.polling.fd.max_time = 1
      end
    end
    other = producer { |config| config.polling.poller = poller }
    names = busy.map { topic(partitions: 1) }
    handles = busy.zip(names).map do |one, name|
      one.produce_many_async(Array.new(100_000) { { topic: name, payload: "" } })
    end
    3.times { other.produce_sync(topic: "other", payload: "x") } while handles.any? { |list| list.last.pending? }
    handles.each { |list| assert_equal true, Penstock::DeliveryHandle.await_all(list, timeout: 20) }
    stats = poller.stats
    assert_operator stats[:slices_cut], :>, 0
    assert_equal 0, stats[:missed_wakeups]
    busy.zip(names) { |one, name| assert_equal 100_000, one.produce_sync(topic: name, payload: "").offset }
  end

  # ---- wake-ups ----

  # defect 17
  slow def test_no_wakeup_is_missed_in_20_000_round_trips_of_8_producers_in_8_threads
    poller = Penstock::Poller.new
    producers = Array.new(8) do
      producer("linger.ms": 0) do |config|
        config.polling.poller = poller
        config.polling.fd.periodic_poll_interval = 100
      end
    end
    name = topic(partitions: 8)
    threads = producers.each_with_index.map do |one, partition|
      Thread.new { 2_500.times { one.produce_sync(topic: name, payload: "x", partition:) } }
    end
    threads.each(&:join)
    assert_equal [20_000, 0], poller.stats.values_at(:messages, :missed_wakeups)
    producers.each_with_index do |one, partition|
      assert_equal 2_500, one.produce_sync(topic: name, payload: "x", partition:).offset
    end
  end

  # behaviour: A batch after an idle time is as fast as any other
  slow def test_a_message_after_an_idle_time_is_noticed_at_once
    one = producer("linger.ms": 0) { |config| config.polling.fd.periodic_poll_interval = 600_000 }
    name = topic(partitions: 1)
    5.times do
      one.produce_sync(topic: name, payload: "x")
      sleep 0.2 # the producer is idle meanwhile
    end
    assert_equal 5, one.produce_many_sync([{ topic: name, payload: "x" }]).first.report.offset
    assert_equal 0, Penstock::Poller.instance.stats[:missed_wakeups]
  end

  # defect 17
  slow def test_events_without_a_message_leave_later_deliveries_noticed
    cluster = own_cluster(brokers: 2)
    name = topic(on: cluster, partitions: 1)
    cluster.move_leader(name, 0, 1)
    one = producer(servers: cluster.bootstrap_servers, "statistics.interval.ms": 1, log_level: 0) do |config|
      config.polling.fd.periodic_poll_interval = 600_000
    end
    10.times do
      cluster.broker_down(2)
      one.produce_sync(topic: name, payload: "x")
      cluster.broker_up(2)
      one.produce_sync(topic: name, payload: "x")
    end
    assert_equal 20, one.produce_sync(topic: name, payload: "x").offset
  end

  # ---- starting and stopping ----

  slow def test_eight_threads_make_use_and_close_producers_on_one_poller
    poller = Penstock::Poller.new
    name = topic(partitions: 1)
    stop = now + (GCLevel.slow? ? 20 : 4)
    threads = Array.new(8) do |i|
      Thread.new do
        sent = 0
        while now < stop
          one = producer_on(poller)
          if i.even?
            one.produce_sync(topic: name, payload: "x")
          else
            one.produce_async(topic: name, payload: "x")
          end
          sent += 1
          assert_equal 0, one.close(timeout: 20).pending
        end
        sent
      end
    end
    sent = threads.sum(&:value)
    eventually { !poller.alive? }
    assert_equal [sent, 0, 0], poller.stats.values_at(:messages, :missed_wakeups, :clients)
    assert_equal sent, producer.produce_sync(topic: name, payload: "probe").offset
  end

  # defect 17
  slow def test_the_last_client_leaving_while_another_joins_leaves_none_unserved
    poller = Penstock::Poller.new
    100.times do
      leaving = producer_on(poller).tap { |one| one.produce_sync(topic: "relay", payload: "x") }
      joining = producer_on(poller)
      closing = Thread.new { leaving.close }
      joining.produce_sync(topic: "relay", payload: "x")
      closing.join
      joining.close
    end
    eventually { !poller.alive? }
    assert_equal 200, poller.stats[:messages]
  end

  def test_an_unused_poller_is_collected_with_its_descriptor
    skip "no /proc here" unless File.directory?("/proc/self/fd")
    GC.start
    before = eventfds
    make_pollers(50)
    eventually(20) do
      GC.start
      eventfds <= before + 5 # the stack may still reference the last pollers
    end
  end

  # The descriptors that pollers wait for. Others come and go with connections.
  def eventfds
    Dir["/proc/self/fd/*"].count do |path|
      File.readlink(path).include?("eventfd")
    rescue Errno::ENOENT
      false
    end
  end

  def test_a_producer_keeps_its_poller_alive
    one = producer_on(Penstock::Poller.new)
    one.produce_sync(topic:, payload: "x")
    4.times { GC.start }
    one.produce_sync(topic:, payload: "x")
    one.close
  end

  private

  def producer_on(poller)
    Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, **QUICK }
      config.polling.poller = poller
    end
  end

  def make_pollers(count)
    count.times { |i| Penstock::Poller.new.tap { |poller| poller.stats if i.even? } }
    Array.new(5) { producer_on(Penstock::Poller.new).tap { |one| one.produce_sync(topic: "collected", payload: "x") }.close }
    nil
  end
end

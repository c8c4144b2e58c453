# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listener_test_case"

# Whatever a listener does, it delays only the events of its own producer.
class ListenersTest < ListenerTestCase
  FAST = 1 # second. The bad listeners go on for at least 3. bin/bench listeners has the figures.

  # Sends one message after the other and waits for each.
  # @return [Array(Array<Float>, Array<Float>)] seconds from the call until the delivery result, and until the listener ran
  def latencies(producer, count)
    heard = Queue.new
    producer.monitor.subscribe(ACKNOWLEDGED) { |event| heard << (now - event[:label]) }
    warm(producer, heard)
    results = Array.new(count) do
      sleep 0.002
      seconds_of { producer.produce_sync(topic: @topic, payload: "x", label: now) }
    end
    eventually { heard.size == count }
    [results, Array.new(count) { heard.pop }]
  end

  def warm(producer, heard)
    producer.produce_sync(topic: @topic, payload: "x", label: now)
    eventually { heard.size == 1 }
    heard.clear
  end

  def p99(values) = values.sort[(values.size * 0.99).ceil - 1]

  BAD = {
    sleeps: :sleep_for_long.to_proc,
    raises: ->(_) { raise KeyError, "of the listener" },
    exits: ->(_) { Thread.exit },
    loops: ->(test) { Thread.pass until test.over? },
    calls_back: :call_back.to_proc
  }.freeze

  def over? = @release.closed?

  def call_back
    @bad.last.produce_sync(topic: @topic, payload: "from a listener")
    @bad.last.produce_sync(topic: @topic, payload: "from a listener") until over?
  end

  # Ruby 3.1's Queue has no timeout.
  def sleep_for_long
    deadline = now + 3
    sleep 0.01 until over? || now > deadline
  end

  # defect 16
  alone def test_a_listener_that_sleeps_for_3_seconds_in_a_loop_delays_no_other_producer
    @bad = [impatient]
    @bad[0].monitor.subscribe(ACKNOWLEDGED) { sleep_for_long }
    send_to(@bad[0], 20)
    results, heard = latencies(impatient, 300)
    assert_operator p99(results), :<, FAST
    assert_operator p99(heard), :<, FAST
  end

  # defect 16
  alone thorough slow def test_five_bad_listeners_of_different_kinds_delay_none_of_fifteen_others
    @bad = BAD.values.map { |bad| impatient.tap { |made| made.monitor.subscribe(ACKNOWLEDGED) { bad.call(self) } } }
    @bad.each { |producer| producer.monitor.subscribe("error.occurred") { nil } }
    good = Array.new(15) { impatient }
    @bad.each { |producer| send_to(producer, 20) }
    results = good.map { |producer| latencies(producer, 40) }
    assert_operator p99(results.flat_map(&:first)), :<, FAST
    assert_operator p99(results.flat_map(&:last)), :<, FAST
    assert_operator Internal::EventDispatcher.threads, :<=, 8
  end

  # ---- each kind ----

  # behaviour: listener.slow
  def test_a_listener_over_its_budget_is_reported_by_name_once_while_it_still_runs
    producer = impatient
    slow = Queue.new
    Penstock.monitor.subscribe("listener.slow") { |event| slow << event.payload }
    producer.monitor.subscribe(ACKNOWLEDGED) { sleep_for_long }
    line = __LINE__ - 1
    send_to(producer)
    eventually { slow.size == 1 }
    sleep 0.3
    assert_equal 1, slow.size
    event = slow.pop
    assert_equal [producer.id, "#{__FILE__}:#{line}", ACKNOWLEDGED], event.values_at(:producer_id, :listener, :event)
    assert_operator event[:time], :>=, 100
  end

  class Slow
    def initialize(&block) = @block = block
    def on_message_acknowledged(_event) = @block.call
  end

  # behaviour: listener.slow
  def test_a_slow_listener_object_is_reported_by_its_class
    producer = impatient
    slow = Queue.new
    producer.monitor.subscribe("listener.slow") { |event| slow << event[:listener] }
    producer.monitor.subscribe(Slow.new { sleep_for_long })
    send_to(producer)
    eventually { slow.size == 1 }
    assert_equal "ListenersTest::Slow", slow.pop
  end

  # behaviour: error.occurred of listeners
  def test_a_listener_that_raises_is_reported_once_and_delivery_of_events_continues
    [KeyError.new("mine"), Exception.new("mine"), NotImplementedError.new("mine")].each do |problem|
      producer = impatient
      errors = []
      seen = []
      producer.monitor.subscribe("error.occurred") { |event| errors << event.payload }
      producer.monitor.subscribe(ACKNOWLEDGED) { |event| raise problem if event[:label] == 0 } # rubocop:disable Style/NumericPredicate
      producer.monitor.subscribe(ACKNOWLEDGED) { |event| seen << event[:label] }
      3.times { |i| producer.produce_async(topic: @topic, payload: "x", label: i) }
      eventually { seen == [0, 1, 2] }
      assert_equal([["callbacks.delivery.error", problem, ACKNOWLEDGED, producer.id]],
                   errors.map { |error| error.values_at(:type, :error, :event, :producer_id) })
    end
  end

  # behaviour: error.occurred of listeners
  def test_an_error_listener_that_raises_is_reported_to_the_other_listeners
    producer = unreachable_producer
    seen = Queue.new
    producer.monitor.subscribe("error.occurred") { raise "mine" }
    producer.monitor.subscribe("error.occurred") { |event| seen << event[:type] }
    capture_io do
      send_to(producer)
      producer.purge
      eventually { seen.size >= 2 }
      producer.close
    end
    assert_includes Array.new(seen.size) { seen.pop }, "callbacks.error.error"
  end

  def test_a_producers_events_are_published_one_at_a_time_in_order_by_any_thread
    producer = impatient
    at_work = 0
    most = 0
    seen = []
    producer.monitor.subscribe(ACKNOWLEDGED) do |event|
      most = [most, at_work += 1].max
      sleep 0.01 # long enough that other threads take over
      seen << event[:label]
      at_work -= 1
    end
    40.times { |i| producer.produce_sync(topic: @topic, payload: "x", label: i) }
    eventually { seen.size == 40 }
    assert_equal [1, [*0...40]], [most, seen]
  end

  def test_a_listener_that_ends_its_thread_costs_the_other_listeners_no_event
    [-> { Thread.exit }, -> { Thread.current.kill }].each do |ending|
      producer = impatient
      seen = []
      producer.monitor.subscribe(ACKNOWLEDGED) { |event| event[:label] % 10 == 3 && ending.call }
      producer.monitor.subscribe(ACKNOWLEDGED) { |event| seen << event[:label] }
      100.times { |i| producer.produce_async(topic: @topic, payload: "x", label: i) }
      eventually { seen.size == 100 }
      assert_equal [*0...100], seen
    end
  end

  # ---- however a listener ends, and for every kind of event ----

  ENDINGS = {
    raises: -> { raise "of the listener" },
    raises_exception: -> { raise Exception, "of the listener" }, # rubocop:disable Lint/RaiseException
    throws: -> { throw :nowhere },
    is_killed: -> { Thread.current.kill }
  }.freeze

  # Each makes a producer, and triggers an event that its listeners get.
  HAPPENINGS = {
    ACKNOWLEDGED => [:impatient.to_proc, ->(test, one) { test.send_to(one) }],
    "error.occurred" => [:unreachable_producer.to_proc, ->(test, one) { test.send_to(one) && one.purge }],
    "statistics.emitted" => [->(test) { test.impatient("statistics.interval.ms": 20) }, ->(test, one) { test.send_to(one) }]
  }.freeze

  HAPPENINGS.each do |event, (make, happen)|
    ENDINGS.each do |name, ending|
      # defect 14
      define_method("test_a_listener_of_#{event.tr(".", "_")}_that_#{name}_disturbs_no_other_and_gets_the_next_event") do
        bad = make.call(self)
        seen = Queue.new
        calls = 0
        bad.monitor.subscribe(event) { ending.call if (calls += 1) <= 2 }
        bad.monitor.subscribe(event) { |one| seen << one.id }
        capture_io do
          4.times do |i| # each event is published on its own
            happen.call(self, bad)
            eventually(20, "#{seen.size} seen, #{calls} begun") { seen.size > i && calls > i }
          end
          assert_other_producer_publishes
          assert_instance_of Penstock::CloseReport, bad.close(timeout: 1)
        end
      end
    end
  end

  def assert_other_producer_publishes
    good = impatient
    labels = Queue.new
    good.monitor.subscribe(ACKNOWLEDGED) { |event| labels << event[:label] }
    assert_predicate good.produce_sync(topic: @topic, payload: "x", label: 7), :persisted?
    eventually { labels.size == 1 }
  end

  # ---- calling back ----

  def calling(producer)
    done = Queue.new
    once = false
    producer.monitor.subscribe(ACKNOWLEDGED) do
      next if once

      once = true
      done << yield
    rescue StandardError => e
      done << e
    end
    send_to(producer)
    eventually(10) { done.size == 1 }
    done.pop
  end

  def test_a_listener_may_produce
    producer = impatient
    assert_instance_of Penstock::DeliveryReport, calling(producer) { producer.produce_sync(topic: @topic, payload: "x") }
  end

  # defect 9
  # behaviour: A callback may close its producer
  def test_a_listener_may_close_its_producer
    producer = self.producer("linger.ms": 0) { |config| config.listener_budget = 60_000 } # close does not wait that long
    assert_took(5, seconds_of { assert_instance_of Penstock::CloseReport, calling(producer) { producer.close } })
    assert_predicate producer.status, :closed?
  end

  # Places from which a producer is closed. Each entry makes a producer whose callback calls `close` with it, and triggers the
  # callback.
  CLOSED_FROM = {
    statistics_emitted: lambda do |close|
      one = patient("statistics.interval.ms": 20)
      one.monitor.subscribe("statistics.emitted") { close.call(one) }
      send_to(one)
    end,
    error_occurred_of_librdkafka: lambda do |close|
      one = unreachable_producer
      one.monitor.subscribe("error.occurred") { |event| event[:type] == "librdkafka.error" && close.call(one) }
      one.client.connect
    end,
    error_occurred_of_a_message: lambda do |close|
      one = unreachable_producer
      one.monitor.subscribe("error.occurred") { |event| event[:type] == "librdkafka.dispatch_error" && close.call(one) }
      send_to(one, 3)
      one.purge
    end,
    error_occurred_of_a_call: lambda do |close|
      one = patient
      one.monitor.subscribe("error.occurred") { close.call(one) }
      one.produce_sync(topic: @topic, payload: 1)
    end,
    error_occurred_before_a_reload: ->(close) { reloading(close, "error.occurred") },
    producer_reload: ->(close) { reloading(close, "producer.reload") },
    producer_reloaded: ->(close) { reloading(close, "producer.reloaded") },
    listener_slow: lambda do |close|
      one = impatient
      one.monitor.subscribe("listener.slow") { close.call(one) }
      one.monitor.subscribe(ACKNOWLEDGED) { sleep_for_long }
      send_to(one)
    end,
    middleware: lambda do |close|
      one = patient
      one.middleware.append { |message| message.tap { close.call(one) } }
      one.produce_sync(topic: @topic, payload: "x")
    end,
    middleware_of_a_flush: lambda do |close|
      one = patient
      one.middleware.append { |message| message.tap { close.call(one) } }
      one.buffer({ topic: @topic, payload: "x" })
      one.flush_sync
    end,
    around_before: lambda do |close|
      one = patient
      one.around { |sending| close.call(one) && sending.call }
      one.produce_sync(topic: @topic, payload: "x")
    end,
    around_after: lambda do |close|
      one = patient
      one.around { |sending| sending.call && close.call(one) }
      one.produce_many_async([{ topic: @topic, payload: "x" }] * 3)
    end,
    around_of_a_flush: lambda do |close|
      one = patient
      one.around { |sending| close.call(one) && sending.call }
      one.buffer({ topic: @topic, payload: "x" })
      one.flush_async
    end,
    around_in_a_transaction: lambda do |close|
      one = patient("transactional.id": @topic)
      one.around { |sending| sending.call && close.call(one) }
      one.transaction { one.produce_sync(topic: @topic, payload: "x") }
    end,
    the_token_provider: lambda do |close|
      one = nil
      provider = Object.new
      provider.define_singleton_method(:on_oauthbearer_token_refresh) { |_| close.call(one) }
      one = unreachable_producer("security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER") do |config|
        config.oauth.token_provider_listener = provider
      end
      one.client.connect
    end,
    the_logger: lambda do |close|
      one = nil
      logger = Logger.new(nil)
      logger.define_singleton_method(:add) { |*| one && close.call(one) }
      one = patient(debug: "all", log_level: 7) { |config| config.logger = logger }
      send_to(one)
    end
  }.freeze

  CLOSED_FROM.each do |name, happen|
    # defect 9
    define_method("test_a_producer_may_be_closed_from_#{name}") do
      outcomes = Queue.new
      called = false
      closing = lambda do |one|
        next true if called

        called = true
        start = now
        result = one.close
      rescue Penstock::Error => e
        result = e
      ensure
        outcomes << [one, result, now - start] if start
      end
      ignoring_errors { instance_exec(closing, &happen) }
      eventually(30, -> { called ? "closing did not end" : "close was not called" }) { !outcomes.empty? }
      one, result, elapsed = outcomes.pop
      assert(result.is_a?(Penstock::CloseReport) || result.is_a?(Penstock::Error), result.inspect)
      assert_took(5, elapsed) unless GCLevel.slow?
      assert_took(5, seconds_of { assert_instance_of Penstock::CloseReport, one.close }) unless GCLevel.slow?
      assert_predicate one.status, :closed?
      assert_other_producer_publishes
    end
  end

  # A producer that does not wait for a listener's budget when it closes.
  def patient(**kafka)
    producer("linger.ms": 0, **kafka) do |config|
      config.listener_budget = 60_000
      yield config if block_given?
    end
  end

  def reloading(close, event)
    one = patient(log_level: 0) { |config| config.logger = Logger.new(nil) }
    one.produce_sync(topic: @topic, payload: "x")
    one.monitor.subscribe(event) { close.call(one) }
    one.client.test_fatal_error(:out_of_order_sequence_number, "for a test")
    one.produce_sync(topic: @topic, payload: "x")
  end

  # Ignores errors: the producer may have been closed meanwhile, or the test provokes one.
  def ignoring_errors
    yield
  rescue Penstock::Error
    nil
  end

  # defect 9
  # behaviour: A callback may close its producer
  def test_listeners_may_close_each_others_producers
    producers = Array.new(2) { impatient }
    ended = Queue.new
    both_have_sent = Queue.new
    producers.each_with_index do |producer, i|
      producer.monitor.subscribe(ACKNOWLEDGED) do
        both_have_sent.pop
        ended << producers[1 - i].close.class
      end
    end
    elapsed = seconds_of do
      producers.each { |producer| send_to(producer) }
      both_have_sent.close
      eventually { ended.size == 2 }
    end
    assert_took(5, elapsed)
  end

  def test_a_listener_that_waits_for_close_in_another_thread_blocks_it_only_for_its_budget
    producer = impatient
    elapsed = seconds_of { calling(producer) { Thread.new { producer.close }.value } }
    assert_took(5, elapsed)
  end

  def test_a_listener_may_disconnect_its_producer
    producer = impatient
    assert_equal true, calling(producer) { producer.disconnect }
    assert_instance_of Penstock::DeliveryReport, producer.produce_sync(topic: @topic, payload: "x")
  end

  def test_a_listener_may_run_a_transaction
    producer = impatient("transactional.id": "listeners-#{rand(2**32)}")
    assert_equal 7, calling(producer) { producer.transaction { producer.produce_async(topic: @topic, payload: "x") && 7 } }
  end

  def test_a_listener_may_subscribe_and_unsubscribe
    producer = impatient
    seen = Queue.new
    more = ->(event) { seen << event[:offset] }
    assert_equal more, calling(producer) { producer.monitor.subscribe(ACKNOWLEDGED, &more) }
    send_to(producer)
    eventually { seen.size == 1 }
    own = nil
    own = producer.monitor.subscribe(ACKNOWLEDGED) { producer.monitor.unsubscribe(own) && seen << :once }
    3.times { producer.produce_sync(topic: @topic, payload: "x") }
    eventually { seen.size == 5 }
    assert_equal(1, Array.new(5) { seen.pop }.count(:once))
  end

  # ---- memory, and the garbage collector ----

  def test_a_listener_that_falls_behind_costs_no_memory
    producer = self.producer("linger.ms": 0) { |config| config.event_queue_limit = 1_000 }
    producer.monitor.subscribe(ACKNOWLEDGED) { sleep 0.01 until over? }
    batch = Array.new(10_000) { { topic: @topic, payload: "x" } }
    5.times { producer.produce_many_sync(batch) }
    GC.start
    before = resident
    40.times { producer.produce_many_sync(batch) }
    GC.start
    assert_operator resident - before, :<, 40_000
    assert_operator producer.metrics[:events][:waiting], :<=, 1_000
  end

  # @return [Integer] kB
  def resident = File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1].to_i

  def test_events_survive_compaction
    producer = impatient
    seen = []
    producer.monitor.subscribe(ACKNOWLEDGED) { |event| seen << [event[:topic], event[:label]] }
    20.times do |round|
      producer.produce_many_async(Array.new(100) { |i| { topic: @topic, payload: "x", label: "#{round}-#{i}" } })
      GC.compact if GC.respond_to?(:compact) && !GCLevel.fragile?
    end
    eventually { seen.size == 2_000 }
    assert_equal(Array.new(20) { |round| Array.new(100) { |i| [@topic, "#{round}-#{i}"] } }.flatten(1), seen)
  end
end

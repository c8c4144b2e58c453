# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/raw_records"

# The programs run in separate processes: a Ractor changes a process permanently, and Ruby warns that Ractors are experimental.
class RactorTest < PenstockTest
  slow(/fatal_error|disconnect|partly_sent|producer_closes|closing_the_producer|keep_their|killed|labels_of/)
  slow(/damaged|later_listener/)

  PRELUDE = <<~'RUBY'
    require "logger"
    Warning[:experimental] = false
    SERVERS, TOPIC = ARGV
    def make_producer(**kafka)
      Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": SERVERS, **kafka }
        config.logger = nil
        yield config if block_given?
      end
    end

    # See PenstockTest#holding_producer.
    def holding_producer
      make_producer("linger.ms": 60_000) do |config|
        config.flush_on_wait = false
        yield config if block_given?
      end
    end

    # Returns a Ractor's value, or raises its error. It polls for the end: see test/support/ractor_wakeups.rb.
    def value_of(ractor)
      sleep 0.001 until ractor.inspect.end_with?(" terminated>")
      ractor.respond_to?(:value) ? ractor.value : ractor.take
    rescue Ractor::RemoteError => e
      raise e.cause, cause: nil
    end

    def described(error) = [error.class.name, error.message]

    def payloads
      consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": SERVERS } }
      consumer.assign(TOPIC => { 0 => :beginning })
      left = consumer.watermarks(TOPIC, 0).last
      found = []
      found.concat(consumer.poll_batch(max: 100, timeout: 10)) while found.size < left
      consumer.close
      found.map(&:payload)
    end

    def gone?(reference)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 50
      loop do
        GC.start
        return true unless reference.weakref_alive?
        return false if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

        sleep 0.01
      end
    end
  RUBY

  # @return [Object] the value that the program prints in its last line
  def ractors(program, seconds: 60, partitions: 1)
    *lines, last = program.lines.map(&:chomp).reject(&:empty?)
    output = ruby!("#{PRELUDE}\n#{lines.join("\n")}\nputs JSON.generate(#{last})", cluster.bootstrap_servers,
                   topic(partitions:), seconds:)
    JSON.parse(output.lines.last)
  end

  # ---- sending ----

  def test_ractors_send_through_one_producer_and_each_message_is_stored_once
    sent, stored, labels = ractors(<<~'RUBY')
      producer = make_producer
      made = Array.new(4) do |r|
        Ractor.new(producer.shareable, TOPIC, r) do |shareable, topic, r|
          message = ->(n) { { topic:, payload: "#{r}-#{n}", key: "k", partition: 0, headers: { "r" => r.to_s }, label: [r, n].freeze } }
          reports = [shareable.produce_sync(message[0]), shareable.produce_async(message[1]).wait]
          handles = shareable.produce_many_sync((2...200).map(&message)) + shareable.produce_many_async((200...250).map(&message))
          reports + handles.map(&:wait)
        end
      end
      reports = made.flat_map { |ractor| value_of(ractor) }
      producer.close
      [reports.map(&:offset).sort, payloads.sort, reports.map { |report| report.label.join("-") }.sort]
    RUBY
    assert_equal (0...1000).to_a, sent
    expected = Array.new(4) { |r| Array.new(250) { |n| "#{r}-#{n}" } }.flatten.sort
    assert_equal expected, stored
    assert_equal expected, labels
  end

  def test_tombstones_are_sent_from_a_ractor
    sent = ractors(<<~'RUBY')
      shareable = make_producer.shareable
      made = Ractor.new(shareable, TOPIC) do |one, topic|
        message = { topic:, key: "k", partition: 0, payload: "left out" }
        reports = [one.tombstone_sync(message), one.tombstone_async(message).wait,
                   *one.tombstone_many_sync([message] * 2).map(&:wait), *one.tombstone_many_async([message] * 2).map(&:wait)]
        error = begin; one.tombstone_sync({ topic:, key: "", partition: 0 }); rescue Penstock::MessageInvalidError => e; e.message; end
        [reports.map(&:offset), error]
      end
      [*value_of(made), payloads]
    RUBY
    assert_equal [(0..5).to_a, "A tombstone requires a non-empty :key. Nothing was sent.", [nil] * 6], sent
  end

  def test_threads_of_a_ractor_wait_concurrently
    assert_equal [true, 20], ractors(<<~'RUBY')
      shareable = make_producer("linger.ms": 300).shareable
      made = Ractor.new(shareable, TOPIC) do |one, topic|
        start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        stored = Array.new(20) { Thread.new { one.produce_sync(topic:, payload: "x").persisted? } }.count(&:value)
        [Process.clock_gettime(Process::CLOCK_MONOTONIC) - start < 20 * 0.3, stored]
      end
      value_of(made)
    RUBY
  end

  def test_a_call_of_another_ractor_does_not_linger
    assert_equal 0, ractors(<<~'RUBY')
      shareable = make_producer("linger.ms": 60_000).shareable # longer than this program may run
      value_of(Ractor.new(shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x", partition: 0).offset })
    RUBY
  end

  def test_a_wait_in_a_ractor_is_interrupted_at_once_and_can_be_repeated
    assert_equal %w[RuntimeError true Penstock::WaitTimeoutError Penstock::WaitTimeoutError], ractors(<<~'RUBY')
      shareable = holding_producer { |config| config.max_wait_timeout = 50 }
      made = Ractor.new(shareable.shareable, TOPIC) do |one, topic|
        handle = one.produce_async(topic:, payload: "x")
        waiting = Thread.new { handle.wait }
        waiting.report_on_exception = false
        Thread.pass until waiting.status == "sleep"
        waiting.raise("enough")
        ended = begin; waiting.value; rescue => e; e.class.name; end
        sync = begin; one.produce_sync(topic:, payload: "x"); rescue => e; e.class.name; end
        many = begin; one.produce_many_sync([{ topic:, payload: "x" }] * 3); rescue => e; e.class.name; end
        [ended, handle.pending?.to_s, sync, many]
      end
      result = value_of(made)
      shareable.purge
      result
    RUBY
  end

  def test_a_variant_is_shareable_with_its_settings
    assert_equal [nil, 50, "Penstock::WaitTimeoutError"], ractors(<<~'RUBY')
      variant = make_producer("linger.ms": 0).with(topic_config: { acks: 0 }).shareable
      patient = holding_producer
      hasty = patient.with(max_wait_timeout: 50).shareable
      offset = value_of(Ractor.new(variant, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x").offset })
      late = value_of(Ractor.new(hasty, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x") rescue $!.class.name })
      patient.purge
      [offset, hasty.max_wait_timeout, late]
    RUBY
  end

  # ---- errors ----

  def test_errors_in_a_ractor_equal_those_in_the_main_ractor
    published = ractors(<<~'RUBY')
      bad = [{ payload: "x" }, { topic: "t" }, { topic: "t", payload: 1 }, { topic: "t", paylod: "x" }, { topic: "a b", payload: "x" },
             { "topic" => "t", payload: "x" }, { topic: "t", payload: "x", partition: "1" }, { topic: "t", payload: "x", headers: { a: 1 } },
             { topic: "t", payload: "x", partition: 0, partition_key: "k" }, { topic: "t", payload: "x" * 2_000_000 },
             { topic: "t", payload: "x", timestamp: -1 }, { topic: "t", payload: "x", partition_key: "" }, 5]
      raised = lambda do |one|
        bad.map { |message| one.produce_sync(message) && nil rescue described($!) } +
          [(one.produce_many_async([{ topic: "t", payload: "x" }, bad.first]) rescue described($!)), (one.produce_many_async(5) rescue described($!)),
           (one.produce_sync(topic: TOPIC, payload: "x", partition: 99) rescue described($!))]
      end
      producer = make_producer { |config| config.id = "one" }
      producer.produce_sync(topic: TOPIC, payload: "x") # caches the topic's partitions
      in_ractor = Ractor.new(producer.shareable, Ractor.make_shareable(bad), TOPIC) do |one, bad, topic|
        bad.map { |message| one.produce_sync(message) && nil rescue [$!.class.name, $!.message] } +
          [(one.produce_many_async([{ topic: "t", payload: "x" }, bad.first]) rescue [$!.class.name, $!.message]),
           (one.produce_many_async(5) rescue [$!.class.name, $!.message]),
           (one.produce_sync(topic:, payload: "x", partition: 99) rescue [$!.class.name, $!.message])]
      end
      [raised.call(producer), value_of(in_ractor)]
    RUBY
    assert_equal(*published)
    published.first.map(&:first).each { |name| assert_match(/\APenstock::\w+Error\z/, name.to_s) }
  end

  thorough slow def test_a_failed_delivery_result_is_raised_in_the_ractor
    classes, shareable = ractors(<<~'RUBY')
      dead = make_producer("bootstrap.servers": "127.0.0.1:1", log_level: 0, "message.timeout.ms": 50, "linger.ms": 0)
      made = Ractor.new(dead.shareable) do |one|
        error = begin; one.produce_sync(topic: "t", payload: "x"); rescue Penstock::Error => e; e; end
        many = begin; one.produce_many_sync([{ topic: "t", payload: "x" }] * 2); rescue Penstock::Error => e; e; end
        report = one.produce_async(topic: "t", payload: "x").then { |handle| (handle.wait rescue nil) || handle.report }
        [[error.class, error.code, error.retriable?, many.class, many.dispatched.size, report.status],
         [error, report].map { |each| Ractor.shareable?(Ractor.make_shareable(each)) }]
      end
      value_of(made)
    RUBY
    assert_equal ["Penstock::MessageTimedOutError", "msg_timed_out", true, "Penstock::ProduceManyError", 2, "not_persisted"],
                 classes
    assert_equal [true, true], shareable
  end

  # ---- the producer's life ----

  def test_after_a_disconnect_the_next_call_of_a_ractor_connects_again
    assert_equal [[0, 1, 2, 3, 4], true], ractors(<<~'RUBY')
      producer = make_producer
      made = Ractor.new(producer.shareable, TOPIC) do |one, topic|
        5.times { Ractor.receive; Ractor.yield one.produce_sync(topic:, payload: "x").offset }
      end
      offsets = Array.new(5) { producer.disconnect; made.send(:go); made.take }
      [offsets, producer.status.connected?]
    RUBY
  end

  def test_after_a_fatal_error_a_new_client_sends_the_message_once
    assert_equal [[0, 1, 2, 3], 2, %w[a b c d]], ractors(<<~'RUBY')
      producer = make_producer(log_level: 0) { |config| config.logger = Logger.new(nil); config.wait_backoff_on_idempotent_fatal_error = 0 }
      reloads = 0
      producer.monitor.subscribe("producer.reloaded") { reloads += 1 }
      shareable = producer.shareable
      made = Ractor.new(shareable, TOPIC) do |one, topic|
        sync = one.produce_sync(topic:, payload: Ractor.receive).offset
        Ractor.yield sync
        one.produce_many_sync([Ractor.receive, "d"].map { |payload| { topic:, payload: } }).map { |handle| handle.report.offset }
      end
      first = producer.produce_sync(topic: TOPIC, payload: "a").offset
      producer.client.test_fatal_error(:out_of_order_sequence_number, "test")
      made.send("b")
      second = made.take
      producer.client.test_fatal_error(:out_of_order_sequence_number, "test")
      made.send("c")
      last = value_of(made)
      [[first, second, *last], reloads, payloads]
    RUBY
  end

  def test_an_unrecoverable_fatal_error_is_raised_and_nothing_is_sent
    assert_equal ["Penstock::ProduceError", true, "Penstock::ProduceError", true, []], ractors(<<~'RUBY')
      producer = make_producer(log_level: 0) { |config| config.logger = Logger.new(nil); config.reload_on_idempotent_fatal_error = false }
      shareable = producer.shareable
      producer.client.test_fatal_error(:out_of_order_sequence_number, "test")
      made = Ractor.new(shareable, TOPIC) do |one, topic|
        sync = begin; one.produce_sync(topic:, payload: "x"); rescue Penstock::Error => e; e; end
        many = begin; one.produce_many_sync([{ topic:, payload: "x" }] * 2); rescue Penstock::Error => e; e; end
        [sync.class, sync.fatal?, many.class, many.fatal?]
      end
      [*value_of(made), payloads]
    RUBY
  end

  def test_a_closed_producer_raises_in_ractors_even_if_they_wait_for_its_client
    assert_equal ["Penstock::ProducerClosedError", true, "Penstock::ProducerClosedError", false], ractors(<<~'RUBY')
      producer = make_producer(log_level: 0) { |config| config.logger = Logger.new(nil); config.wait_backoff_on_idempotent_fatal_error = 60_000 }
      shareable = producer.shareable
      before = shareable.closed?
      producer.client.test_fatal_error(:out_of_order_sequence_number, "test")
      waiting = Ractor.new(shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x") rescue $!.class.name }
      sleep 0.01 until Internal.of(producer).without_client?
      producer.close
      waited = value_of(waiting)
      [waited, shareable.closed?, value_of(Ractor.new(shareable) { |one| one.produce_async(topic: "t", payload: "x") rescue $!.class.name }), before]
    RUBY
  end

  def test_closing_the_producer_closes_its_handles_and_frees_them
    assert_equal [false, true, true], ractors(<<~'RUBY')
      producer = make_producer
      shareable = producer.shareable
      before = shareable.closed?
      helper = Thread.list.find { |thread| thread.name == "penstock.ractors" }
      producer.close
      [before, shareable.closed?, !helper.join(20).nil?]
    RUBY
  end

  def test_a_batch_that_is_partly_sent_when_the_producer_closes_keeps_its_handles
    assert_equal ["Penstock::ProduceManyError", true, true, true], ractors(<<~'RUBY')
      producer = make_producer("queue.buffering.max.messages": 10, "linger.ms": 1_000)
      made = Ractor.new(producer.shareable, TOPIC) do |one, topic|
        one.produce_many_sync(Array.new(100) { { topic:, payload: "x" } })
      rescue Penstock::Error => e
        dispatched = e.respond_to?(:dispatched) ? e.dispatched : []
        [e.class.name, e.message.include?("producer is closed"), dispatched.size.between?(1, 99), dispatched.all?(&:delivered?)]
      end
      sleep 0.01 until producer.queue_size == 10
      producer.close
      value_of(made)
    RUBY
  end

  thorough slow def test_a_handle_in_a_listener_that_the_producers_reload_waits_for_raises
    assert_equal ["Penstock::ListenerDeadlockError"] * 4, ractors(<<~'RUBY')
      answers = %w[producer.reload error.occurred].product([true, false]).map do |event, main|
        producer = make_producer("enable.idempotence": true, log_level: 0)
        shareable = producer.shareable
        said = Queue.new
        producer.monitor.subscribe(event) do |happened|
          next unless happened.id == "producer.reload" || happened[:type] == "librdkafka.idempotent_fatal_error"

          said << begin; shareable.produce_async(topic: TOPIC, payload: "x").class.name; rescue Penstock::Error => e; e.class.name; end
        end
        producer.client.test_fatal_error(:out_of_order_sequence_number, "for a test")
        if main then producer.produce_sync(topic: TOPIC, payload: "x")
        else value_of(Ractor.new(shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x").offset })
        end
        said.pop
      end
      answers
    RUBY
  end

  thorough slow def test_events_of_the_last_handles_messages_are_published_after_the_producer_is_dropped
    assert_equal [true, 1], ractors(<<~'RUBY')
      require "weakref"
      published = Queue.new
      shared = lambda do
        producer = make_producer("linger.ms": 3_000) { |config| config.listener_budget = 20 } # checked every 20 ms
        producer.monitor.subscribe("message.acknowledged") { published << 1 }
        sleep 0.5 # nothing has been sent so far, so nothing keeps the producer alive
        [producer.shareable, WeakRef.new(producer)]
      end
      handle, reference = Thread.new { shared.call.tap { sleep 0.5 } }.value
      sending = Ractor.new(handle, TOPIC) { |one, topic| one.produce_async(topic:, payload: "x"); nil }
      handle = nil
      value_of(sending)
      sending = nil
      [gone?(reference), published.pop]
    RUBY
  end

  def test_handles_keep_their_producer_alive
    assert_equal [true, 1, true, false, true], ractors(<<~'RUBY')
      require "weakref"
      def threads = Thread.list.count { |thread| thread.name == "penstock.ractors" }
      def make = Thread.new { producer = make_producer; [producer.shareable, WeakRef.new(producer)] }.value
      shareable, producer = make
      10.times { GC.start }
      kept = value_of(Ractor.new(shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x").persisted? })
      before = threads
      alive = producer.weakref_alive?
      reference = WeakRef.new(shareable)
      shareable = nil
      Thread.new { "deep".then { |x| x * 10_000 } }.join
      gone = gone?(producer)
      [kept, before, alive, threads.positive?, gone]
    RUBY
  end

  def test_a_handle_that_is_made_while_the_producer_closes_is_closed
    assert_equal [true, "Penstock::ProducerClosedError"], ractors(<<~'RUBY')
      producer = make_producer
      connection = Internal.of(producer).variants.own
      connection.define_singleton_method(:use) { super().tap { Thread.new { producer.status.closing! }.join } } # the moment that matters
      error = begin; producer.shareable; rescue Penstock::Error => e; e.class.name; end
      [connection.slot.handle("a", nil, nil).closed?, error]
    RUBY
  end

  def test_a_killed_ractor_thread_is_replaced
    assert_equal 0, ractors(<<~'RUBY')
      producer = make_producer
      shareable = producer.shareable
      helper = Thread.list.find { |thread| thread.name == "penstock.ractors" }
      Thread.pass until helper.status == "sleep"
      helper.kill.join
      producer.disconnect
      value_of(Ractor.new(shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x").offset })
    RUBY
  end

  def test_in_a_fork_child_an_inherited_handle_raises_and_a_new_one_works
    assert_equal ["Penstock::ForkedError", true, 1, 2], ractors(<<~'RUBY')
      producer = make_producer
      shareable = producer.shareable
      producer.produce_sync(topic: TOPIC, payload: "x")
      reader, writer = IO.pipe
      pid = fork do
        error = (shareable.produce_async(topic: TOPIC, payload: "x") rescue $!.class.name)
        offset = value_of(Ractor.new(producer.shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x").offset })
        writer.write(Marshal.dump([error, shareable.closed?, offset]))
        writer.close
        exit!(0)
      end
      writer.close
      result = Marshal.load(reader.read)
      Process.wait(pid)
      [*result, value_of(Ractor.new(shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x").offset })]
    RUBY
  end

  # ---- listeners, and unsupported objects ----

  def test_listeners_in_the_main_ractor_get_delivery_events_with_labels
    assert_equal [(0...300).to_a, 300, 0], ractors(<<~'RUBY')
      producer = make_producer
      published = Queue.new
      producer.monitor.subscribe("message.acknowledged") { |event| published << event[:label].fetch(:number) }
      made = Array.new(3) do |r|
        Ractor.new(producer.shareable, TOPIC, r) do |one, topic, r|
          messages = Array.new(100) { |i| { topic:, payload: "x", label: Ractor.make_shareable({ number: (r * 100) + i }) } }
          messages.first(50).each { |message| one.produce_async(message) }
          one.produce_many_sync(messages.last(50)).size
        end
      end
      GC.start
      made.each { |ractor| value_of(ractor) }
      labels = Array.new(300) { published.pop }
      [labels.sort, producer.metrics[:events][:queued], Internal.of(producer).events.counts.last]
    RUBY
  end

  def test_labels_of_a_ractor_that_has_ended_are_kept_and_moved_for_listeners
    assert_equal Array.new(500) { |i| ["label", i.to_s] }, ractors(<<~'RUBY')
      producer = make_producer("linger.ms": 60_000)
      published = Queue.new
      producer.monitor.subscribe("message.acknowledged") { |event| published << event[:label] }
      made = Ractor.new(producer.shareable, TOPIC) do |one, topic|
        500.times { |i| one.produce_async(topic:, payload: "x", label: Ractor.make_shareable(["label", i.to_s])) }
        nil
      end
      value_of(made)
      4.times { GC.start }
      Array.new(50_000) { |i| ["other", i.to_s] }.clear
      GC.verify_compaction_references(**(RUBY_VERSION < "3.2" ? { double_heap: true } : { expand_heap: true }), toward: :empty)
      Array.new(50_000) { |i| ["other", i.to_s] }.clear
      producer.flush
      Array.new(500) { published.pop }.sort_by { |label| label.last.to_i }
    RUBY
  end

  def test_an_unshareable_label_raises_and_nothing_is_sent
    assert_equal ["Penstock::MessageInvalidError", true, "Penstock::MessageInvalidError", true, []], ractors(<<~'RUBY')
      made = Ractor.new(make_producer.shareable, TOPIC) do |one, topic|
        single = begin; one.produce_sync(topic:, payload: "x", label: +"mine"); rescue => e; e; end
        many = begin; one.produce_many_sync([{ topic:, payload: "x" }, { topic:, payload: "x", label: [] }]); rescue => e; e; end
        [single.class, single.message.include?("make_shareable"), many.class, many.message.include?("Message 1 of the batch")]
      end
      [*value_of(made), payloads]
    RUBY
  end

  NOT_SHAREABLE = {
    "transactions" => ['make_producer("transactional.id": "t")', "transactional.id"],
    "a client that sends nothing" => ["make_producer { |config| config.deliver = false }", "config.deliver"],
    "hooks" => ["make_producer.around { |sending| sending.call }", "around"],
    "middleware" => ["make_producer.tap { |one| one.middleware.append { |message| message } }", "middleware"],
    "listeners" => ['make_producer.tap { |one| one.monitor.subscribe("message.produced_sync") { } }', "message.produced_sync"]
  }.freeze

  def test_a_producer_with_unshareable_parts_is_not_shareable
    NOT_SHAREABLE.each_value do |made, word|
      name, message = ractors("described((#{made}.shareable rescue $!))")
      assert_equal "Penstock::NotShareableError", name
      assert_includes message, word
    end
  end

  LATER = {
    "around" => ["producer.around { |sending| sending.call }", nil],
    "middleware" => ["producer.middleware.append { |message| message }", nil],
    "a_listener" => ['listener = producer.monitor.subscribe("messages.produced_async") { }',
                     "producer.monitor.unsubscribe(listener)"],
    "a_listener_to_all" => ['listener = Penstock.monitor.subscribe("message.produced_async") { }',
                            "Penstock.monitor.unsubscribe(listener)"]
  }.freeze

  LATER.each do |name, (add, remove)|
    define_method("test_#{name}_added_later_makes_calls_raise") do
      expected = [0, "Penstock::NotShareableError", "Penstock::NotShareableError", *(remove ? [1, 2] : [nil, 1])]
      assert_equal expected, ractors(<<~RUBY)
        producer = make_producer
        shareable = producer.shareable
        send = -> { value_of(Ractor.new(shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x").offset rescue $!.class.name }) }
        many = -> { value_of(Ractor.new(shareable, TOPIC) { |one, topic| one.produce_many_async([{ topic:, payload: "x" }]) rescue $!.class.name }) }
        first = send.call
        #{add}
        error = [send.call, many.call]
        #{remove}
        after = #{remove ? "send.call" : "nil"}
        [first, *error, after, producer.produce_sync(topic: TOPIC, payload: "x").offset]
      RUBY
    end

    define_method("test_#{name}_added_while_disconnected_makes_calls_raise") do
      assert_equal ["Penstock::NotShareableError", (0 if remove)], ractors(<<~RUBY)
        producer = make_producer
        shareable = producer.shareable
        send = -> { value_of(Ractor.new(shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: "x").offset rescue $!.class.name }) }
        producer.disconnect
        #{add}
        error = send.call
        producer.disconnect
        #{remove}
        [error, #{remove ? "send.call" : "nil"}]
      RUBY
    end
  end

  slow def test_one_thread_at_a_time_checks_for_unshareable_parts
    one = producer
    one.shareable
    slow = Queue.new
    Internal.of(one).ractor_handles.define_singleton_method(:unshareable_for_now) do
      super().tap { slow.pop if Thread.current[:slow] }
    end
    late = Thread.new do
      Thread.current[:slow] = true
      Internal.of(one).ractor_handles.refresh
    end
    Thread.pass until late.status == "sleep"
    adding = Thread.new { one.around(&:call) }
    adding.join(0.2)
    slow << 1
    [late, adding].each(&:join)
    assert_raises(Penstock::NotShareableError) { one.shareable }
    barred = Internal.of(one).variants.own.slot.handle("", nil, nil)
    assert_raises(Penstock::NotShareableError) { barred.produce_async(topic:, payload: "x") }
  end

  slow def test_a_producer_is_made_and_shared_in_the_main_ractor_and_not_in_a_trap
    assert_equal %w[Penstock::NotShareableError Penstock::SignalTrapError], ractors(<<~'RUBY')
      made = value_of(Ractor.new(SERVERS) { |servers| Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": servers } } rescue $!.class.name })
      producer = make_producer
      trapped = nil
      trap("USR1") { trapped = (producer.shareable rescue $!.class.name) }
      Process.kill(:USR1, Process.pid)
      sleep 0.01 until trapped
      [made, trapped]
    RUBY
  end

  def test_a_later_listener_to_all_producers_gets_events_of_connected_producers
    assert_equal 1, ractors(<<~'RUBY')
      producer = make_producer
      producer.produce_sync(topic: TOPIC, payload: "x")
      value_of(Ractor.new { :anything })
      published = Queue.new
      Penstock.monitor.subscribe("message.acknowledged") { |event| published << event[:offset] }
      producer.produce_sync(topic: TOPIC, payload: "x")
      published.pop
    RUBY
  end

  slow def test_the_list_of_all_producers_keeps_none_of_them_alive
    assert_equal [3, true], ractors(<<~'RUBY')
      kept = Array.new(3) { make_producer }
      100.times { Thread.new { 5.times { make_producer } }.join }
      4.times { GC.start }
      all = Internal::ProducerRegistry.all
      [(all.map(&:producer) & kept).size, all.size < 100]
    RUBY
  end

  # ---- consumers and other objects in Ractors ----

  def test_a_ractor_may_have_its_own_consumers_and_pass_messages_on
    assert_equal [%w[0 1 2], true, "Penstock::NotShareableError", "Penstock::ConfigurationInvalidError"], ractors(<<~'RUBY')
      make_producer.produce_many_sync(Array.new(3) { |i| { topic: TOPIC, payload: i.to_s, headers: { "a" => %w[b c] } } })
      reading = Ractor.new(SERVERS, TOPIC) do |servers, topic|
        consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": servers } }
        consumer.assign(topic => { 0 => :beginning })
        consumer.each(timeout: 20).first(3).tap { consumer.close }
      end
      messages = value_of(reading)
      error = [{ logger: true }, { setting: true }].map do |what|
        value_of(Ractor.new(what) do |what|
          Penstock::Consumer.new do |config|
            config.kafka = { "bootstrap.servers": "127.0.0.1:1" }.merge(what[:setting] ? { "no.such": 1 } : {})
            config.logger = Logger.new(nil) if what[:logger]
          end
        rescue Penstock::Error => e
          e.class.name
        end)
      end
      [messages.map(&:payload), messages.all? { |message| Ractor.shareable?(message) }, *error]
    RUBY
  end

  slow def test_the_consumers_of_a_ractor_share_a_thread_that_watches_for_stuck_partitions
    name = topic(partitions: 1, on: embedded_cluster)
    assert_equal [1, 0], ractors(<<~RUBY)
      watching = Ractor.new("#{embedded_cluster.bootstrap_servers}", "#{name}") do |servers, topic|
        made = Array.new(3) do
          Penstock::Consumer.new do |config|
            config.kafka = { "bootstrap.servers": servers }
            config.stuck_after = 2_000 # a check every 500 ms
          end.assign(topic => { 0 => 0 })
        end
        threads = -> { Thread.list.count { |thread| thread.name == "penstock.stuck" } }
        sleep 0.7
        sleep 0.01 until (shared = threads.call) <= 1
        made.each(&:close)
        sleep 0.01 until threads.call.zero?
        [shared, threads.call]
      end
      value_of(watching)
    RUBY
  end

  # Ruby waits for a Ractor's threads when its block has returned, and when the program ends.
  def test_a_ractor_ends_although_its_consumer_with_stuck_after_is_open
    name = topic(partitions: 1, on: embedded_cluster)
    assert_equal "done", ractors(<<~RUBY)
      ractors = Array.new(2) do |endless|
        Ractor.new("#{embedded_cluster.bootstrap_servers}", "#{name}", endless == 1) do |servers, topic, endless|
          one = Penstock::Consumer.new do |config|
            config.kafka = { "bootstrap.servers": servers }
            config.stuck_after = 2_000
          end.assign(topic => { 0 => 0 })
          one.poll(timeout: 0.2)
          one.poll(timeout: 0.2) while endless
        end
      end
      sleep 0.05 until ractors.first.inspect.include?("terminated")
      "done"
    RUBY
  end

  def test_a_ractors_consumer_reads_a_message_with_damaged_headers
    name = topic(partitions: 1, on: embedded_cluster)
    records = [RawRecords.headers, "\xFF", RawRecords.headers].map.with_index { |headers, i| RawRecords.record(i, headers) }
    RawRecords.write(embedded_cluster, name, records)
    assert_equal [0, [name, 0, 1, true], 2], ractors(<<~RUBY)
      reading = Ractor.new("#{embedded_cluster.bootstrap_servers}", "#{name}") do |servers, topic|
        consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": servers } }
        consumer.assign(topic => { 0 => :beginning })
        Array.new(3) do
          consumer.poll(timeout: 20).then { |message| message.headers && message.offset }
        rescue Penstock::ConsumeError => e
          [e.topic, e.partition, e.offset, Ractor.shareable?(Ractor.make_shareable(e))]
        end.tap { consumer.close }
      end
      value_of(reading)
    RUBY
  end

  slow def test_configuration_errors_reports_and_messages_are_shareable_when_frozen
    one = producer
    handle = one.produce_async(topic: topic(partitions: 1), payload: "x", label: 7)
    assert Ractor.shareable?(handle.wait)
    error = assert_raises(Penstock::MessageInvalidError) { one.produce_sync(topic: "t", payload: 5) }
    assert Ractor.shareable?(Ractor.make_shareable(error))
    assert_match(/ractor_test\.rb/, error.backtrace.join)
    assert_raises(Penstock::MessageInvalidError) { raise error }
    assert Ractor.shareable?(Ractor.make_shareable(one.config))
    assert_equal 1, one.produce_sync(topic: handle.topic, payload: "x").offset # the producer stays usable
    assert_raises(TypeError) { one.shareable.dup }
    assert Ractor.shareable?(one.shareable)
  end

  # ---- process-wide state ----

  # docs/decisions/0015-process-wide-state.md gives the reason for each.
  MAIN_ONLY = {
    "Penstock" => [:@monitor], "Penstock::ConnectionPool" => [:@lock], "Penstock::LogDispatcher" => %i[@lock @loggers],
    "Penstock::EventDispatcher" => %i[@lock @sources @workers], "Penstock::ExitReports" => [:@reporting],
    "Penstock::ProducerRegistry" => [:@all], "Penstock::Producer::IdleDisconnector" => %i[@changed @lock @watched],
    "Penstock::Native::TokenRefresher" => [:@thread]
  }.freeze

  LIB = Dir[File.expand_path("../../lib/**/*.rb", __dir__)].map { |file| File.read(file) }
  NAMES = LIB.flat_map { |text| text.scan(/^\s*(?:(?:class|module) )?([A-Z]\w+)(?: = | < |$)/) }.flatten.uniq.map(&:to_sym)

  # @return [Array<Module>] all modules of Penstock, with private ones
  def modules(mod = Penstock, found = [])
    return found if found.include?(mod)

    found << mod
    (mod.constants(false) + NAMES).uniq.each do |name|
      value = mod.const_get(name, false) if mod.const_defined?(name, false)
      modules(value, found) if value.is_a?(Module) && value.name.to_s.start_with?("Penstock::")
    end
    found
  end

  def test_all_constants_are_shareable
    values = modules.flat_map do |mod|
      (mod.constants(false) + NAMES).uniq.select { |name| mod.const_defined?(name, false) }.map { |name| [mod, name] }
    end
    assert_operator values.size, :>, 100
    assert_empty values.reject { |mod, name| Ractor.shareable?(mod.const_get(name, false)) }
  end

  def test_classes_keep_only_documented_state
    kept = modules.to_h do |mod|
      [mod.name, mod.instance_variables.reject { |name| Ractor.shareable?(mod.instance_variable_get(name)) }.sort]
    end
    unknown = kept.reject { |name, names| (names - MAIN_ONLY.fetch(name, [])).empty? }
    assert_empty unknown
    assert_empty modules.flat_map { |mod| mod.class_variables(false) }
    assert_empty LIB.flat_map { |text| text.scan(/(?<![\w"'\\])\$(?!stderr|stdout|LOADED_FEATURES)[a-z]\w*/) }
  end

  def test_every_static_of_the_extension_is_in_the_table_of_the_design
    root = File.expand_path("../..", __dir__)
    table = File.read(File.join(root, "docs/decisions/0015-process-wide-state.md"))[/^## Every static\n.*?(?=^## )/m]
    statics = Dir[File.join(root, "ext/penstock/**/*.c")].flat_map do |file|
      File.read(file).scan(/^(?:    )?static (?!const\b|inline\b|void\b|NORETURN)([^(){}=;]*?)(?: = [^;{]*)?;/).flatten
          .map { |text| [File.basename(file), text.split(",").map { |name| name[/(\w+)\W*(?:\[\w*\])?\z/, 1] }] }
    end
    loose = statics.flat_map { |file, names| names.map { |name| [file, name] } }
                   .reject { |_, name| name.match?(/\A(id|sym)_|_class\z|_error\z/) }
    assert_operator loose.size, :>, 5
    assert_empty loose.reject { |file, name| table.match?(/#{Regexp.escape(file)}[^|]*\b#{name}\b/) }
  end

  # ---- under pressure ----

  slow def test_ractors_under_gc_stress
    assert_equal [[0, 1, 2, 3, 4, 5], %w[l0 l1 l2 l3 l4 l5]], ractors(<<~'RUBY', seconds: 100)
      producer = make_producer
      published = Queue.new
      producer.monitor.subscribe("message.acknowledged") { |event| published << event[:label] }
      shareable = producer.shareable
      made = Ractor.new(shareable, TOPIC) do |one, topic|
        GC.stress = true
        messages = Array.new(6) { |i| { topic:, payload: "x", key: "k", headers: { "a" => "b" }, label: "l#{i}".freeze } }
        offsets = messages.first(2).map { |message| one.produce_sync(message).offset }
        offsets += one.produce_many_sync(messages.last(4)).map { |handle| handle.report.offset }
        GC.stress = false
        offsets
      end
      offsets = value_of(made)
      [offsets, Array.new(6) { published.pop }.sort]
    RUBY
  end

  # `rake test:ractors` runs longer.
  # defect 33
  def test_a_storm_of_ractors_loses_no_message
    program = [RbConfig.ruby, "-w", "-I", Subprocess::LIBRARY, "test/proofs/support/ractor_storm.rb", "8", "600"]
    output, errors, status = Limited.capture3(*program, chdir: File.expand_path("../..", __dir__))
    assert status.success?, [output, errors, status].join("\n")
    assert_match(/\Aractors: 8 Ractors, 4800 messages: \d+ delivered, .*; 0 wrong;/, output.lines.last)
  end
end

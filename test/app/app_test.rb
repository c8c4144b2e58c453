# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/app_test_case"

# Applications: the order of messages, batches, and errors.
class AppTest < AppTestCase
  slow(/_with_order_(unordered|partition)\z|_stops_the_application_and_completes_nothing\z|_columns_of_a_batch_with_/)

  thorough(/_not_processed_before_their_time\z/)

  slow(/restart|nothing_that|hook_that_fails/)

  # ---- orders ----

  { partition: 1, key: 4, unordered: 4 }.each do |order, threads|
    define_method("test_each_message_is_processed_once_with_order_#{order}") do
      name = topic(partitions: 2)
      2.times { |partition| produce(name, 0...500, partition:) }
      server = start(name, order:, configure: lambda { |app|
                                                app.threads = threads
                                              }) { |record| @seen << [record.partition, record.offset] }
      assert_equal [0, 1].product([*0...500]), seen(1_000).sort
      eventually { [0, 1].all? { |partition| committed_offset(name, partition) == 500 } }
      assert_predicate server.stop, :complete?
      assert_empty @seen
    end
  end

  slow def test_messages_of_a_key_keep_their_order_and_never_overlap
    name = topic(partitions: 1)
    40.times { |i| produce(name, [i.to_s], key: "key #{i % 4}") }
    busy = Hash.new(0)
    lock = Mutex.new
    start(name, order: :key, configure: ->(app) { app.threads = 8 }) do |record|
      lock.synchronize { busy[record.key] += 1 }
      sleep 0.01
      lock.synchronize { @seen << [record.key, record.offset, busy[record.key], busy.values.sum] && busy[record.key] -= 1 }
    end
    found = seen(40)
    found.group_by(&:first).each_value do |of_key|
      assert_equal of_key.map { |_, offset| offset }.sort, of_key.map { |_, offset|
                                                             offset
                                                           }
    end
    assert_equal [1], found.map { |_, _, of_key| of_key }.uniq
    assert_operator found.map(&:last).max, :>, 1, "different keys run at once"
  end

  slow def test_a_slow_partition_does_not_hold_up_others
    name = topic(partitions: 3)
    gate = Thread::Queue.new
    3.times { |partition| produce(name, 0...200, partition:) }
    start(name) { |record| record.partition == 1 ? gate.pop : @seen << record.offset }
    assert_equal [*0...200, *0...200].sort, seen(400).sort
    gate.close
  end

  # ---- processors ----

  slow def test_a_processor_serves_one_assignment
    name = topic(partitions: 1)
    produce(name, 0...3)
    seen = @seen
    server = start(name, processor do
      define_method(:assigned) { seen << [:assigned, topic, partition, @count] }
      define_method(:process) do |record|
        seen << [:process, record.offset, @count = (@count || 0) + 1, record.equal?(self.record)]
      end
      define_method(:revoked) { seen << [:revoked, @count] }
    end)
    assert_equal [[:assigned, name, 0, nil], [:process, 0, 1, true], [:process, 1, 2, true], [:process, 2, 3, true]], seen(4)
    server.stop
    assert_equal [[:revoked, 3]], seen(1)
  end

  def test_a_hook_that_fails_is_called_again_before_the_first_message
    name = topic(partitions: 1)
    produce(name, ["a"])
    seen = @seen
    tries = 0
    start(name, processor do
      define_method(:assigned) { (tries += 1) < 2 ? raise("no database") : seen << :assigned }
      define_method(:process) { |record| seen << record.payload }
    end)
    assert_equal [:assigned, "a"], seen(2)
    assert_equal "consumer.assigned.error", @errors.pop[:type]
  end

  # Another object is made when the first one is busy. If that fails, no message has failed. (They have no retries here.)
  def test_a_hook_that_fails_for_a_further_object_fails_no_message
    name = topic(partitions: 1)
    gate = Thread::Queue.new
    seen = @seen
    objects = 0
    start(name, processor do
      define_method(:assigned) { (objects += 1).between?(2, 3) ? raise("no database") : nil }
      define_method(:process) do |record|
        seen << [record.payload, attempt]
        gate.pop if record.payload == "slow"
      end
    end, order: :key, retry: { times: 0 }, after_retries: :skip)
    %w[slow quick].each do |payload|
      produce(name, [payload], key: payload)
      assert_equal [[payload, 1]], seen(1)
    end
    gate << true
    eventually { committed_offset(name) == 2 }
    errors = Array.new(@errors.size) { @errors.pop }
    assert_equal [["consumer.assigned.error", "no database"]] * 2, errors.map { |event| [event[:type], event[:error].message] }
  end

  slow def test_hooks_around_the_calls
    name = topic(partitions: 1)
    produce(name, %w[a b])
    forgotten = 0
    configure = lambda do |app|
      app.around(:process) { |record, go| @seen << [1, record.payload] && go.call && @seen << [4, record.payload] }
      app.around(:process) { |record, go| record.payload == "b" && (forgotten += 1) < 3 ? nil : go.call }
    end
    start(name, configure:, retry: { from: 0, to: 0 }) { |record| @seen << [2, record.payload] }
    assert_equal [[1, "a"], [2, "a"], [4, "a"], [1, "b"], [1, "b"], [1, "b"], [2, "b"], [4, "b"]], seen(8)
    assert_instance_of Penstock::HookError, @errors.pop[:error]
  end

  slow def test_values_are_decoded_as_the_route_says
    name = topic(partitions: 1)
    produce(name, ['{"a":1}'], key: "[2]")
    start(name, value: :json, key: :reverse.to_proc) { |record| @seen << [record.value, record.decoded_key, record.id] }
    assert_equal [[{ "a" => 1 }, "]2[", "#{name}/0/0"]], seen(1)
  end

  slow def test_a_pattern_gets_new_topics_of_its_own
    names = Array.new(2) { topic(partitions: 1) }
    names.each { |name| produce(name, ["x"]) }
    start(Regexp.new(names.map { |name| Regexp.escape(name) }.join("|"))) { |record| @seen << record.topic }
    assert_equal names.sort, seen(2).sort
  end

  # ---- gates ----

  # @return [Time]
  def ago(seconds) = Time.now - seconds

  # Ruby tries the first alternative first, and the consumer's pattern all of them.
  def test_a_pattern_whose_alternatives_begin_alike
    name = topic(partitions: 1)
    produce(name, ["a"])
    start(/#{name[0..-2]}|#{name}/) { |record| @seen << record.payload }
    assert_equal ["a"], seen(1)
    assert_raises(ArgumentError, "named when the application is made") { app(/(?=a)b/) { nil } }
  end

  slow def test_messages_that_are_filtered_or_too_old_are_done_without_processing
    name = topic(partitions: 1)
    produce(name, %w[old], timestamp: ago(100))
    produce(name, %w[yes no yes2])
    produce(name, %w[no])
    start(name, expire: 50, filter: ->(message) { message.payload != "no" }) { |record| @seen << record.payload }
    assert_equal %w[yes yes2], seen(2)
    eventually { committed_offset(name) == 5 }
  end

  slow def test_a_batch_has_no_message_that_is_filtered
    name = topic(partitions: 1)
    produce(name, %w[no a no b c no])
    seen = @seen
    failed = false
    start(name, processor do
      define_method(:process_batch) do |batch|
        seen << batch.map(&:payload)
        batch.done(batch[0])
        (failed = true) && raise("later") unless failed
      end
    end, batch: { size: 6 }, filter: ->(message) { message.payload != "no" }, retry: { from: 0, to: 0 })
    assert_equal [%w[a b c], %w[b c]], seen(2)
    eventually { committed_offset(name) == 6 }
  end

  { "messages" => {}, "batches" => { batch: { size: 10 } } }.each do |what, options|
    define_method(:"test_#{what}_are_not_processed_before_their_time") do
      name = topic(partitions: 1)
      produce(name, %w[a], timestamp: ago(60))
      produce(name, %w[b c], timestamp: Time.now)
      start(name, delay: 6, **options) do |one|
        [*one].each { |record| @seen << [record.payload, Time.now.to_f - (record.timestamp / 1000.0)] }
      end
      found = seen(3)
      assert_equal %w[a b c], found.map(&:first)
      assert_operator found.map(&:last).min, :>=, 6
      eventually { committed_offset(name) == 3 }
    end
  end

  # Timestamps need not increase.
  thorough def test_what_is_behind_a_message_that_is_not_due_waits_too
    name = topic(partitions: 1)
    payloads = Array.new(20) { |i| "old #{i}" }
    produce(name, %w[new], timestamp: Time.now)
    payloads.each { |payload| produce(name, [payload], timestamp: ago(60)) }
    start(name, delay: 5) { |record| @seen << record.payload }
    assert_equal ["new", *payloads], seen(21)
  end

  slow def test_a_filter_that_raises_is_an_error_of_its_message
    name = topic(partitions: 1)
    produce(name, %w[a b])
    filter = ->(message) { message.payload == "a" ? raise("odd") : true }
    start(name, filter:, retry: { times: 0 }, after_retries: :skip) { |record| @seen << record.payload }
    assert_equal %w[b], seen(1)
    assert_equal "odd", @errors.pop[:error].message
  end

  # ---- what a processor may do ----

  slow def test_a_message_is_skipped_with_a_reason
    name = topic(partitions: 1)
    skipped = Thread::Queue.new
    produce(name, %w[a b c])
    seen = @seen
    start(name, processor { define_method(:process) { |record| record.payload == "b" ? skip("odd") : seen << record.payload } },
          configure: ->(app) { app.monitor.subscribe("message.skipped") { |event| skipped << event.payload } })
    assert_equal %w[a c], seen(2)
    eventually { committed_offset(name) == 3 }
    assert_equal({ group: @group, topic: name, partition: 0, offset: 1, attempt: 1, reason: "odd" }, skipped.pop)
    assert_empty @errors
  end

  slow def test_skip_and_produce_are_for_messages_in_work
    name = topic(partitions: 1)
    produce(name, %w[a])
    start(name, processor { define_method(:process_batch) { |_| skip("odd") } }, batch: { size: 2 })
    assert_kind_of Penstock::UsageError, @errors.pop[:error]
    idle = Class.new(Penstock::Processor).new
    assert_raises(Penstock::UsageError) { idle.skip("odd") }
    assert_raises(Penstock::UsageError) { idle.produce({ topic: "t", payload: "a" }) }
  end

  # The message is processed only when what it has sent is delivered.
  slow def test_what_a_processor_sends_is_delivered_before_the_message_counts
    name = topic(partitions: 1)
    to = topic(partitions: 1)
    produce(name, %w[a b])
    seen = @seen
    start(name, processor do
      define_method(:process) do |record|
        seen << produce({ topic: to, payload: record.payload.upcase })
        produce({ topic: to, payload: record.payload, partition: 99 }) if record.payload == "b" && attempt == 1
      end
    end, retry: { from: 0, to: 0 })
    eventually { committed_offset(name) == 2 }
    assert_equal [true] * 3, seen(3).map(&:delivered?)
    assert_kind_of Penstock::Error, @errors.pop[:error]
    assert_equal %w[A B B], Penstock.read(to, "bootstrap.servers": cluster.bootstrap_servers).map(&:payload)
  end

  slow def test_a_batch_that_sends_has_failed_if_a_delivery_has
    name = topic(partitions: 1)
    to = topic(partitions: 1)
    produce(name, %w[a b])
    rejecting = Object.new
    real = producer
    failed = false
    rejecting.define_singleton_method(:produce_async) do |message|
      handle = real.produce_async(message)
      next handle if failed

      failed = true
      Object.new.tap { |one| one.define_singleton_method(:wait) { raise Penstock::DeliveryError, "not delivered" } }
    end
    start(name, processor do
      define_method(:process_batch) { |batch| batch.each { |one| produce({ topic: to, payload: one.payload }) } }
    end, batch: { size: 2, wait: 60 }, retry: { from: 0, to: 0 }, configure: ->(app) { app.producer = rejecting })
    eventually { committed_offset(name) == 2 }
    assert_equal "not delivered", @errors.pop[:error].message
    assert_equal %w[a b a b], Penstock.read(to, "bootstrap.servers": cluster.bootstrap_servers).map(&:payload)
  end

  # ---- batches ----

  slow def test_batches_and_what_is_done_of_them
    name = topic(partitions: 1)
    produce(name, 0...10)
    seen = @seen
    tries = 0
    start(name, processor do
      define_method(:process_batch) do |batch|
        seen << batch.map(&:offset)
        batch.done(batch[4]) if batch.size == 10
        raise "half" if (tries += 1) == 1
      end
    end, batch: { size: 10 }, retry: { from: 0, to: 0 })
    assert_equal [[*0..9], [*5..9]], seen(2)
    eventually { committed_offset(name) == 10 }
  end

  # With and without options that look at each message.
  [{}, { expire: 3_600 }].each do |options|
    define_method(:"test_columns_of_a_batch_with_#{options.keys}") do
      name = topic(partitions: 1)
      payloads = ["1", "no JSON", "3", "4"]
      produce(name, payloads, key: "k")
      seen = @seen
      start(name, processor do
        define_method(:process_batch) do |batch|
          seen << [batch.payloads, batch.values { |error| error.offset.to_s }, batch.keys, batch.offsets, batch.timestamps.size,
                   batch.map(&:payload), batch[1..2].map(&:offset), batch.last.offset, batch.inspect]
          batch.done(2)
          batch.values # raises, the first time
        end
      end, batch: { size: 4, wait: 60 }, value: :json, retry: { from: 0, to: 0 }, **options)
      assert_equal [payloads, [1, "1", 3, 4], ["k"] * 4, [0, 1, 2, 3], 4, payloads, [1, 2], 3,
                    "#<Penstock::RecordBatch 4 messages>"], seen(1).first
      # What cannot be decoded is not repeated: each message is tried alone.
      assert_equal [%w[3], [3], ["k"], [2], 1], seen(1).first.first(5)
      assert_kind_of Penstock::DeserializationError, @errors.pop[:error]
    end
  end

  # It returns although it has not done all.
  slow def test_a_batch_that_ends_early_because_the_application_stops
    name = topic(partitions: 1)
    produce(name, %w[a b c d])
    started = Thread::Queue.new
    server = start(name, processor do
      define_method(:process_batch) do |batch|
        batch.done(2)
        started << true
        sleep 0.01 until cancelled?
      end
    end, batch: { size: 4, wait: 60 })
    started.pop
    assert_predicate server.stop, :complete?
    assert_equal 2, committed_offset(name)
  end

  def test_a_batch_has_no_more_messages_than_it_has
    batch = Penstock::RecordBatch.new([Penstock::Message.new(topic: "t", payload: "a", offset: 5)])
    assert_equal [0, 0, 1, 1], [batch.done([]), batch.done(0), batch.done(1), batch.done_count]
    [2, -1, Penstock::Message.new(topic: "t", payload: "a", offset: 6)].each do |wrong|
      assert_raises(ArgumentError) { batch.done(wrong) }
    end
  end

  %i[partition unordered].each do |order|
    define_method(:"test_a_batch_waits_for_more_messages_with_order_#{order}") do
      name = topic(partitions: 1)
      seen = @seen
      start(name, processor do
                    define_method(:process_batch) do |batch|
                      seen << batch.map(&:payload)
                    end
                  end, order:, batch: { size: 3, wait: 60 })
      %w[a b c d].each { |payload| produce(name, [payload]) }
      assert_equal [%w[a b c]], seen(1)
      eventually { committed_offset(name) == 3 }
    end
  end

  slow def test_a_batch_waits_no_longer_than_the_route_says
    name = topic(partitions: 1)
    seen = @seen
    start(name, processor { define_method(:process_batch) { |batch| seen << batch.map(&:payload) } }, batch: { wait: 0.2 })
    produce(name, %w[a b])
    assert_equal %w[a b], seen(1).flatten
    produce(name, %w[c])
    assert_equal %w[c], seen(1).flatten
  end

  slow def test_an_error_after_all_of_a_batch_is_done_repeats_nothing
    name = topic(partitions: 1)
    produce(name, %w[a b])
    seen = @seen
    start(name, processor do
      define_method(:process_batch) do |batch|
        seen << batch.map(&:payload)
        batch.done(batch.last)
        raise "late"
      end
    end, batch: { size: 2 })
    assert_equal [%w[a b]], seen(1)
    eventually { committed_offset(name) == 2 }
    produce(name, %w[c d])
    assert_equal [%w[c d]], seen(1)
    assert_equal ["late", nil], @errors.pop.then { |event| [event[:error].message, event[:offset]] }
  end

  slow def test_of_a_batch_that_fails_for_good_only_the_bad_message_goes_to_the_dead_letters
    name = topic(partitions: 1)
    dead = topic(partitions: 1)
    produce(name, 0...5)
    seen = @seen
    start(name, processor do
      define_method(:process_batch) do |batch|
        raise "bad" if batch.any? { |record| record.payload == "3" }

        seen << batch.map(&:payload)
      end
    end, batch: { size: 5 }, retry: { times: 0 }, dead_letter: dead)
    assert_equal [%w[0], %w[1], %w[2], %w[4]], seen(4)
    eventually { committed_offset(name) == 5 }
    assert_equal ["3"], stored_payloads(dead)
  end

  # ---- errors ----

  def test_a_message_is_tried_again_until_it_succeeds
    name = topic(partitions: 2)
    2.times { |partition| produce(name, 0...3, partition:) }
    seen = @seen
    start(name, processor do
      define_method(:process) do |record|
        seen << [record.partition, record.offset, attempt]
        raise "not yet" if record.partition.zero? && record.offset == 1 && attempt < 3
      end
    end, retry: { from: 0.05, to: 0.1 })
    found = seen(8)
    assert_equal [[0, 0, 1], [0, 1, 1], [0, 1, 2], [0, 1, 3], [0, 2, 1]], found.select { |partition,| partition.zero? }
    assert_equal [[1, 0, 1], [1, 1, 1], [1, 2, 1]], found.reject { |partition,| partition.zero? }
    assert_equal ["consumer.consume.error", "not yet", 1], @errors.pop.then { |event|
                                                             [event[:type], event[:error].message, event[:offset]]
                                                           }
    eventually { committed_offset(name) == 3 }
  end

  slow def test_a_message_that_always_fails_is_never_skipped_unasked
    name = topic(partitions: 1)
    produce(name, 0...3)
    start(name, retry: { times: 1, from: 0, to: 0 }) { |record| @seen << record.offset && record.offset == 1 && raise("never") }
    assert_equal [0, 1, 1, 1, 1], seen(5).first(5)
    eventually { committed_offset(name) == 1 }
    @servers.last.stop
    assert_equal 1, committed_offset(name)
  end

  def test_of_a_failing_key_only_its_own_messages_wait_and_a_restart_repeats_only_them
    name = topic(partitions: 1)
    10.times { |i| produce(name, [i], key: (i % 3).to_s) }
    failing = true
    handle = ->(record) { record.key == "1" && failing ? raise("bad key") : @seen << record.offset }
    server = start(name, handle, order: :key, retry: { from: 0.05, to: 0.05 })
    assert_equal [0, 2, 3, 5, 6, 8, 9], seen(7).sort
    assert_predicate server.stop, :complete?
    assert_equal 1, committed_offset(name)
    failing = false
    start(name, handle, order: :key)
    assert_equal [1, 4, 7], seen(3).sort
    eventually { committed_offset(name) == 10 }
    assert_empty @seen
  end

  slow def test_a_processor_chooses_when_it_is_called_again
    name = topic(partitions: 1)
    produce(name, ["a"])
    seen = @seen
    start(name, processor do
      define_method(:process) { |_| seen << attempt && attempt < 3 && retry_in(0.01) }
    end, retry: { from: 60, to: 60 })
    assert_equal [1, 2, 3], seen(3)
  end

  def test_dead_letters_are_copies_with_their_origin
    name = topic(partitions: 2)
    dead = topic(partitions: 1)
    produce(name, ["fine"], partition: 1)
    produce(name, ["\xFF\0bad"], partition: 1, key: "\x00key", headers: { "trace" => "1", "twice" => %w[a b] },
                                 timestamp: Time.at(1_700_000_000))
    produce(name, ["after"], partition: 1)
    seen = @seen
    start(name, processor do
      define_method(:process) { |record| record.offset == 1 ? reject("no customer") : seen << record.payload }
    end, dead_letter: dead)
    assert_equal %w[fine after], seen(2)
    eventually { committed_offset(name, 1) == 3 }
    copy = stored(dead).first
    assert_equal ["\xFF\0bad".b, "\x00key"], [copy.payload, copy.key]
    assert_equal({ "trace" => "1", "twice" => %w[a b], "source_topic" => name, "source_partition" => "1", "source_offset" => "1",
                   "source_consumer_group" => @group, "source_timestamp" => "1700000000000", "source_attempts" => "1",
                   "error_class" => "Penstock::Processor::Rejected", "error_message" => "no customer", "error_kind" => "poison" },
                 copy.headers.except("failed_at"))
  end

  slow def test_a_tombstone_stays_one_in_the_dead_letters
    name = topic(partitions: 1)
    dead = topic(partitions: 1)
    (@sending ||= producer).produce_sync(topic: name, payload: nil, key: "k", partition: 0)
    start(name, dead_letter: dead, retry: { times: 0 }) { raise "bad" }
    eventually { committed_offset(name) == 1 }
    assert_nil stored(dead).first.payload
  end

  slow def test_a_message_is_not_done_before_its_copy_is_stored
    name = topic(partitions: 1)
    produce(name, %w[bad good])
    sending = Object.new
    fails = 2
    copies = []
    sending.define_singleton_method(:produce_sync) { |**message| (fails -= 1) >= 0 ? raise("no broker") : copies << message }
    start(name, dead_letter: "dead", retry: { times: 0, from: 0.01, to: 0.01 }, configure: lambda { |app|
                                                                                             app.producer = sending
                                                                                           }) do |record|
      record.payload == "bad" ? raise("bad") : @seen << [record.payload, copies.size]
    end
    assert_equal [["good", 1]], seen(1)
    assert_equal(["consumer.consume.error", *(["dead_letter_queue.dispatch.error"] * 2)], Array.new(3) { @errors.pop[:type] })
  end

  slow def test_what_cannot_be_decoded_is_not_tried_again
    name = topic(partitions: 1)
    produce(name, ['{"a":', "1"])
    start(name, value: :json, after_retries: :skip) { |record| @seen << record.value }
    assert_equal [1], seen(1)
    assert_equal Penstock::DeserializationError, @errors.pop[:error].class
    eventually { committed_offset(name) == 2 }
    assert_empty @errors
  end

  slow def test_an_error_may_stop_the_application
    name = topic(partitions: 1)
    produce(name, 0...5)
    server = start(name, retry: { times: 0 }, after_retries: :stop) do |record|
      record.offset == 2 ? raise("enough") : @seen << record.offset
    end
    report = server.wait
    assert_equal [1, "enough", []], [report.status, report.error.message, report.blockers]
    assert_equal [0, 1], seen(2)
    assert_equal 2, committed_offset(name)
  end

  # Named by the option `fatal`; subclasses count.
  LISTED = Class.new(StandardError) { def self.name = "listed" }
  OF_LISTED = Class.new(LISTED) { def self.name = "of_listed" }

  [SystemExit, Interrupt, NoMemoryError, OF_LISTED].each do |fatal|
    define_method("test_#{fatal.name.downcase}_in_a_processor_stops_the_application_and_completes_nothing") do
      name = topic(partitions: 1)
      produce(name, 0...3)
      server = start(name, after_retries: :skip, retry: { times: 0 }, fatal: [LISTED]) do |record|
        record.offset == 1 ? raise(fatal) : @seen << record.offset
      end
      assert_equal [1, fatal], server.wait.then { |report| [report.status, report.error.class] }
      assert_equal 1, committed_offset(name)
    end
  end

  def self.deep = deep

  ENDINGS = {
    "throw" => -> { throw :nowhere }, "thread exit" => -> { Thread.exit }, "an exception" => -> { raise Exception, "odd" }, # rubocop:disable Lint/RaiseException
    "kill" => -> { Thread.current.kill }, "no method" => -> { nil.missing }, "too deep" => -> { AppTest.deep }
  }.freeze

  def test_nothing_that_a_processor_does_ends_a_worker
    name = topic(partitions: 1)
    produce(name, ENDINGS.keys)
    tried = Hash.new(0)
    start(name, retry: { from: 0, to: 0 }, configure: ->(app) { app.threads = 1 }) do |record|
      ENDINGS.fetch(record.payload.force_encoding("UTF-8")).call if (tried[record.payload] += 1) == 1
      @seen << record.payload
    end
    assert_equal ENDINGS.keys, seen(ENDINGS.size)
    eventually { @errors.size == ENDINGS.size } # a thread of its own publishes them
  end

  # Ends its thread once: all but so many messages of a batch are done then.
  [1, 0].each do |left|
    define_method("test_what_is_done_of_a_batch_counts_when_its_thread_ends_before_#{left}_messages") do
      name = topic(partitions: 1)
      produce(name, 0...20)
      seen = @seen
      ended = nil
      start(name, processor do
        define_method(:process_batch) do |batch|
          next seen << batch.offsets if ended || batch[0].offset < 5

          ended = batch.done(batch.size - left) && batch.last.offset
          Thread.exit
        end
      end, batch: { size: 5 }, retry: { from: 0, to: 0 })
      eventually { committed_offset(name) == 20 }
      assert_equal [*(ended + 1 - left)..19], Array.new(seen.size) { seen.pop }.flatten.drop_while { |offset| offset < 5 }
      assert_match(/ended its thread/, @errors.pop[:error].message)
      assert_empty @errors
    end
  end

  # A partition with many slow messages does not keep the only worker.
  def test_a_worker_goes_from_partition_to_partition
    name = topic(partitions: 2)
    2.times { |partition| produce(name, [*1..100], partition:) }
    polled = Thread::Queue.new
    server = start(name, configure: ->(app) { app.threads = 1 }) do |record|
      polled.pop # until it is closed
      sleep 0.01 # at least: a hundred take longer than a turn
      @seen << record.partition
    end
    eventually { server.metrics.sum(&:waiting) > 100 } # of both
    polled.close
    assert_equal [0, 1], seen(100).first(100).uniq.sort
  end

  # A watchdog of the program may be late: the call for which it raises has ended. Then nothing has failed.
  def test_what_is_raised_in_a_worker_without_work_changes_nothing
    name = topic(partitions: 1)
    worker = nil
    server = start(name, configure: ->(app) { app.threads = 1 }) do |record|
      worker = Thread.current
      @seen << [record.payload, record.offset]
    end
    10.times do |i|
      produce(name, [i])
      assert_equal [[i.to_s, i]], seen(1)
      eventually { server.metrics.sum(&:in_work).zero? && worker.stop? }
      worker.raise("too late")
    end
    assert_empty @errors
    assert_predicate worker, :alive?
  end

  private

  def stored(topic)
    consumer = Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers).assign(topic => { 0 => :beginning })
    found = []
    eventually { found.concat(consumer.poll_batch(timeout: 0.2).to_a).any? }
    found
  ensure
    consumer&.close
  end

  def stored_payloads(topic) = stored(topic).map(&:payload)
end

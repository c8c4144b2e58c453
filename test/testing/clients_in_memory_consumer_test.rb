# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Clients::InMemoryConsumer: a consumer that a test feeds by hand.
class ClientsInMemoryConsumerTest < ConsumerTestCase
  include SharedCluster::ForGroups

  # Notes what it is told.
  class Noting
    attr_reader :told

    def initialize(&more)
      @told = []
      @more = more
    end

    def assigned(rebalance) = note(:assigned, rebalance)
    def revoked(rebalance) = note(:revoked, rebalance)
    def lost(rebalance) = note(:lost, rebalance)

    private

    def note(kind, rebalance)
      @told << [kind, rebalance.partitions]
      @more&.call(kind, rebalance)
    end
  end

  def fed(**kafka)
    group_consumer("shop", servers: "nowhere:1", **kafka) do |config|
      config.client_class = Penstock::Clients::InMemoryConsumer
      yield config if block_given?
    end
  end

  # A subscribed consumer that was fed with these payloads.
  def fed_with(*payloads, partition: 0, **kafka, &block)
    fed(**kafka, &block).tap do |one|
      payloads.each { |payload| one.client.feed(topic: "orders", payload:, partition:) }
      one.subscribe("orders")
    end
  end

  def committed(one, partition = 0) = one.client.committed.dig("orders", partition)

  # ---- it is a consumer ----

  def test_it_has_every_method_of_the_client_that_it_replaces_with_the_same_arguments
    native = Internal::ConsumerClient
    methods = native.public_instance_methods(false).select { |name| native.instance_method(name).source_location.nil? }
    assert_operator methods.size, :>, 20
    client = fed.client
    assert_empty(methods - client.public_methods)
    wrong = methods.reject do |name|
      arity = client.method(name).arity
      arity.negative? || arity == native.instance_method(name).arity
    end
    assert_empty wrong
  end

  def test_it_has_the_public_methods_of_a_consumer_and_rejects_the_same_arguments
    real = unreachable_consumer
    one = fed
    assert_equal [], real.public_methods - one.public_methods
    { poll: { timeoutt: 1 }, poll_batch: { maxx: 1 } }.each do |name, wrong|
      texts = [real, one].map { |consumer| assert_raises(ArgumentError) { consumer.public_send(name, **wrong) }.message }
      assert_equal(*texts)
      texts = [real, one].map { |consumer| assert_raises(ArgumentError) { consumer.public_send(name, 5) }.message }
      assert_equal(*texts)
    end
  end

  def test_it_connects_to_nothing_and_has_no_thread
    threads = Thread.list.size
    one = fed_with("a")
    assert_equal "a", one.poll(timeout: nil).payload
    assert_equal threads, Thread.list.size
  end

  def test_settings_are_checked
    assert_raises(Penstock::ConfigurationInvalidError) { fed("no.such.setting": 1) }
    error = assert_raises(Penstock::ConfigurationInvalidError) do
      consumer { |config| config.client_class = Penstock::Clients::Buffered }
    end
    assert_match(/client_class must be nil or a class for consumers, such as .*InMemoryConsumer, not /, error.message)
  end

  def test_a_subclass_and_its_methods_work
    type = Class.new(Penstock::Consumer) { def first = poll(timeout: 0).payload }
    one = type.new("bootstrap.servers": "nowhere:1", "group.id": "g") do |config|
      config.client_class = Penstock::Clients::InMemoryConsumer
    end
    one.client.feed(topic: "orders", payload: "a")
    assert_equal "a", one.subscribe("orders").first
  end

  # The same program on a real consumer and a fed one.
  slow def test_a_program_sees_the_same_as_with_a_real_consumer
    name = topic(partitions: 2)
    payloads = %w[a b c d e]
    produce(name, payloads)
    real = group_consumer("mirror-#{name}")
    one = fed
    payloads.each { |payload| one.client.feed(topic: name, payload:) }
    seen = [real, one].map { |consumer| watch(consumer, name) }
    assert_equal(*seen)
    assert_operator seen.first.size, :>, 20
  end

  def watch(consumer, name)
    seen = [consumer.subscribe(name).equal?(consumer), consumer.position(name, 0), consumer.committed(name, 0)]
    first = eventually { consumer.poll(timeout: 1) }
    consumer.resume
    seen.push(first.payload, consumer.position(name, 0), consumer.mark(first), consumer.commit, consumer.committed(name, [0]))
    second = consumer.poll(timeout: 10)
    seen.push(second.offset, consumer.mark(first), consumer.commit(second), consumer.committed(name, 0))
    seen.push(consumer.commit({ name => { 0 => 1 } }), consumer.committed(name, 0))
    seen.push(consumer.seek(name, 0, 1).equal?(consumer), consumer.position(name, 0))
    seen.push(consumer.poll(timeout: 10) == second, consumer.pause(name => [0]), consumer.poll(timeout: 0.2), consumer.paused)
    seen.push(consumer.resume, consumer.poll(timeout: 10).payload, consumer.watermarks(name, 0))
    seen.push(code_of { consumer.seek(name, 7, 0) })
    seen << consumer.poll_batch(max: 1, timeout: 10).payloads
    seen << consumer.poll_batch(timeout: 0.2).class
    seen.push(code_of { consumer.mark(5) }, code_of { consumer.commit(5) }, consumer.mark(Penstock::Message.new(topic: "other")))
    seen.push(consumer.close.to_h, consumer.closed?, code_of { consumer.poll }, code_of { consumer.position(name, 0) })
    seen << consumer.close
  end

  def code_of
    yield
  rescue StandardError => e
    [e.class, (e.code if e.is_a?(Penstock::Error))]
  end

  # ---- feeding ----

  def test_fed_messages_have_offsets_and_are_those_that_are_polled
    one = fed
    given = [one.client.feed(topic: :orders, payload: "a", key: "k", headers: { "h" => "1" }, timestamp: 5),
             one.client.feed(topic: "orders", payload: nil, partition: 1),
             one.client.feed(Penstock::Message.new(topic: "orders", payload: "c", offset: 7)),
             one.client.feed(topic: "orders", payload: "d")]
    assert_equal [0, 0, 7, 8], given.map(&:offset)
    one.subscribe("orders")
    assert_equal given, Array.new(4) { one.poll }
    assert_nil one.poll
    assert_raises(ArgumentError) { one.client.feed(topic: "orders", payload: "e", offset: 8) }
    assert_raises(ArgumentError) { one.client.feed(topic: "orders", paylod: "e") }
  end

  def test_polls_do_not_wait
    one = fed_with
    assert_took(1, seconds_of { assert_nil one.poll(timeout: nil) })
    assert_empty one.poll_batch(timeout: 60)
    assert_raises(ArgumentError) { one.poll(timeout: -1) }
  end

  def test_only_subscribed_topics_are_read
    one = fed
    %w[orders news audit].each { |topic| one.client.feed(topic:, payload: topic) }
    one.subscribe("orders", "^aud.*")
    assert_equal %w[orders audit], one.poll_batch.payloads
    one.subscribe("news")
    assert_equal %w[news], one.poll_batch.payloads
    assert_equal({ "news" => [0] }, one.assignment)
    one.unsubscribe
    one.client.feed(topic: "news", payload: "late")
    assert_empty one.poll_batch
    assert_empty one.assignment
  end

  def test_assigned_partitions_are_read_from_their_offsets
    one = fed
    4.times { |i| 2.times { |partition| one.client.feed(topic: "orders", payload: "#{partition}-#{i}", partition:) } }
    one.assign("orders" => { 0 => 2, 1 => :end })
    assert_equal %w[0-2 0-3], one.poll_batch.payloads
    one.assign("orders" => [0])
    assert_equal %w[0-0 0-1 0-2 0-3], one.poll_batch.payloads
  end

  def test_each_ends_with_what_was_fed
    one = fed_with("a", "b")
    one.client.close_at_end
    seen = []
    assert_same one, (one.each { |message| seen << message.payload })
    assert_equal [%w[a b], true, 2], [seen, one.closed?, committed(one)]
  end

  def test_a_step_runs_when_a_poll_comes_to_it
    one = fed_with("a")
    stopping = false
    one.client.run { stopping = true }
    one.client.feed(topic: "orders", payload: "b")
    assert_equal [["a"], false], [one.poll_batch.payloads, stopping]
    assert_equal [["b"], true], [one.poll_batch.payloads, stopping]
    one.seek("orders", 0, 0)
    stopping = nil
    assert_equal [%w[a b], nil], [one.poll_batch.payloads, stopping]
  end

  def test_a_deserializer_decodes_what_is_fed
    one = fed_with("[1]", "bad") { |config| config.deserializer = :json }
    assert_equal [1], one.poll.value
    assert_equal 1, assert_raises(Penstock::DeserializationError) { one.poll.value }.offset
  end

  def test_reset_begins_anew_also_with_a_closed_consumer
    one = fed_with("a")
    one.poll
    one.client.fail_next(:unknown_topic).fail_next(:state, on: :seek)
    one.close
    one.client.reset.feed(topic: "orders", payload: "b")
    assert_equal [false, {}, {}, []], [one.closed?, one.client.committed, one.assignment, one.client.commits]
    one.subscribe("orders")
    assert_equal "b", one.poll.payload
    one.seek("orders", 0, 0)
  end

  # ---- what is processed and committed ----

  def test_what_is_processed_is_committed_at_once
    one = fed_with("a", "b", "c")
    one.poll
    assert_nil committed(one)
    one.poll
    assert_equal 1, committed(one)
    assert one.mark(one.poll)
    assert_equal 3, committed(one)
    assert_equal [1, 2, 3], (one.client.commits.map { |commit| commit["orders"][0] })
  end

  def test_without_auto_commit_only_commit_commits
    one = fed_with("a", "b", "enable.auto.commit": false)
    one.poll_batch
    one.poll
    assert_empty one.client.committed
    assert one.commit
    assert_equal 2, committed(one)
    one.close
    assert_equal 1, one.client.commits.size
  end

  def test_manual_marks_and_marks_at_once
    one = fed_with("a", "b") { |config| config.mark = :manual }
    first = one.poll
    one.poll
    one.poll
    assert_nil committed(one)
    one.mark(first)
    assert_equal 1, committed(one)
    one = fed_with("a", "b") { |config| config.mark = :at_once }
    one.poll_batch
    one.client.commits.clear
    one.poll
    assert_equal 2, committed(one)
  end

  def test_close_after_an_error_does_not_commit_the_message
    one = fed_with("a", "b")
    assert_raises(RuntimeError) { one.each { |message| raise "mine" if message.payload == "b" } }
    one.close
    assert_equal 1, committed(one)
  end

  def test_another_threads_work_is_not_committed
    one = fed_with("a", "b")
    quiet_thread { one.poll }.value
    one.poll
    one.poll
    assert_nil committed(one)
    one.commit
    assert_equal 2, committed(one)
  end

  # ---- rebalances ----

  def test_a_revoked_message_cannot_be_marked_or_committed
    one = fed_with("a") { |config| config.mark = :manual }
    message = one.poll
    one.client.revoke.assign("orders" => [0])
    assert_equal message, one.poll # what was not processed comes again
    assert_equal [false, false, nil], [one.mark(message), one.commit(message), committed(one)]
  end

  def test_epochs_grow_with_each_change_of_the_assignment
    one = fed_with("a")
    epochs = [one.poll_batch.epoch]
    one.client.assign("orders" => [1]).feed(topic: "orders", payload: "b")
    epochs << one.poll_batch.epoch
    one.client.revoke("orders" => [1]).feed(topic: "orders", payload: "c")
    batch = one.poll_batch
    epochs << batch.epoch
    assert_equal epochs.uniq.sort, epochs
    assert one.mark(batch)
  end

  def test_the_listener_is_called_in_the_poll
    start = { "orders" => [0] }
    listener = Noting.new { |kind, change| change.start_at("orders", 0, 1) if [kind, change.partitions] == [:assigned, start] }
    one = fed_with("a", "b") { |config| config.rebalance_listener = listener }
    assert_empty listener.told
    assert_equal "b", one.poll.payload
    one.client.assign("orders" => [1, 2]).revoke("orders" => [1]).lose("orders" => [2])
    one.poll
    one.close
    assert_equal [[:assigned, { "orders" => [0] }], [:assigned, { "orders" => [1, 2] }], [:revoked, { "orders" => [1] }],
                  [:lost, { "orders" => [2] }], [:revoked, { "orders" => [0] }]], listener.told
  end

  def test_a_listener_commits_what_is_revoked_but_not_what_is_lost
    results = {}
    listener = Noting.new { |kind, rebalance| results[kind] = rebalance.consumer.commit({ "orders" => { 0 => 1 } }) }
    %i[revoke lose].each do |change|
      one = fed_with("a", "enable.auto.commit": false) { |config| config.rebalance_listener = listener }
      one.poll
      one.client.public_send(change)
      one.poll
    end
    assert_equal({ assigned: true, revoked: true, lost: false }, results)
  end

  def test_pausing_an_unassigned_partition_raises_and_pauses_the_others
    one = fed_with("a")
    one.poll
    assert_equal :unknown_partition, assert_raises(Penstock::ConsumeError) { one.pause("orders" => [0, 1]) }.code
    assert_equal({ "orders" => [0] }, one.paused)
    one.client.revoke.assign("orders" => [0])
    one.poll
    assert_empty one.paused
  end

  def test_an_error_of_a_listener_comes_out_of_the_poll
    one = fed_with("a") { |config| config.rebalance_listener = Noting.new { |kind, _| raise "mine" if kind == :assigned } }
    assert_equal "mine", assert_raises(RuntimeError) { one.poll }.message
    assert_equal "a", one.poll.payload
  end

  slow def test_keep_alive_takes_what_the_group_does
    listener = Noting.new
    one = fed_with("a", "b") { |config| [config.mark = :manual, config.rebalance_listener = listener] }
    batch = one.poll_batch
    one.client.lose
    result = one.keep_alive do
      eventually { one.revoked?(batch) }
      one.client.assign("orders" => [0])
      eventually { one.assignment == { "orders" => [0] } }
      :done
    end
    assert_equal [:done, %i[assigned lost assigned], true], [result, listener.told.map(&:first), one.revoked?(batch.first)]
    assert_equal %w[a b], one.poll_batch.payloads
  end

  def test_membership_and_ends
    one = fed_with("a", "enable.partition.eof": true)
    assert_equal [:joining, nil], one.membership.to_a.first(2)
    batch = one.poll_batch
    assert_equal [{ "orders" => { 0 => 1 } }, :stable, :classic], [batch.ends, one.membership.state, one.membership.protocol]
    assert_empty one.poll_batch.ends
    one.seek("orders", 0, 1)
    assert_equal [{ "orders" => { 0 => 1 } }, []], one.poll_batch.then { |ended| [ended.ends, ended.to_a] }
  end

  # ---- failures ----

  def test_a_poll_fails_once_after_the_messages_before
    one = fed_with("a")
    one.client.fail_next(:unknown_topic).fail_next(IOError.new("mine")).feed(topic: "orders", payload: "b")
    assert_equal %w[a], one.poll_batch.payloads
    error = assert_raises(Penstock::ConsumeError) { one.poll }
    assert_equal [:unknown_topic, one.id], [error.code, error.consumer_id]
    assert_raises(IOError) { one.poll }
    assert_equal "b", one.poll.payload
  end

  def test_commits_and_questions_fail_once
    one = fed_with("a")
    message = one.poll
    one.client.fail_next(:illegal_generation, on: :commit).fail_next(:topic_authorization_failed, on: :commit)
    assert_equal false, one.commit({ "orders" => { 0 => 1 } })
    assert_equal :topic_authorization_failed, assert_raises(Penstock::CommitError) { one.commit(message) }.code
    assert one.commit(message)
    calls = { committed: ["orders", 0], watermarks: ["orders", 0], offsets_for_times: ["orders", 0, 0], seek: ["orders", 0, 0] }
    calls.each do |name, arguments|
      one.client.fail_next(Penstock::ConsumeTimeoutError.new("mine"), on: name)
      assert_raises(Penstock::ConsumeTimeoutError) { one.public_send(name, *arguments) }
      one.public_send(name, *arguments)
    end
    assert_raises(ArgumentError) { one.client.fail_next(5) }
    assert_raises(ArgumentError) { one.client.fail_next(:state, on: :nothing) }
  end

  def test_offsets_of_times
    one = fed
    [10, 20, 30].each { |timestamp| one.client.feed(topic: "orders", payload: "", timestamp:) }
    assert_equal({ 0 => 1, 1 => nil }, one.offsets_for_times("orders", [0, 1], 15))
  end

  # ---- where it is used ----

  def test_a_signal_trap_may_close_it
    one = fed_with("a")
    one.poll
    previous = trap("USR2") { one.close }
    Process.kill(:USR2, Process.pid)
    eventually { one.closed? }
    assert_nil committed(one)
  ensure
    trap("USR2", previous || "DEFAULT")
  end

  def test_a_fork_child_may_use_it
    one = fed_with("a")
    one.client
    reader, writer = IO.pipe
    pid = fork do
      writer << one.poll.payload
      exit!(0)
    end
    Process.wait(pid)
    writer.close
    assert_equal "a", reader.read
  end

  # Both began with message 0 when the listener, or two threads that met the first message at once, assigned the partition.
  def test_no_thread_reads_while_the_listener_of_another_ones_poll_decides_where_to_begin
    entered = Queue.new
    go = Queue.new
    listener = Noting.new do |kind, rebalance|
      next unless kind == :assigned

      entered << true
      go.pop
      rebalance.start_at("orders" => { 0 => 1 })
    end
    one = fed_with("a", "b", "c") { |config| config.rebalance_listener = listener }
    first = quiet_thread { one.poll(timeout: 0)&.payload }
    entered.pop
    assert_nil one.poll(timeout: 0)
    assert_empty one.poll_batch(timeout: 0)
    second = quiet_thread { one.poll(timeout: nil)&.payload }
    eventually { second.stop? }
    go << true
    assert_equal %w[b c], [first, second].map(&:value).sort
    assert_equal 1, listener.told.size
  ensure
    go << true
  end

  def test_threads_get_each_message_once
    one = fed_with
    300.times { |i| one.client.feed(topic: "orders", payload: i.to_s) }
    seen = Array.new(4) { quiet_thread { Array.new(100) { one.poll&.payload }.compact } }.flat_map(&:value)
    assert_equal [300, 300], [seen.size, seen.uniq.size]
  end
end

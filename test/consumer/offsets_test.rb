# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../support/raw_records"

# Where reading begins, what is committed, and what brokers say about offsets. The embedded cluster does not search by time:
# test/integration/consumer_offsets_test.rb does.
class ConsumerOffsetsTest < ConsumerTestCase
  slow(/is_sent_before|start_at/) # they join groups, which takes some seconds

  def filled(count, partitions: 1, on: cluster)
    name = on == cluster ? topic(partitions:) : "orders".tap { |topic| on.create_topic(topic, partitions:) }
    sender = on == cluster ? producer : producer(servers: on.bootstrap_servers)
    partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:, on: sender) }
    name
  end

  def member(name, start = :beginning, **kafka, &block)
    group_consumer("group-#{name}", "enable.auto.commit": false, **kafka, &block).assign(name => { 0 => start })
  end

  def offsets(consumer, count) = take(consumer, count).map { |message| [message.partition, message.offset] }.sort

  # ---- places to begin ----

  def test_the_last_messages_but_not_before_the_beginning
    name = filled(5, partitions: 2)
    one = consumer.assign(name => { 0 => [:last, 2], 1 => [:last, 50] })
    assert_equal [[0, 3], [0, 4], *Array.new(5) { |i| [1, i] }], offsets(one, 7)
    assert_equal [[0, 4]], offsets(consumer.assign({ name => { 0 => [:last, 1] } }, timeout: 5), 1)
    assert_equal({ name => { 0 => 0 } }, consumer.assign(name => { 0 => [:last, 0] }).lag)
  end

  def test_a_time_without_a_later_message_is_the_end
    name = filled(5)
    one = consumer.assign(name => { 0 => Time.now + 3600 })
    produce(name, ["later"])
    assert_equal [[0, 5]], offsets(one, 1)
  end

  def test_an_offset_object_is_a_place_to_begin
    name = filled(5)
    assert_equal 3, consumer.assign(name => { 0 => Penstock::Offset.new(offset: 3, leader_epoch: 0) }).poll(timeout: 10).offset
  end

  def test_seek_of_many_partitions
    name = filled(5, partitions: 3)
    one = reading(name, partitions: [0, 1, 2])
    take(one, 15)
    assert_same one, one.seek(name => { 0 => 4, 1 => [:last, 2], 2 => :end })
    assert_equal [[0, 4], [1, 3], [1, 4]], offsets(one, 3)
    one.seek({ name.to_sym => { 2 => :beginning } }, timeout: 5)
    assert_equal Array.new(5) { |i| [2, i] }, offsets(one, 5)
    assert_same one, one.seek({})
  end

  def test_a_failed_seek_names_its_partition_and_changes_the_others
    name = filled(5, partitions: 3)
    one = reading(name, partitions: [0, 2])
    take(one, 10)
    error = assert_raises(Penstock::ConsumeError) { one.seek(name => { 0 => 3, 1 => 0, 2 => 4 }) }
    assert_equal [:state, name, 1], [error.code, error.topic, error.partition]
    assert_equal [[0, 3], [0, 4], [2, 4]], offsets(one, 3)
  end

  def test_seek_to_the_stored_offset
    name = filled(5)
    one = member(name)
    take(one, 5)
    one.seek(name, 0, :stored) # none is: auto.offset.reset is earliest
    assert_equal 0, take(one, 5).first.offset
    one.commit({ name => { 0 => 3 } })
    one.seek(name, 0, :stored)
    assert_equal [[0, 3], [0, 4]], offsets(one, 2)
    error = assert_raises(Penstock::ConfigurationInvalidError) { reading(name).seek(name, 0, :stored) }
    assert_match(/group.id/, error.message)
  end

  def test_start_at_in_a_rebalance
    name = filled(5, partitions: 3)
    started = nil
    listener = Object.new
    listener.define_singleton_method(:assigned) do |rebalance|
      started = rebalance.start_at(name => { 0 => [:last, 2], 1 => Time.now + 60 })
      rebalance.start_at(name, 2, :stored)
    end
    one = group_consumer { |config| config.rebalance_listener = listener }.subscribe(name)
    assert_equal [[0, 3], [0, 4], *Array.new(5) { |i| [2, i] }], offsets(one, 7)
    assert_instance_of Penstock::Rebalance, started
    assert_nil one.poll(timeout: 0.2)
  end

  def test_invalid_places_raise_at_once
    one = unreachable_consumer("group.id": "g")
    [[:last], [:last, -1], [:last, "1"], [:first, 1], :sometime, -1, "5", nil, Time.at(-1), 2**63].each do |wrong|
      assert_raises(ArgumentError, wrong.inspect) { one.seek("topic", 0, wrong) }
      assert_raises(ArgumentError, wrong.inspect) { one.seek("topic" => { 0 => wrong }) }
      assert_raises(ArgumentError, wrong.inspect) { one.assign("topic" => { 0 => wrong }) } unless wrong.nil?
    end
    [-> { one.seek("topic" => [0]) }, -> { one.seek("topic", 0) }, -> { one.seek }, -> { one.assign }, -> { one.lag("topic") },
     -> { one.committed("topic") }, -> { one.watermarks("topic" => 5) }, -> { one.offsets_for_times({ "topic" => [0] }) },
     -> { one.commit({ "topic" => { 0 => :end } }) }, -> { one.seek("topic", 0, 1, timeout: -1) }].each_with_index do |call, i|
      assert_raises(ArgumentError, i.to_s, &call)
    end
    error = assert_raises(ArgumentError) { one.assign("topic" => [0, 1, 0]) }
    assert_equal "partition 0 of topic is given twice", error.message
    assert_raises(ArgumentError) { one.watermarks("topic" => [1], topic: [1]) }
  end

  # Librdkafka takes them for topics that somebody may still create.
  def test_what_no_topic_can_be_called_raises_at_once
    one = unreachable_consumer("group.id": "g")
    ["a b", "a\xFF", "\u00e4", "x" * 250, "", "a\0", "a\n", "..", :"a b"].each do |name|
      [-> { one.subscribe(name) }, -> { one.assign(name => [0]) }, -> { one.commit({ name => { 0 => 1 } }) },
       -> { one.lag(name => [0]) }, -> { one.committed(name, 0) },
       -> { one.watermarks(name, 0) }, -> { one.seek(name, 0, 1) }].each do |call|
        assert_match(/is not a valid topic name/, assert_raises(ArgumentError, name.inspect, &call).message)
      end
    end
  end

  def test_a_topic_that_is_subscribed_to_twice_counts_once
    name = topic(partitions: 1)
    produce(name, %w[a])
    assert_equal %w[a], take(group_consumer.subscribe(name, name.to_sym, [name]), 1).map(&:payload)
  end

  # ---- going back for good ----

  def test_a_seek_with_commit_goes_back_for_all_members
    name = filled(10)
    one = member(name, "enable.auto.commit": true, "auto.commit.interval.ms": 20)
    take(one, 10)
    one.poll(timeout: 0)
    asker = group_consumer("group-#{name}")
    eventually { asker.committed(name, 0) == { 0 => 10 } }
    one.seek(name, 0, [:last, 7], commit: true)
    10.times do # commits come every 20 ms
      assert_equal({ 0 => 3 }, asker.committed(name, 0))
      sleep 0.02
    end
    2.times { take(one, 1, batch: 1) && sleep(0.01) } # quick polls give librdkafka offsets every ms
    eventually { asker.committed(name, 0) == { 0 => 4 } }
    2.times do
      take(one, 5)
      one.poll(timeout: 0)
      eventually { asker.committed(name, 0) == { 0 => 10 } }
      one.seek({ name => { 0 => 5 } }, commit: true)
      assert_equal({ 0 => 5 }, asker.committed(name, 0))
    end
    one.close # commits what is stored
    assert_equal({ 0 => 5 }, asker.committed(name, 0))
  end

  def test_a_seek_without_commit_leaves_the_committed_offset
    name = filled(10)
    one = member(name)
    take(one, 10)
    assert one.commit
    one.seek(name, 0, 3)
    assert_equal({ 0 => 10 }, one.committed(name, 0))
    one.seek({ name => { 0 => :beginning } }, commit: true)
    assert_equal({ 0 => 0 }, one.committed(name, 0))
    assert_equal 0, one.poll(timeout: 10).offset
  end

  # ---- what brokers say ----

  def test_watermarks_of_many_partitions
    name = filled(4, partitions: 2)
    one = consumer
    assert_equal({ name => { 0 => [0, 4], 1 => [0, 4] } }, one.watermarks(name => [1, 0]))
    assert_equal [0, 4], one.watermarks(name, 1)
    assert_empty one.watermarks({})
    error = assert_raises(Penstock::ConsumeError) { one.watermarks(name => [0, 99]) }
    assert_equal [name, 99], [error.topic, error.partition]
  end

  def test_cached_watermarks_are_of_the_latest_fetch_and_ask_nobody
    name = filled(4)
    one = reading(name)
    take(one, 4)
    eventually { one.watermarks(name, 0, cached: true).last == 4 }
    assert_equal({ name => { 0 => [one.watermarks(name, 0, cached: true).first, 4], 1 => [nil, nil] } },
                 one.watermarks({ name => [0, 1] }, cached: true))
    assert_equal [nil, nil], unreachable_consumer.watermarks(name, 0, cached: true)
  end

  def test_a_leader_that_has_moved_is_found
    cluster = own_cluster(brokers: 3)
    cluster.create_topic("orders", partitions: 2, replication_factor: 3)
    one = consumer(servers: cluster.bootstrap_servers)
    assert_equal [0, 0], one.watermarks("orders", 0)
    [2, 3, 1].each do |broker|
      cluster.move_leader("orders", 0, broker)
      assert_equal({ "orders" => { 0 => [0, 0], 1 => [0, 0] } }, one.watermarks("orders" => [0, 1]))
    end
  end

  # A broker that fails takes the coordinator with it. Another one becomes it, and loads the group's offsets first.
  slow def test_committed_waits_until_the_group_has_a_coordinator_again
    own = own_cluster
    name = filled(1, on: own)
    one = group_consumer("group", servers: own.bootstrap_servers)
    one.commit({ name => { 0 => 1 } })
    %i[not_coordinator coordinator_load_in_progress coordinator_not_available].each do |error|
      own.inject_errors(:offset_fetch, [error] * 5)
      assert_equal({ 0 => 1 }, one.committed(name, 0), error)
    end
  end

  slow def test_an_error_that_passes_is_not_the_answer
    cluster = own_cluster
    cluster.create_topic("orders", partitions: 1)
    one = consumer(servers: cluster.bootstrap_servers)
    10.times do
      cluster.inject_errors(:list_offsets, :request_timed_out)
      assert_equal [0, 0], one.watermarks("orders", 0)
    end
  end

  # What brokers answer if the log is shorter than before, as the topic was created anew.
  def test_a_partition_that_goes_on_at_an_earlier_offset_is_reported
    own = own_cluster
    name = filled(3, on: own)
    one = consumer(servers: own.bootstrap_servers, "auto.offset.reset": "earliest")
    seen = Queue.new
    one.monitor.subscribe("partition.reset") { |event| seen << event.payload.values_at(:topic, :partition, :position, :offset) }
    one.assign(name => { 0 => 1 })
    take(one, 2)
    first = eventually do # a request without the partition takes the error away, too
      own.inject_errors(:fetch, :offset_out_of_range)
      one.poll(timeout: 1.5)
    end
    own.clear_errors(:fetch)
    assert_equal 0, first.offset
    one.poll(timeout: 0)
    assert_equal [name, 0, 3, 0], seen.pop(true)
  end

  # librdkafka gives up after one error, and does not fetch the partition any more. Penstock asks before it does, so there are 3.
  def test_a_partition_whose_committed_offset_cannot_be_read_begins_later
    own = own_cluster
    name = filled(10, partitions: 2, on: own)
    one = group_consumer(servers: own.bootstrap_servers) { |config| config.mark = :manual }
    one.commit({ name => { 0 => 3, 1 => 3 } })
    own.inject_errors(:offset_fetch, *([:policy_violation] * 3))
    one.assign(name => { 0 => 1, 1 => :stored })
    messages, codes = read_despite_errors(one, 16) { |batch| one.mark(batch) }
    offsets = messages.group_by(&:partition).transform_values { |list| list.map(&:offset) }
    assert_equal({ 0 => [*1..9], 1 => [*3..9] }, offsets)
    assert_includes codes, :policy_violation
    assert one.commit
    assert_equal({ 0 => 10, 1 => 10 }, one.committed(name, [0, 1]))
  end

  slow def test_a_member_whose_committed_offsets_cannot_be_read_begins_later
    offsets = %w[range cooperative-sticky].map do |strategy|
      own = own_cluster
      name = filled(10, on: own)
      one = group_consumer(servers: own.bootstrap_servers, "partition.assignment.strategy": strategy, log_level: 3)
      one.commit({ name => { 0 => 3 } })
      own.inject_errors(:offset_fetch, *([:policy_violation] * 3))
      one.subscribe(name)
      quiet_thread { read_despite_errors(one, 7).first.map(&:offset) }
    end
    assert_equal [[*3..9]] * 2, offsets.map(&:value)
  end

  # @return [Array(Array<Penstock::Message>, Array<Symbol>)] as many messages, and the codes of the errors
  def read_despite_errors(one, count)
    messages = []
    codes = []
    eventually(20, -> { "#{messages.size} of #{count} messages, and these errors: #{codes}" }) do
      batch = one.poll_batch(max: 4, timeout: 0.1)
      yield batch if block_given?
      messages.concat(batch.to_a).size >= count
    rescue Penstock::ConsumeError => e
      codes << e.code
      false
    end
    [messages, codes]
  end

  def test_lag_counts_from_the_position_or_the_committed_offset
    name = filled(10, partitions: 3)
    one = group_consumer("group-#{name}", "enable.auto.commit": false)
    one.commit({ name => { 1 => 4 } })
    one.assign(name => [0, 1, 2]).pause(name => [1, 2])
    take(one, 8) # of partition 0
    assert_equal({ name => { 0 => 2, 1 => 6, 2 => 10 } }, one.lag)
    assert_equal({ name => { 1 => 6 } }, one.lag({ name => [1] }, timeout: 5))
    assert_predicate one.lag(name => [1]).fetch(name), :frozen?
    assert_equal({ name => { 0 => 2 } }, one.lag({ name => [0] }, estimate: true))
    assert_equal({ name => { 3 => nil } }, one.lag({ name => [3] }, estimate: true)) # nothing was fetched
    assert_empty consumer.lag
  end

  # The offset of a transaction's marker comes with no message.
  def test_lag_is_zero_behind_offsets_without_messages
    name = filled(3)
    RawRecords.write_commit_marker(embedded_cluster, name)
    members = ["", "true", "false"].map { |ends| reading(name, **(ends.empty? ? {} : { "enable.partition.eof": ends })) }
    members.each do |one|
      take(one, 3)
      eventually { one.poll_batch(timeout: 0.01).empty? && one.lag == { name => { 0 => 0 } } }
      eventually { one.lag(estimate: true) == { name => { 0 => 0 } } }
      assert_equal 3, one.position(name, 0)
    end
  end

  def test_lag_after_a_seek_counts_from_there
    name = filled(10)
    one = reading(name)
    take(one, 10)
    assert_equal({ name => { 0 => 0 } }, one.lag)
    one.pause
    one.seek(name, 0, 4)
    assert_equal [{ name => { 0 => 6 } }] * 2, [one.lag, one.lag(estimate: true)]
  end

  def test_lag_counts_from_where_the_consumer_was_told_to_begin_and_not_from_the_committed_offset
    name = filled(10)
    one = member(name)
    one.commit({ name => { 0 => 8 } })
    lags = { beginning: 10, 3 => 7, end: 0, stored: 2 }.map do |start, lag|
      one.assign(name => { 0 => start })
      before = one.lag
      take(one, 1) unless start == :end
      one.pause
      one.seek(name, 0, start)
      [[before, one.lag], [{ name => { 0 => lag } }] * 2]
    end
    lags.each { |found, expected| assert_equal expected, found }
  end

  thorough def test_lag_counts_from_the_listeners_start
    name = filled(10)
    listener = Object.new
    listener.define_singleton_method(:assigned) { |rebalance| rebalance.start_at(name, 0, 2) }
    one = group_consumer("group-#{name}") { |config| config.rebalance_listener = listener }
    one.commit({ name => { 0 => 8 } })
    one.subscribe(name)
    one.keep_alive { eventually { one.assignment.any? } }
    assert_equal({ name => { 0 => 8 } }, one.lag)
  end

  def test_an_estimate_needs_no_broker
    name = filled(3)
    one = reading(name)
    take(one, 2, batch: 1)
    eventually { one.lag(estimate: true) == { name => { 0 => 1 } } }
    assert_equal({ "none" => { 0 => nil } }, unreachable_consumer.lag({ "none" => [0] }, estimate: true))
  end

  # ---- metadata ----

  slow def test_a_text_is_committed_beside_an_offset
    name = filled(5)
    one = member(name)
    assert one.commit({ name => { 0 => Penstock::Offset.new(offset: 5, metadata: "until 12:30, \u00e4\n") } })
    assert_equal({ 0 => 5 }, one.committed(name, 0))
    found = one.committed({ name => [0] }, metadata: true)
    assert_equal "until 12:30, \u00e4\n", found.dig(name, 0).metadata
    assert Ractor.shareable?(found.dig(name, 0))
    assert one.commit({ name => { 0 => 6 } })
    assert_nil one.committed(name, [0], metadata: true)[0].metadata
    assert_equal({ 0 => nil }, group_consumer.committed(name, 0, metadata: true))
  end

  # What another client has committed may be no text.
  def test_metadata_that_is_not_utf8_is_returned_as_the_bytes_that_were_committed
    name = filled(5)
    one = member(name)
    bytes = "\xFFa\xC3\x80".b
    assert one.commit({ name => { 0 => Penstock::Offset.__send__(:received, 5, nil, bytes) } })
    found = one.committed(name, 0, metadata: true)[0]
    assert_equal [5, bytes, Encoding::BINARY], [found.offset, found.metadata, found.metadata.encoding]
    assert Ractor.shareable?(found)
    assert one.commit({ name => { 0 => found } }), "it can be committed again"
    assert_equal found, one.committed(name, 0, metadata: true)[0]
  end

  # Until 2.6.1 librdkafka cannot send a 0 byte. Other clients can.
  def test_metadata_with_a_0_byte_is_returned_and_cannot_be_committed
    one = group_consumer
    Internal.of(one).client.define_singleton_method(:committed_offsets) do |places, _timeout|
      places.map { |name, number, *| [name, number, 5, nil, "a\0b"] }
    end
    found = one.committed("orders", 0, metadata: true)[0]
    assert_equal "a\0b", found.metadata
    assert_raises(ArgumentError) { one.commit({ "orders" => { 0 => found } }) }
  end

  def test_an_offset_is_a_value
    offset = Penstock::Offset.new(offset: 5, leader_epoch: 2, metadata: +"x")
    assert_equal offset, Penstock::Offset.new(offset: 5, leader_epoch: 2, metadata: "x")
    assert_equal 1, [offset, offset.dup].uniq.size
    refute_equal offset, Penstock::Offset.new(offset: 5)
    assert Ractor.shareable?(offset)
    assert_includes offset.inspect, "5"
    assert_equal({ "class" => "Penstock::Offset", "offset" => 5, "leader_epoch" => 2 }, offset.as_json)
    case offset
    in { offset: 5, metadata: String } then nil
    end
    [{ offset: -1 }, { offset: "5" }, { offset: 5, leader_epoch: -1 }, { offset: 5, metadata: :x }, { offset: 5, metadata: "\0" },
     { offset: 5, metadata: "a\xFF" }, { offset: 5, metadata: "\u00e4".encode("ISO-8859-1") },
     { offset: 5, metdata: "x" }, {}].each do |wrong|
      assert_raises(ArgumentError) { Penstock::Offset.new(**wrong) }
    end
  end

  # ---- asynchronous commits ----

  # A consumer whose log lines are in `@log`.
  def logged(servers, name)
    @log = StringIO.new
    one = group_consumer("group-#{name}", servers:, "enable.auto.commit": false) { |config| config.logger = Logger.new(@log) }
    one.assign(name => [0]).tap { one.committed(name, 0, timeout: 20) } # it knows its coordinator
  end

  REFUSED = %i[offset_metadata_too_large group_authorization_failed topic_authorization_failed invalid_group_id].freeze

  def failed_commits = @log.string.scan("not committed").size

  def test_asynchronous_commits_are_coalesced
    cluster = own_cluster
    gate = gate(cluster)
    name = filled(1, on: cluster)
    one = logged(gate.bootstrap_servers, name)
    cluster.inject_errors(:offset_commit, REFUSED) # different ones: the log does not repeat lines
    first = gate.hold(:offset_commit)
    one.commit({ name => { 0 => 0 } }, async: true)
    first.await_request
    9.times { |i| one.commit({ name => { 0 => i + 1 } }, async: true) && sleep(0.02) } # long enough to be sent
    first.release
    assert_predicate one.close, :complete?
    assert_equal 2, gate.requests(:offset_commit) # the first one, and all others
    eventually { failed_commits == 2 } # another thread writes the log
  end

  def test_an_asynchronous_commit_after_a_failed_one
    cluster = own_cluster
    name = filled(1, on: cluster)
    one = logged(cluster.bootstrap_servers, name)
    cluster.inject_errors(:offset_commit, REFUSED.first)
    assert one.commit({ name => { 0 => 29 } }, async: true)
    eventually { failed_commits == 1 }
    assert one.commit({ name => { 0 => 30 } }, async: true)
    eventually { one.committed(name, 0) == { 0 => 30 } }
    assert_equal 1, failed_commits
  end

  def test_asynchronous_commits_of_different_partitions_are_all_sent
    name = filled(1, partitions: 3)
    one = group_consumer("group-#{name}", "enable.auto.commit": false)
    3.times { |partition| one.commit({ name => { partition => partition + 1 } }, async: true) }
    eventually { one.committed(name, [0, 1, 2]) == { 0 => 1, 1 => 2, 2 => 3 } }
  end

  slow def test_an_asynchronous_commit_is_repeated_if_the_member_has_a_new_epoch
    cluster = own_cluster
    name = filled(1, on: cluster)
    one = logged(cluster.bootstrap_servers, name)
    cluster.inject_errors(:offset_commit, [113] * 3)
    one.commit({ name => { 0 => 7 } }, async: true)
    eventually { one.committed(name, 0) == { 0 => 7 } }
    assert_equal 0, failed_commits
  end

  slow def test_a_close_sends_what_waits
    name = filled(1)
    10.times do |i|
      one = member(name)
      one.committed(name, 0) if i.zero?
      3.times { |n| one.commit({ name => { 0 => (i * 3) + n } }, async: true) }
      assert_predicate one.close, :complete?
      assert_equal({ 0 => (i * 3) + 2 }, (@asker ||= group_consumer("group-#{name}")).committed(name, 0))
    end
  end

  # A revocation waits up to 5 s for commits that have no answer. Brokers reject what is sent later.
  thorough def test_what_waits_is_sent_before_partitions_are_given_up
    cluster = own_cluster
    gate = gate(cluster)
    name = filled(5, on: cluster)
    one = group_consumer("group", servers: gate.bootstrap_servers, "enable.auto.commit": false).subscribe(name)
    take(one, 5)
    first = gate.hold(:offset_commit)
    one.commit({ name => { 0 => 0 } }, async: true)
    first.await_request
    [1, 2].each { |offset| one.commit({ name => { 0 => offset } }, async: true) }
    one.unsubscribe
    one.poll(timeout: 0.1) until one.assignment.empty?
    eventually { gate.requests(:offset_commit) == 2 }
    first.release
    asker = group_consumer("group", servers: cluster.bootstrap_servers)
    eventually { asker.committed(name, 0) == { 0 => 2 } }
  end

  # One that a broker wants again keeps its turn.
  def test_a_repeated_commit_does_not_go_back_behind_a_later_one
    own = own_cluster
    name = filled(20, on: own)
    one = group_consumer("group", servers: own.bootstrap_servers, "enable.auto.commit": false).assign(name => { 0 => 0 })
    early, late = Array.new(2) { take(one, 10, batch: 10) }
    own.inject_errors(:offset_commit, :rebalance_in_progress)
    committing = Thread.new { one.commit(early.last) }
    sleep 0.01 until committing.status == "sleep"
    assert one.commit(late.last)
    assert committing.value
    assert_equal 20, one.committed(name, 0)[0]
  end

  def test_a_commit_of_a_batch_passes_nothing_on_which_others_work
    name = topic
    produce(name, Array.new(20, &:to_s))
    one = group_consumer("group-#{name}", "enable.auto.commit": false)
    one.assign(name => { 0 => 0 })
    early = take(one, 10, batch: 10)
    late = Thread.new { take(one, 10, batch: 10) }.value
    assert one.commit(late.last)
    assert_nil one.committed(name, 0)[0]
    assert one.commit(early.last)
    assert_equal 20, one.committed(name, 0)[0]
  end

  # ---- brokers that cannot be reached at first ----

  QUESTIONS = {
    watermarks: ->(one, name) { one.watermarks(name, 0, timeout: 60) },
    committed: ->(one, name) { one.committed(name, [0], timeout: 60) },
    offsets_for_times: ->(one, name) { one.offsets_for_times(name, [0], 0, timeout: 60) },
    lag: ->(one, name) { one.lag({ name => [0] }, timeout: 60) },
    seek: ->(one, name) { one.assign({ name => { 0 => [:last, 2] } }, timeout: 60).lag },
    partitions: ->(one, name) { Internal.of(one).client.partitions([[name, -1, -1]], 60).size }
  }.freeze

  # librdkafka's own question ends when no broker can be reached, after half a second. One of a name's addresses may be wrong.
  def test_questions_that_have_time_left_are_asked_until_a_broker_answers
    own = own_cluster
    name = filled(5, on: own)
    own.broker_down(1)
    kafka = { servers: own.bootstrap_servers, log_level: 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20 }
    ones = QUESTIONS.transform_values { group_consumer(**kafka) { |config| config.logger = Logger.new(nil) } }
    answers = QUESTIONS.to_h { |what, ask| [what, quiet_thread { ask.call(ones[what], name) }] }
    eventually { ones.each_value.all? { |one| one.metrics.errors.positive? } }
    waited = now
    eventually { answers.each_value.none?(&:alive?) || now - waited > 0.6 }
    own.broker_up(1)
    assert_equal({ watermarks: [0, 5], committed: { 0 => nil }, offsets_for_times: { 0 => nil }, lag: { name => { 0 => nil } },
                   seek: { name => { 0 => 2 } }, partitions: 1 }, answers.transform_values(&:value))
  end

  def test_a_question_that_nobody_answers_names_its_partition_when_its_time_is_up
    error = assert_raises(Penstock::ConsumeTimeoutError) { unreachable_consumer.watermarks("orders", 3, timeout: 0.7) }
    assert_equal [:timed_out, "orders", 3, true], [error.code, error.topic, error.partition, error.retriable?]
  end
end

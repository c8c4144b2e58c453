# frozen_string_literal: true

require_relative "../test_helper"

# What an admin client does for groups and offsets without a real Kafka: wrong arguments, and what the embedded cluster answers.
class AdminGroupsWithoutKafkaTest < PenstockTest
  def teardown
    @admin&.close(timeout: 5)
    @admin = nil
    super
  end

  def admin(servers = "127.0.0.1:1", **kafka, &)
    @admin ||= Penstock::Admin.new("bootstrap.servers": servers, log_level: 0, **kafka, &)
  end

  WRONG = {
    ->(it) { it.groups(states: :stabel) } => /no state :stabel of groups \(did you mean :stable\?\)/,
    ->(it) { it.groups(states: [:unknown]) } => /no state :unknown/,
    ->(it) { it.groups(types: "classic") } => /no type "classic"/,
    ->(it) { it.groups(:stable) } => /positional argument/,
    ->(it) { it.group(nil) } => /the id of a group must be/,
    ->(it) { it.describe_groups("a", "a") } => /the id of a group "a" is given twice/,
    ->(it) { it.delete_groups("a\0") } => /the id of a group must be/,
    ->(it) { it.delete_groups("a", wait: true) } => /unknown keyword: :wait/,
    ->(it) { it.group_offsets("a") } => /expected a Hash of groups, not String/,
    ->(it) { it.group_offsets({ "g" => {} }) } => /group "g": no partitions are given; nil stands for all/,
    ->(it) { it.group_offsets({ "g" => { "a" => 0 } }) } => /the partitions of "a" must be an Array of partitions/,
    ->(it) { it.group_offsets({ "g" => { "a" => [0, 0] } }) } => /partition 0 of "a" is given twice/,
    ->(it) { it.group_offsets({ "g" => { "a" => [-1] } }) } => /a partition of "a" must be an Integer from 0, not -1/,
    ->(it) { it.alter_group_offsets("g", { "a" => { 0 => nil } }) } => /the offset of partition 0 of "a" must be an Integer/,
    ->(it) { it.alter_group_offsets("g", { "a" => { 0 => -1 } }) } => /must be an Integer from 0 or an Offset, not -1/,
    ->(it) { it.alter_group_offsets("g", { a: { 0 => 1 } }) } => /the name of a topic must be a non-empty UTF-8 String/,
    ->(it) { it.delete_group_offsets("g", { "a" => { 0 => 1 } }) } => /must be an Array of partitions/,
    ->(it) { it.reset_group_offsets("g", to: :begin) } => /not :begin \(did you mean :beginning\?\)/,
    ->(it) { it.reset_group_offsets("g", to: { shift: 1.5 }) } => /to: must be/,
    ->(it) { it.reset_group_offsets("g", to: Time.at(-1)) } => /to: must be/,
    ->(it) { it.reset_group_offsets("g", to: 1, topics: [nil]) } => /the name of a topic must be/,
    ->(it) { it.offsets({ "a" => { 0 => :ende } }) } => /no place :ende \(did you mean :end\?\)/,
    ->(it) { it.offsets({ "a" => { 0 => 5 } }) } => /must be :beginning, :end, :max_timestamp or a Time, not 5/,
    ->(it) { it.offsets({ "a" => { 0 => :end } }, isolation: :read_comitted) } => /did you mean :read_committed\?/,
    ->(it) { it.delete_records({ "a" => { 0 => :beginning } }) } => /no place :beginning/,
    ->(it) { it.delete_records({ "a" => { 0 => -1 } }) } => /must be an Integer from 0, :end or a Time, not -1/,
    ->(it) { it.delete_records([]) } => /expected a Hash of topics, not Array/,
    ->(it) { it.lag("a", "a") } => /given twice/,
    ->(it) { it.lag("a", isolation: nil) } => /an isolation must be :read_uncommitted or :read_committed, not nil/,
    ->(it) { it.lag("a", timeout: 0) } => /above 0 and at most 3600/,
    ->(it) { it.elect_leaders(:prefered, nil) } => /did you mean :preferred\?/,
    ->(it) { it.elect_leaders(:preferred, { "a" => [true] }) } => /a partition of "a" must be/
  }.freeze

  WRONG.each_with_index do |(call, message), i|
    define_method(:"test_wrong_arguments_#{i}") do
      assert_match message, assert_raises(ArgumentError) { call[admin] }.message
      assert_equal :configured, admin.state # nothing is sent
    end
  end

  # ---- coordinators ----

  NOT_READY = %i[coordinator_load_in_progress coordinator_not_available not_coordinator].freeze

  # Without a group of its own, the client's librdkafka would end the process when a broker is no coordinator any more.
  NOT_READY.each do |code|
    define_method("test_offsets_are_read_once_the_coordinator_is_ready_after_#{code}") do
      on = with_offset("group-1", topic = "groups-#{rand(2**32)}")
      cluster.inject_errors(:offset_fetch, [code] * 2)
      found = on.group_offsets({ "group-1" => { topic => [0] }, "group-2" => nil })
      assert_equal [3, {}], [found["group-1"][topic][0].offset, found["group-2"]]
      cluster.inject_errors(:offset_fetch, [code] * 2)
      assert_predicate on.lag("group-1"), :ok? # the embedded cluster lists no offsets of all partitions
    ensure
      cluster.clear_errors(:offset_fetch)
    end
  end

  # librdkafka 2.0.2 stops to look for a coordinator after two retries, and leaves the request without an answer.
  thorough def test_offsets_are_set_and_read_when_the_group_has_a_coordinator_only_after_some_time
    cluster.create_topic(topic = "groups-#{rand(2**32)}")
    { alter_group_offsets: ["group-1", { topic => { 0 => 3 } }], group_offsets: [{ "group-1" => { topic => [0] } }] }
      .each do |name, arguments|
        cluster.inject_errors(:find_coordinator, [:coordinator_not_available] * 4)
        assert_predicate admin(cluster.bootstrap_servers).public_send(name, *arguments, timeout: 20), :ok?, name
      ensure
        cluster.clear_errors(:find_coordinator)
      end
  end

  thorough def test_brokers_may_become_reachable_within_the_timeout
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    admin { |config| config.unreachable_timeout = 0 } # waits for them
    [-> { admin.group_offsets({ "g" => nil }, timeout: 4.5) }, -> { admin.delete_groups("g", timeout: 4.5) }].each do |call|
      assert_raises(Penstock::AdminTimeoutError, &call)
    end
    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - began, :>, 8
  end

  slow def test_a_coordinator_that_is_not_ready_in_time_is_an_error
    on = with_offset("group-1", topic = "groups-#{rand(2**32)}")
    cluster.inject_errors(:offset_fetch, [:coordinator_load_in_progress] * 50)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    [on.group_offsets({ "group-1" => { topic => [0] } }, timeout: 1), on.lag("group-1", timeout: 1)].each do |found|
      error = found.errors["group-1"]
      assert_equal [:coordinator_load_in_progress, "group-1"], [error.code, error.group]
    end
    assert_took(5, Process.clock_gettime(Process::CLOCK_MONOTONIC) - began)
  ensure
    cluster.clear_errors(:offset_fetch)
  end

  # @return [Penstock::Admin] of the shared cluster, on which the group has committed offset 3 for partition 0
  def with_offset(group, topic)
    cluster.create_topic(topic)
    admin(cluster.bootstrap_servers).tap { |on| on.alter_group_offsets(group, { topic => { 0 => 3 } }).raise! }
  end

  # ---- offsets ----

  def test_offsets_while_a_leader_changes
    cluster.create_topic(topic = "groups-#{rand(2**32)}")
    on = admin(cluster.bootstrap_servers)
    cluster.inject_errors(:list_offsets, :not_leader_for_partition, :not_leader_for_partition)
    assert_equal 0, on.offsets({ topic => { 0 => :end } })[topic, 0]
  ensure
    cluster.clear_errors(:list_offsets)
  end

  # Until 2.10.0 librdkafka would ask the earlier one for a quarter of an hour.
  def test_a_leader_that_has_moved_is_found
    own = own_cluster(brokers: 3)
    own.create_topic("orders", partitions: 2, replication_factor: 3)
    on = admin(own.bootstrap_servers)
    %i[read_committed read_uncommitted].each do |isolation|
      [2, 3, 1].each do |broker|
        own.move_leader("orders", 0, broker)
        assert_equal [0, 0], on.offsets({ "orders" => { 0 => :end, 1 => :end } }, isolation:, timeout: 10).ok["orders"].values
      end
    end
  end

  # librdkafka then reports neither an offset nor an error for its partitions.
  def test_a_leader_that_does_not_answer_is_an_error
    skip "librdkafka #{Penstock.librdkafka_version} fails as a whole then" unless list_offsets?
    silent = own_cluster(brokers: 2)
    %w[t0 t1].each { |topic| silent.create_topic(topic) }
    silent.move_leader("t0", 0, 1)
    silent.move_leader("t1", 0, 2)
    on = admin(silent.bootstrap_servers)
    places = { "t0" => { 0 => :end }, "t1" => { 0 => :end } }
    on.offsets(places).raise!
    silent.set_round_trip_time(seconds: 5, broker: 2)
    found = on.offsets(places, timeout: 1)
    assert_equal 0, found["t0", 0]
    assert_kind_of Penstock::AdminTimeoutError, found.errors.dig("t1", 0)
  end

  def list_offsets? = Gem::Version.new(Penstock.librdkafka_version) >= Gem::Version.new("2.3.0")

  # ---- closing ----

  def test_close_closes_the_clients_for_group_offsets
    cluster.create_topic(topic = "groups-#{rand(2**32)}")
    on = admin(cluster.bootstrap_servers)
    before = open_clients
    on.group_offsets({ "group-2" => { topic => [0] } })
    assert_operator open_clients, :>, before
    assert on.close
    assert_raises(Penstock::AdminClosedError) { on.group_offsets({ "group-2" => nil }) }
    assert_raises(Penstock::AdminClosedError) { on.lag("group-2") }
    assert_equal before, open_clients
  end

  def open_clients = Internal::ProducerClient.open_count

  def test_close_in_a_signal_trap
    cluster.create_topic(topic = "groups-#{rand(2**32)}")
    on = admin(cluster.bootstrap_servers)
    on.group_offsets({ "group-3" => { topic => [0] } })
    assert_equal true, in_trap { on.close(timeout: 5) }
  end

  def test_credentials_reach_the_clients_for_group_offsets
    on = admin("127.0.0.1:1", "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "a",
                              "sasl.password": "b")
    assert_raises(Penstock::AdminError) { on.group_offsets({ "g" => nil }, timeout: 0.1)["g"] }
    on.set_credentials("c", "d")
    refute_match(/"d"/, Internal.of(on).instance_variable_get(:@readers).inspect)
  end

  # ---- values ----

  def test_group_listings_keep_groups_and_errors
    group = Penstock::Admin::GroupListing.new(id: "a", state: :empty, type: nil, simple: true)
    error = Penstock::AdminError.new("no", code: :timed_out)
    found = Penstock::Admin::GroupListings.new([group], [error])
    assert_equal [["a"], 1, group, nil], [found.ids, found.size, found["a"], found["b"]]
    refute_predicate found, :ok?
    assert_raises(Penstock::AdminError) { found.raise! }
    assert_equal :timed_out, found.errors.first.code
    assert_match(/errors/, found.inspect)
    assert Ractor.shareable?(found)
  end

  # With such answers, librdkafka's own assertions fail before Penstock sees them.
  def test_the_error_of_a_group_that_an_answer_lacks_names_the_group
    id = "a\n[b]"
    with_native(describe_groups: [[]], delete_groups: [[]], list_group_offsets: [[]]) do |on|
      [on.describe_groups(id), on.delete_groups(id)].each do |found|
        error = found.errors[id]
        assert_equal [id, id], [error.group, JSON.parse(error.to_json)["group"]]
        assert_includes error.message, "group a\\n[b]]"
        assert Ractor.shareable?(error)
      end
    end
  end

  # An admin client whose native client has these answers.
  def with_native(answers)
    native = Object.new
    def native.state = :open
    answers.each { |name, answer| native.define_singleton_method(name) { |*| answer } }
    def native.close(*) = true
    Internal.of(admin).instance_variable_get(:@readers).instance_variable_get(:@clients)[:groups] = native
    client = Internal.of(admin).instance_variable_get(:@client)
    Internal.of(admin).instance_variable_set(:@client, native)
    yield admin
  ensure
    Internal.of(admin).instance_variable_set(:@client, client)
  end

  # A coordinator that has just started loads the group first.
  def test_offsets_are_set_and_deleted_once_the_coordinator_has_loaded_the_group
    native = Object.new
    def native.state = :open
    loading = Penstock::AdminError.new("loading", code: :coordinator_load_in_progress)
    errors = [loading, loading, nil]
    %i[alter_group_offsets delete_group_offsets].each do |name|
      native.define_singleton_method(name) { |*| [[["t", 0, nil, nil, nil, errors.rotate!.last]]] }
    end
    on = admin
    client = Internal.of(on).instance_variable_get(:@client)
    Internal.of(on).instance_variable_set(:@client, native)
    assert_equal({ "t" => { 0 => true } }, on.alter_group_offsets("g", { "t" => { 0 => 1 } }, timeout: 5).to_h)
    assert_equal({ "t" => { 0 => true } }, on.delete_group_offsets("g", { "t" => [0] }, timeout: 5).to_h)
    errors.replace([loading])
    failed = on.alter_group_offsets("g", { "t" => { 0 => 1 } }, timeout: 0.4).errors
    assert_equal :coordinator_load_in_progress, failed["t"][0].code
  ensure
    Internal.of(on).instance_variable_set(:@client, client)
  end

  # A broker that did not answer must not hide the groups of the others.
  def test_groups_of_some_brokers
    native = Object.new
    def native.state = :open
    error = Penstock::AdminError.new("no answer", code: :timed_out)
    rows = [["a", 5, nil, true]]
    native.define_singleton_method(:list_groups) { |_| [[rows, [error]]] }
    on = admin
    client = Internal.of(on).instance_variable_get(:@client)
    Internal.of(on).instance_variable_set(:@client, native)
    found = on.groups
    assert_equal [["a"], [:timed_out]], [found.ids, found.errors.map(&:code)]
    rows.clear
    assert_raises(Penstock::AdminError) { on.groups }
  ensure
    Internal.of(on).instance_variable_set(:@client, client)
  end

  def test_partition_results
    error = Penstock::AdminError.new("no")
    found = Penstock::Admin::PartitionResults.new({ ["b", 1] => error, ["a", 2] => 5, ["a", 0] => nil })
    assert_equal({ "a" => { 0 => nil, 2 => 5 } }, found.ok)
    assert_equal({ "b" => { 1 => error } }, found.errors)
    assert_equal 5, found["a", 2]
    assert_equal 5, found.fetch(["a", 2])
    assert_raises(Penstock::AdminError) { found["b", 1] }
    assert_raises(KeyError) { found["c", 1] }
    assert_raises(Penstock::AdminError) { found.raise! }
    assert_raises(Penstock::AdminError) { found.values }
    assert_equal [3, true, false], [found.size, found.key?("a", 0), found.key?("a", 1)]
    assert_equal [["a", 0], ["a", 2], ["b", 1]], found.keys
    assert Ractor.shareable?(found)
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/admin_on_kafka"
require_relative "../support/secure_kafka"

# Groups and their committed offsets, on a real Apache Kafka.
class AdminGroupsTest < AdminOnKafka
  Admin = Penstock::Admin

  # ---- list ----

  def test_groups_lists_members_and_empty_groups
    topic = new_topic(1)
    full = random
    empty = random
    member(full, topic)
    admin.alter_group_offsets(empty, { topic => { 0 => 1 } }).raise!
    found = admin.groups
    assert_predicate found, :ok?
    assert_equal [:stable, false], [found[full].state, found[full].simple?]
    assert_equal [:empty, true], [found[empty].state, found[empty].simple?]
    assert_equal (:classic if since?("2.6.0")), found[full].type
    assert_includes admin.groups(states: :empty).ids, empty
    refute_includes admin.groups(states: %i[empty]).ids, full
    assert Ractor.shareable?(found)
  end

  def test_groups_by_type
    topic = new_topic(1)
    classic = random
    consumer = random
    member(classic, topic)
    unless since?("2.6.0")
      assert_raises(Penstock::UnsupportedError) { admin.groups(types: :classic) }
      return
    end
    assert_includes admin.groups(types: [:classic]).ids, classic
    requires("2.12")
    member(consumer, topic, "group.protocol": "consumer")
    assert_equal :consumer, admin.groups(types: :consumer)[consumer].type
    refute_includes admin.groups(types: :consumer).ids, classic
  end

  # ---- describe ----

  def test_group_describes_members
    topic = new_topic(1, partitions: 3)
    id = random
    member(id, topic, "client.id": "first", "group.instance.id": "one")
    group = admin.group(id)
    assert_equal [id, :stable, "range", false], [group.id, group.state, group.assignor, group.simple?]
    assert_equal SERVERS.split(",").first.split(":").last.to_i, group.coordinator.port
    only = group.members.fetch(0)
    assert_equal ["first", "127.0.0.1", "one"], [only.client_id, only.host, only.instance_id]
    assert_equal({ topic => [0, 1, 2] }, only.assignment)
    assert_nil only.target
    assert_equal (:classic if since?("2.10")), group.type
    assert Ractor.shareable?(group)
  end

  def test_describe_groups_of_the_newer_type
    requires("2.12")
    topic = new_topic(1, partitions: 2)
    id = random
    member(id, topic, "group.protocol": "consumer")
    eventually(30) { admin.group(id).state == :stable }
    group = admin.group(id)
    assert_equal [:consumer, "uniform"], [group.type, group.assignor]
    assert_equal({ topic => [0, 1] }, group.members.fetch(0).assignment)
    assert_equal({ topic => [0, 1] }, group.members.fetch(0).target)
  end

  # Kafka's own consumer makes the group, as an old librdkafka cannot.
  def test_an_old_librdkafka_says_that_it_cannot_describe_the_newer_type
    skip "librdkafka #{Penstock.librdkafka_version} can" if since?("2.10")
    topic = new_topic(1)
    id = random
    java = IO.popen([File.expand_path("../../bin/kafka", __dir__), "java", "org.apache.kafka.tools.consumer.ConsoleConsumer",
                     "--bootstrap-server", SERVERS, "--topic", topic, "--group", id, "--command-property",
                     "group.protocol=consumer"], err: File::NULL)
    eventually(60) { admin.groups[id]&.state == :stable }
    assert_raises(Penstock::UnsupportedError) { admin.group(id) }
  ensure
    Process.kill(:TERM, java.pid) if java
    java&.close
  end

  def test_a_group_that_does_not_exist_is_an_error
    topic = new_topic
    id = random
    missing = random
    admin.alter_group_offsets(id, { topic => { 0 => 0 } }).raise!
    found = admin.describe_groups(id, missing)
    assert_equal :empty, found[id].state
    assert_code(:group_id_not_found) { found[missing] }
    assert_equal missing, assert_code(:group_id_not_found) { admin.group(missing) }.group
    assert_empty admin.describe_groups
  end

  def test_authorized_operations_of_a_group
    topic = new_topic
    id = random
    admin.alter_group_offsets(id, { topic => { 0 => 0 } }).raise!
    assert_nil admin.group(id).authorized_operations
    if since?("2.3")
      assert_includes admin.group(id, authorized_operations: true).authorized_operations, :delete
    else
      assert_raises(Penstock::UnsupportedError) { admin.group(id, authorized_operations: true) }
    end
  end

  # ---- delete ----

  def test_delete_groups_in_part
    topic = new_topic(1)
    full = random
    empty = random
    missing = random
    member(full, topic)
    admin.alter_group_offsets(empty, { topic => { 0 => 1 } }).raise!
    found = admin.delete_groups(full, empty, missing)
    assert_equal({ empty => true }, found.ok)
    assert_equal({ full => :non_empty_group, missing => :group_id_not_found }, found.errors.transform_values(&:code))
    assert_equal [full, missing], found.errors.values.map(&:group)
    assert_empty admin.group_offsets({ empty => nil })[empty]
    assert_empty admin.delete_groups
  end

  # ---- offsets ----

  def test_group_offsets_of_some_and_all_partitions
    topic = new_topic(3, partitions: 2)
    one = random
    two = random
    kept = Penstock::Offset.new(offset: 2, metadata: "until noon", leader_epoch: 0)
    admin.alter_group_offsets(one, { topic => { 0 => kept } }).raise!
    admin.alter_group_offsets(two, { topic => { 1 => 1 } }).raise!
    found = admin.group_offsets({ one => { topic => [0, 1] }, two => nil, random => nil })
    assert_equal 3, found.ok.size
    assert_equal [2, "until noon", (0 if since?("2.1"))], found[one][topic][0].to_h.values_at(:offset, :metadata, :leader_epoch)
    assert_nil found[one][topic].fetch(1)
    assert_equal({ topic => { 1 => Penstock::Offset.new(offset: 1) } }, found[two])
    assert Ractor.shareable?(found)
    admin.alter_group_offsets(copy = random, found[two]).raise!
    assert_equal found[two], admin.group_offsets({ copy => nil })[copy]
  end

  def test_alter_group_offsets_in_part
    topic = new_topic(3)
    id = random
    found = admin.alter_group_offsets(id, { topic => { 0 => 3, 7 => 1 } })
    assert_equal({ topic => { 0 => true } }, found.ok)
    error = assert_code(:unknown_topic_or_part) { found[topic, 7] }
    assert_equal [id, topic, 7], [error.group, error.topic, error.partition]
  end

  def test_offsets_of_a_group_with_members_cannot_be_altered
    topic = new_topic(3)
    id = random
    member(id, topic)
    error = assert_code(:unknown_member_id) { admin.alter_group_offsets(id, { topic => { 0 => 1 } }).raise! }
    assert_match(/only while it is empty/, error.message)
    assert_code(:unknown_member_id) { admin.reset_group_offsets(id, to: :end, topics: [topic])[topic, 0] }
    assert_code(:group_subscribed_to_topic) { admin.delete_group_offsets(id, { topic => [0] })[topic, 0] }
  end

  def test_delete_group_offsets
    topic = new_topic(3, partitions: 2)
    id = random
    admin.alter_group_offsets(id, { topic => { 0 => 3, 1 => 2 } }).raise!
    found = admin.delete_group_offsets(id, { topic => [0], "#{topic}-missing" => [0] })
    assert_equal({ topic => { 0 => true } }, found.ok)
    assert_code(:unknown_topic_or_part) { found.raise! }
    assert_equal [1], admin.group_offsets({ id => nil })[id][topic].keys
    missing = random
    error = assert_code(:group_id_not_found) { admin.delete_group_offsets(missing, { topic => [0] }) }
    assert_equal missing, error.group
    assert_includes error.message, "group #{missing}]"
  end

  def test_offsets_that_an_open_transaction_commits_are_unstable
    topic = new_topic(3)
    id = random
    admin.alter_group_offsets(id, { topic => { 0 => 1 } }).raise!
    sender = producer("transactional.id": random)
    reader = consumer("group.id": id)
    reader.assign(topic => { 0 => 1 })
    message = take(reader, 1).first
    unstable = nil
    sender.transaction do
      sender.transaction_mark_as_consumed(reader, message)
      assert_equal 1, admin.group_offsets({ id => nil })[id][topic][0].offset
      unstable = admin.group_offsets({ id => nil }, stable: true)
    end
    assert_code(:unstable_offset_commit) { unstable[id] }
    eventually(30) { admin.group_offsets({ id => nil }, stable: true).ok? } # the commit reaches the group a moment later
    assert_equal 2, admin.group_offsets({ id => nil }, stable: true)[id][topic][0].offset
  end

  # ---- reset ----

  { beginning: 2, end: 10, (AdminOnKafka::START + 7.5) => 8, Time.at(1) => 2, Time.now => 10, 5 => 5, 0 => 2, 99 => 10,
    { shift: -1 } => 5, { shift: -100 } => 2, { shift: 100 } => 10 }.each do |to, expected|
    define_method(:"test_reset_to_#{to.inspect.gsub(/\W+/, "_")}_becomes_#{expected}") do
      topic = new_topic(10)
      id = random
      admin.delete_records({ topic => { 0 => 2 } }).raise!
      admin.alter_group_offsets(id, { topic => { 0 => 6 } }).raise!
      change = Admin::OffsetChange.new(before: 6, after: expected)
      assert_equal({ topic => { 0 => change } }, admin.reset_group_offsets(id, to:, dry_run: true).ok)
      assert_equal 6, admin.group_offsets({ id => nil })[id][topic][0].offset
      assert_equal change, admin.reset_group_offsets(id, to:)[topic, 0]
      assert_equal expected, admin.group_offsets({ id => nil })[id][topic][0].offset
    end
  end

  def test_reset_of_chosen_topics_and_partitions
    topic = new_topic(4, partitions: 2)
    other = new_topic(1)
    id = random
    admin.alter_group_offsets(id, { topic => { 0 => 1 }, other => { 0 => 1 } }).raise!
    found = admin.reset_group_offsets(id, to: :end, topics: [topic])
    assert_equal({ topic => { 0 => [1, 4], 1 => [nil, 4] } }, changes(found))
    assert_equal({ topic => { 1 => [4, 2] } }, changes(admin.reset_group_offsets(id, to: 2, topics: { topic => [1] })))
    assert_equal({ topic => { 0 => [4, 0], 1 => [2, 0] }, other => { 0 => [1, 0] } },
                 changes(admin.reset_group_offsets(id, to: :beginning)))
  end

  def changes(results) = results.raise!.ok.transform_values { |found| found.transform_values { |change| change.to_h.values } }

  def test_reset_in_part
    topic = new_topic(4, partitions: 2)
    id = random
    admin.alter_group_offsets(id, { topic => { 0 => 1 } }).raise!
    found = admin.reset_group_offsets(id, to: { shift: 1 }, topics: { topic => [0, 1], "#{topic}-missing" => [0] })
    assert_equal 2, found[topic, 0].after
    assert_match(/no offset to shift/, assert_raises(Penstock::AdminError) { found[topic, 1] }.message)
    assert_raises(Penstock::AdminError) { found["#{topic}-missing", 0] }
    error = assert_raises(Penstock::AdminError) { admin.reset_group_offsets(random, to: 1) }
    assert_match(/has committed no offsets/, error.message)
  end

  # ---- rights ----

  def test_a_user_without_the_right
    topic = new_topic(1)
    other = random
    guest = new_admin(**SecureKafka::AS_GUEST, "bootstrap.servers": SecureKafka::SASL)
    hidden = new_topic(0, prefix: "hidden")
    found = guest.alter_group_offsets(other, { topic => { 0 => 1 }, hidden => { 0 => 1 } })
    assert_equal true, found[topic, 0]
    assert_code(:topic_authorization_failed) { found[hidden, 0] }
    error = assert_code(:topic_authorization_failed) { guest.group_offsets({ other => { hidden => [0] } })[other] }
    assert_equal [other, hidden], [error.group, error.topic]
    assert_equal({ topic => { 0 => Penstock::Offset.new(offset: 1) } }, guest.group_offsets({ other => nil })[other])
  end
end

# frozen_string_literal: true

require_relative "../support/allocation_counts"
AllocationCounts.preload
require "penstock"
require_relative "../support/kafka_cluster"

# Makes every call of an admin client 10,000 times on a real Kafka, with answers that are partly errors. Checks that every
# object of librdkafka that Penstock created is destroyed, and that memory, descriptors and threads do not grow.
#
#   rake test:admin_loops [ROUNDS=10000] [ONLY=lag] [PENSTOCK_KAFKA=HOST:PORT]
class AdminLoops
  TOPIC = "penstock-loops"
  GROUP = "penstock-loops"
  NONE = "penstock-loops-none"
  ALL = { TOPIC => { 0 => :beginning, 1 => :end, 9 => :end }, NONE => { 0 => :end } }.freeze
  ACL = Penstock::Admin::Acl.new(topic: TOPIC, principal: "User:loops", operation: :read)
  BYTES = 32 # allowed growth of memory for each call, besides SLACK
  SLACK = 4 << 20

  CALLS = {
    "create_topics" => ->(admin, _) { admin.create_topics({ NONE => {}, TOPIC => {} }, validate_only: true) },
    "create_partitions" => ->(admin, _) { admin.create_partitions({ TOPIC => 5, NONE => 5 }, validate_only: true) },
    "delete_topics" => ->(admin, _) { admin.delete_topics(NONE) },
    "topics" => ->(admin, _) { admin.topics(TOPIC, NONE) },
    "all topics" => ->(admin, _) { admin.topics },
    "cluster" => ->(admin, _) { admin.cluster(authorized_operations: modern?) },
    "configs" => ->(admin, _) { admin.configs(topics: [TOPIC, NONE], brokers: [1]) },
    "alter_configs" => ->(admin, i) { admin.alter_configs({ topics: { TOPIC => { "retention.ms" => 86_400_000 + i } } }) },
    "groups" => ->(admin, _) { admin.groups },
    "describe_groups" => ->(admin, _) { admin.describe_groups(GROUP, NONE) },
    "delete_groups" => ->(admin, _) { admin.delete_groups(NONE) },
    "group_offsets" => ->(admin, _) { admin.group_offsets({ GROUP => nil, NONE => nil }) },
    "stable group_offsets" => ->(admin, _) { admin.group_offsets({ GROUP => nil }, stable: true) },
    "alter_group_offsets" => ->(admin, i) { admin.alter_group_offsets(GROUP, { TOPIC => { 0 => i, 9 => i } }) },
    "reset_group_offsets" => ->(admin, _) { admin.reset_group_offsets(GROUP, to: :beginning) },
    "delete_group_offsets" => ->(admin, _) { admin.delete_group_offsets(GROUP, { TOPIC => [1], NONE => [0] }) },
    "lag" => ->(admin, _) { admin.lag(GROUP, NONE) },
    "offsets" => ->(admin, _) { admin.offsets(ALL) },
    "offsets of times" => ->(admin, _) { admin.offsets({ TOPIC => { 0 => Time.at(0), 9 => Time.now } }) },
    "delete_records" => ->(admin, _) { admin.delete_records({ TOPIC => { 0 => 0, 1 => 99_999_999 } }) },
    "elect_leaders" => ->(admin, _) { admin.elect_leaders(:preferred, { TOPIC => [0], NONE => [0] }) },
    "create_acls" => ->(admin, _) { admin.create_acls(ACL) },
    "acls" => ->(admin, _) { admin.acls(topic: TOPIC) },
    "delete_acls" => ->(admin, _) { admin.delete_acls({ topic: TOPIC }) },
    "scram_users" => ->(admin, _) { admin.scram_users("nobody") },
    "alter_scram_users" => ->(admin, _) { admin.alter_scram_users(delete: { "nobody" => :"SCRAM-SHA-256" }) },
    "plan" => ->(admin, _) { admin.plan(CATALOG) },
    "a timeout" => ->(_, _) { LONELY.topics(timeout: 0.01) },
    "a request's timeout" => ->(_, _) { LONELY.create_topic(NONE, timeout: 0.01) }
  }.freeze
  CATALOG = Penstock::Admin::TopicCatalog.new do |declare|
    declare.topic TOPIC, partitions: 3
    declare.topic NONE, partitions: 1
  end
  LONELY = Penstock::Admin.new("bootstrap.servers": "127.0.0.1:1", log_level: 0)

  def self.modern? = Gem::Version.new(Penstock.librdkafka_version) >= Gem::Version.new("2.3")

  def initialize(servers, rounds)
    @admin = Penstock::Admin.new("bootstrap.servers": servers, log_level: 0)
    @rounds = rounds
  end

  def prepare
    @admin.create_topic(TOPIC, partitions: 3)
  rescue Penstock::AdminError => e
    raise unless e.code == :topic_already_exists
  end

  # @return [Boolean] whether nothing is left of the calls
  def call(name)
    @admin.alter_group_offsets(GROUP, { TOPIC => { 0 => 1, 1 => 1 } }).raise!
    errors = Hash.new(0)
    repeat(name, [@rounds / 20, 10].max, errors)
    before = state
    start = now
    repeat(name, @rounds, errors)
    after = state
    report(name, before, after, now - start, errors)
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def repeat(name, rounds, errors)
    rounds.times do |i|
      answer = CALLS.fetch(name).call(@admin, i)
      answer.errors.then { |found| codes(found).each { |code| errors[code] += 1 } } if answer.respond_to?(:errors)
    rescue Penstock::Error => e
      errors[e.code || e.class.name] += 1
    end
  end

  # @return [Array<Symbol>] of errors, in Arrays or Hashes
  def codes(errors)
    case errors
    when Hash then errors.values.flat_map { |each| codes(each) }
    when Array then errors.flat_map { |each| codes(each) }
    else [errors.code]
    end
  end

  # @return [Array(Hash, Integer, Integer, Integer)] objects that are not destroyed, bytes, descriptors, threads
  def state
    4.times { GC.start }
    objects = AllocationCounts.counts.transform_values { |created, destroyed| created - destroyed }
    [objects, File.read("/proc/self/statm").split[1].to_i * 4096, Dir.children("/proc/self/fd").size,
     Dir.children("/proc/self/task").size]
  end

  def report(name, before, after, seconds, errors)
    left = after[0].to_h { |kind, count| [kind, count - before[0].fetch(kind, 0)] }.reject { |_, count| count.zero? }
    grown = after[1] - before[1]
    fine = left.empty? && grown < SLACK + (@rounds * BYTES) && after[2] <= before[2] + 1 && after[3] <= before[3] + 1
    puts format("%<state>s %<name>-22s %<rounds>6d calls, %<ms>6.2f ms each, memory %<kib>+6d KiB, left: %<left>s, " \
                "errors: %<errors>s",
                state: fine ? "ok    " : "FAILED", name:, rounds: @rounds, ms: seconds * 1000 / @rounds, kib: grown / 1024, left:,
                errors:)
    fine
  end
end

$stdout.sync = true
run = lambda do |servers|
  loops = AdminLoops.new(servers, Integer(ENV.fetch("ROUNDS", "10000"))).tap(&:prepare)
  names = AdminLoops::CALLS.keys.select { |name| name.include?(ENV.fetch("ONLY", "")) }
  abort "objects or memory are left" unless names.map { |name| loops.call(name) }.all?
end
if ENV["PENSTOCK_KAFKA"]
  run.call(ENV["PENSTOCK_KAFKA"])
else
  KafkaCluster.with(1) { |kafka| run.call(kafka.servers) }
end

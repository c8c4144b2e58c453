# frozen_string_literal: true

require "penstock"
require_relative "../support/gvl_share"
require_relative "../support/kafka_cluster"
require_relative "../support/limited"

# Measures an admin client on a real Kafka with many topics and groups:
#
# - describing 1,000 topics of 10 partitions takes less than 0.5 s, and other threads run meanwhile;
# - the lag of 100 groups over 1,000 partitions equals what Kafka's own tool prints, with committed, aborted and open
#   transactions, and with their markers at the ends.
#
#   rake test:admin_scale [TOPICS=1000] [GROUPS=100] [PENSTOCK_KAFKA=HOST:PORT]
class AdminScale
  TOPICS = Integer(ENV.fetch("TOPICS", "1000"))
  GROUPS = Integer(ENV.fetch("GROUPS", "100"))
  PARTITIONS = 10
  LONG = 600 # seconds
  MOST = 0.5 # seconds
  SHARE = 0.95
  LAGGING = 1_000 / PARTITIONS # topics

  def initialize(servers)
    @servers = servers
    @admin = Penstock::Admin.new("bootstrap.servers": servers)
    @topics = Array.new(TOPICS) { |i| format("scale-%04d", i) }
    @groups = Array.new(GROUPS) { |i| format("scale-%03d", i) }
  end

  # @return [Boolean] whether it stayed within the bars
  def call
    prepare
    describes = describe
    lags = lag
    describes && lags
  ensure
    @admin.close
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def seconds
    start = now
    [yield, now - start]
  end

  def prepare
    known = @admin.topics(timeout: LONG).keys
    (@topics - known).each_slice(50) do |names|
      @admin.create_topics(names.to_h { |name| [name, { partitions: PARTITIONS }] }, wait: false, timeout: LONG).raise!
    end
    sleep 0.5 until led == TOPICS
  end

  def led
    @admin.topics(timeout: LONG).ok.values_at(*@topics).compact.count { |topic| topic.partitions.all?(&:leader) }
  end

  # ---- topics ----

  def describe
    @admin.topics(*@topics)
    runs = Array.new(5) { seconds { @admin.topics(*@topics).raise! } }
    described = runs.last.first.ok
    whole = described.size == TOPICS && described.each_value.all? { |topic| topic.partitions.size == PARTITIONS }
    share = share_beside { @admin.topics(*@topics) }
    fastest, slowest = runs.map(&:last).minmax
    puts format("%<topics>d topics of %<partitions>d partitions: %<fastest>.3f to %<slowest>.3f s; a thread that counts had " \
                "%<share>.1f %% of its time while they were described every half second",
                topics: TOPICS, partitions: PARTITIONS, fastest:, slowest:, share: share * 100)
    whole && slowest < MOST && share > SHARE
  end

  # The share of a thread that counts while another describes the topics once each MOST seconds: the bar of one call.
  def share_beside(&block)
    thread = Thread.new { loop { (_, took = seconds(&block)) && sleep([MOST - took, 0].max) } }
    GVLShare.while_counting(5)
  ensure
    thread.kill.join
  end

  # ---- lag ----

  def lag
    write
    commit
    open = transactional("scale-open")
    equal = nil
    open.transaction do
      open.produce_many_sync(lagging.each_slice(7).map { |all| { topic: all[0][0], partition: all[0][1], payload: "open" } })
      equal = compare
      raise Penstock::AbortTransaction
    end
    equal
  ensure
    open&.close
  end

  def lagging = @topics.first(LAGGING).flat_map { |topic| Array.new(PARTITIONS) { |partition| [topic, partition] } }

  # Of each three partitions, one ends with a message, one with the marker of a commit, and one with that of an abort.
  def write
    plain, committed, aborted = Array.new(3) { |i| lagging.each_with_index.filter_map { |place, at| place if at % 3 == i } }
    sender = Penstock::Producer.new("bootstrap.servers": @servers)
    sender.produce_many_sync(messages(lagging, 5) + messages(plain, 2))
    sender.close
    writer = transactional("scale")
    writer.transaction { writer.produce_many_sync(messages(committed, 3)) }
    writer.transaction { writer.produce_many_sync(messages(aborted, 3)) && raise(Penstock::AbortTransaction) }
    writer.close
  end

  def transactional(id)
    Penstock::Producer.new("bootstrap.servers": @servers, "transactional.id": id, "transaction.timeout.ms": 600_000)
  end

  def messages(places, count)
    places.flat_map { |topic, partition| Array.new(count) { |i| { topic:, partition:, payload: i.to_s } } }
  end

  def commit
    @groups.each_with_index do |group, i|
      places = lagging.each_with_index.group_by { |(topic, _), _| topic }
      offsets = places.transform_values { |all| all.to_h { |(_, partition), at| [partition, (i + at) % 6] } }
      @admin.alter_group_offsets(group, offsets, timeout: LONG).raise!
    end
  end

  def compare
    found, took = seconds { @admin.lag(*@groups, isolation: :read_uncommitted, timeout: LONG).raise!.ok }
    _, committed = seconds { @admin.lag(*@groups, timeout: LONG).raise! }
    tool, tools = seconds { kafka_lag }
    wrong = @groups.sum { |group| places_of(found[group]).count { |key, lag| tool[[group, *key]] != lag } }
    places = found.sum { |_, topics| topics.sum { |_, partitions| partitions.size } }
    puts format("lag of %<groups>d groups, %<places>d places: %<took>.2f s (read_committed: %<committed>.2f s); Kafka's tool " \
                "%<tools>.1f s, %<wrong>d differ", groups: GROUPS, places:, took:, committed:, tools:, wrong:)
    wrong.zero? && places == GROUPS * LAGGING * PARTITIONS
  end

  def places_of(topics) = topics.flat_map { |topic, all| all.map { |partition, lag| [[topic, partition], lag] } }

  # @return [Hash{Array => Integer}] by group, topic and partition
  def kafka_lag
    output, = Limited.capture2e(KafkaCluster::KAFKA, "java", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
                                "--bootstrap-server", @servers, "--describe", "--all-groups", "--timeout", "300000")
    output.each_line.map(&:split).select { |row| row[0]&.start_with?("scale-") && row[5]&.match?(/\A\d+\z/) }
          .to_h { |row| [[row[0], row[1], Integer(row[2])], Integer(row[5])] }
  end
end

$stdout.sync = true
run = ->(servers) { AdminScale.new(servers).call or abort "a bar was missed" }
if ENV["PENSTOCK_KAFKA"]
  run.call(ENV["PENSTOCK_KAFKA"])
else
  KafkaCluster.with(1) { |kafka| run.call(kafka.servers) }
end
puts "Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"

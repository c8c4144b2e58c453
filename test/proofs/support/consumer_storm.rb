# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require "securerandom"
require "tmpdir"
require_relative "../../support/each_once"
require_relative "../../support/kafka_topics"
require_relative "consumer_storm/checker"
require_relative "consumer_storm/threads_checker"
require_relative "consumer_storm/member"

# A group whose members join, close, and get SIGKILL or SIGSTOP all the time, while messages are sent and partitions are added.
# Members are processes. Each keeps a ledger, and the Checker reads all of them at the end.
class ConsumerStorm
  MEMBER = File.expand_path("consumer_storm/member.rb", __dir__)
  LIBRARY = File.expand_path("../../../lib", __dir__)
  SESSION = 3 # seconds, in the classic protocol; brokers decide for the protocol "consumer"
  KEPT = File.expand_path("../../../tmp/storms", __dir__) # ledgers of storms that have found something
  PATIENCE = 60 # seconds for the group to read all that is left
  ASSIGNMENTS = 12 # at least, until a storm ends
  ENDING = 30 # seconds for all members, and what else the storm runs, to end
  LONGEST_CLOSE = 12 # seconds: config.close_timeout, and some time to be scheduled
  SHOWN = 60 # problems
  ACTIONS = %i[join join join close close kill freeze].freeze
  KINDS = {
    "range" => { "partition.assignment.strategy": "range" },
    "cooperative-sticky" => { "partition.assignment.strategy": "cooperative-sticky" },
    "consumer" => { "group.protocol": "consumer" }
  }.freeze
  APPLICATION = "application"
  # What shortens the sessions of the protocol "consumer", for KafkaCluster.
  BROKERS = { "group.consumer.session.timeout.ms" => SESSION * 1000, "group.consumer.heartbeat.interval.ms" => 300 }.freeze
  CLASSIC = { "session.timeout.ms": SESSION * 1000, "heartbeat.interval.ms": 300 }.freeze

  # librdkafka aborts the process when a consumer with this strategy closes before its first assignment (#4381, fixed in 2.3.0).
  # So members are closed later there.
  ABORTS_EARLY = "cooperative-sticky"

  # @param seconds [Numeric] for which members join and leave
  # @return [Numeric] seconds that a storm may take before it reports that the machine is too slow: until it has a topic, the
  #   group has assigned partitions, frozen members go on, everything is committed, and members and threads have ended
  def self.longest(seconds) = PATIENCE + seconds + PATIENCE + (SESSION * 2) + PATIENCE + LONGEST_CLOSE + (2 * ENDING)

  # @param problems [Array<String>] of storms
  # @return [String] what was lost, repeated or out of order comes first
  def self.report(problems)
    lost, others = problems.partition { |problem| problem.start_with?(EachOnce::LOST_OR_REPEATED) }
    shown = (lost + others).first(SHOWN)
    shown << "and #{problems.size - SHOWN} more" if problems.size > SHOWN
    shown.join("\n")
  end

  # @return [Gem::Version]
  def self.librdkafka = Gem::Version.new(Penstock.librdkafka_version[/[\d.]+/])

  # @return [Boolean] whether this librdkafka has the protocol in a version that is not a preview
  def self.consumer_protocol? = librdkafka >= Gem::Version.new("2.12")

  # @return [Checker]
  attr_reader :checker

  # @param servers [String]
  # @param kind [String] a name in KINDS, or "application": members are applications
  # @param manual [Boolean] whether members mark and commit; otherwise they only poll. Of an application: whether it gets batches
  # @param pause [Range] seconds between two actions
  # @param grow [Boolean] whether partitions are added
  # @param fault [Symbol, nil] see Member
  # @param threads [Boolean] whether members are ThreadsMembers
  # @param profile [Symbol, nil] of Life::PROFILES; nil: all
  # @param preload [Integer] how many messages are sent before the first member joins
  def initialize(servers, kind, manual:, pause: 0.3..1.5, grow: false, most: 4, seed: Random.new_seed, fault: nil, threads: false,
                 profile: nil, preload: 0)
    @servers = servers
    @manual = manual
    @pause = pause
    @grow = grow
    @most = most
    @seed = seed
    @random = Random.new(seed)
    @fault = fault
    @threads = threads
    @profile = profile
    @preload = preload
    @kafka = { "bootstrap.servers": servers, "group.id": "storm-#{SecureRandom.hex(4)}", "max.poll.interval.ms": 60_000,
               "auto.commit.interval.ms": 300, "enable.auto.commit": !manual, "topic.metadata.refresh.interval.ms": 1_000,
               "fetch.wait.max.ms": 50, **{ **KINDS, APPLICATION => {} }.fetch(kind), **(kind == "consumer" ? {} : CLASSIC) }
    @kind = kind
    @closes_early = kind != ABORTS_EARLY || self.class.librdkafka >= Gem::Version.new("2.3")
    @name = "#{kind}, #{"threads, " if threads}#{manual ? "manual" : "automatic"}, seed #{seed}"
    @topic = "storm-#{SecureRandom.hex(4)}"
    @partitions = 4
    @members = {} # pid by id
    @expected = {} # how a member may end
    @problems = []
    @events = []
    @lock = Mutex.new
  end

  # Goes on for longer where a busy machine has let the group assign partitions only a few times.
  #
  # @return [Array<String>] what is wrong; what was lost, repeated or out of order begins with EachOnce::LOST_OR_REPEATED
  def run(seconds)
    Dir.mktmpdir do |directory|
      @directory = directory
      start
      deadline = now + seconds
      act until now > deadline && (moved? || now > deadline + PATIENCE)
      finish
      (@problems + check).each { |problem| keep(problem) }
    ensure
      stop
    end
  end

  def to_s = "#{@name}: #{@checker&.counts&.map { |kind, count| "#{kind} #{count}" }&.join(", ")}"

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def start
    @nursery, nursery_output, = Open3.popen2(RbConfig.ruby, "-I", LIBRARY, "-r", "penstock", MEMBER)
    @reader = Thread.new { nursery_output.each_line(chomp: true) { |line| heard(*line.split) } }
    @producer = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": @servers }
      config.logger = Logger.new(File::NULL)
    end
    create_topic
    @preload.fdiv(1_000).ceil.times { |i| @producer.produce_many_sync(Array.new(1_000) { |j| message((i * 1_000) + j) }) }
    @observer = Penstock::Consumer.new("bootstrap.servers": @servers, "group.id": @kafka[:"group.id"], log_level: 0)
    @sending = Thread.new { send_messages }
    @observing = Thread.new { observe until @all_read }
    @growing = Thread.new { grow } if @grow
    2.times { join }
  end

  # With Kafka's default of 4 partitions. A busy cluster of three brokers may need some time for it.
  def create_topic
    deadline ||= now + PATIENCE
    @producer.produce_sync(topic: @topic, payload: "0 first", partition: 0)
  rescue Penstock::Error
    now < deadline ? sleep(1) && retry : raise
  end

  def send_messages
    number = 0
    until @sent
      begin
        @producer.produce_many_async(Array.new(40) { |i| message(number + i) })
        number += 40
      rescue Penstock::Error
        nil # a broker has failed; the ends of the partitions say what arrived
      end
      sleep 0.03
    end
  end

  def message(number)
    partition = number % @partitions
    { topic: @topic, payload: "#{partition} #{number}", partition: }
  end

  def observe
    since = now
    offsets = @observer.committed(@topic, (0...@partitions).to_a, timeout: 10).compact
    event(:observed, [since, offsets])
    sleep @threads ? 0.005 : 0.1
    offsets
  rescue Penstock::Error
    {} # a broker has failed
  end

  def event(kind, data) = @lock.synchronize { @events << [now, "observer", kind, data] }

  # Adds partitions, some times.
  def grow
    sleep 4
    until @sent || @partitions >= 8
      more = @partitions + 2
      add_partitions(more) until @sent || partition_count == more
      @partitions = more if partition_count == more
      100.times { sleep 0.1 unless @sent }
    end
  end

  def add_partitions(total)
    KafkaTopics.admin(@servers) { |admin| admin.create_partitions({ @topic => total }, timeout: 5) }
    sleep 0.1
  rescue Penstock::Error
    nil # a broker has failed
  end

  def partition_count
    @producer.client.partition_count(@topic, 5_000, 0)
  rescue Penstock::Error
    nil # a broker has failed
  end

  def act
    living = @lock.synchronize { @members.keys } - @expected.keys
    action = ACTIONS.sample(random: @random)
    action = :join if living.size < 2
    action = :close if action == :join && living.size >= @most
    action == :join ? join : __send__(action, living.sample(random: @random))
    sleep @random.rand(@pause)
  end

  def join(threads: @threads && thread_settings)
    id = "member-#{@count = @count.to_i + 1}"
    @lock.synchronize { @members[id] = nil }
    @nursery.puts(JSON.generate(kind: @kind, id:, directory: @directory, topic: @topic, manual: @manual, kafka: @kafka,
                                fault: @fault, threads: threads || nil))
    sleep 0.01 until @lock.synchronize { @members[id] } || !@reader.alive?
  end

  def thread_settings
    { seed: @random.rand(2**32), auto_commit: !@manual || @random.rand(2).zero?, closes_early: @closes_early, profile: @profile }
  end

  def close(id)
    return if id.nil?

    deadline = now + 10
    sleep 0.05 until @closes_early || assigned?(id) || now > deadline
    return kill(id) unless @closes_early || now < deadline

    @expected[id] = "0"
    signal(:TERM, id)
  end

  def moved? = Dir[ledger_of("*")].sum { |path| File.read(path).scan('"assigned",[').size } >= ASSIGNMENTS

  def assigned?(id) = File.exist?(ledger_of(id)) && File.read(ledger_of(id)).include?("assigned")

  def kill(id)
    @expected[id] = "SIGKILL"
    signal(:KILL, id)
  end

  # Most are frozen for longer than the session, so that the group goes on without them.
  def freeze(id)
    signal(:STOP, id)
    seconds = @random.rand(1.0..(SESSION * 2.0))
    (@freezing ||= []) << Thread.new do
      sleep seconds
      signal(:CONT, id)
    end
  end

  def signal(name, id)
    pid = @lock.synchronize { @members[id] } and Process.kill(name, pid)
  rescue Errno::ESRCH
    nil
  end

  # What the nursery writes.
  def heard(what, id, value)
    @lock.synchronize do
      next @members[id] = Integer(value) if what == "started"

      @members.delete(id)
      expected = @expected.delete(id)
      # It had no trap yet, or was about to set it.
      next if (value == "SIGTERM" || (value == "1" && expected == "0")) && !File.exist?(ledger_of(id))

      @problems << "#{id} ended with #{value}, expected was #{expected || "nothing"}: #{last_words(id)}" unless value == expected
    end
  end

  def ledger_of(id) = File.join(@directory, "#{id}.ledger")

  def last_words(id)
    File.readlines(ledger_of(id)).last.to_s + File.read(File.join(@directory, "#{id}.err")).chars.last(2_000).join
  rescue SystemCallError => e
    e.message
  end

  # The group reads everything, then each member closes.
  def finish
    @freezing&.each(&:join)
    @sent = true
    [@sending, @growing].compact.each(&:join)
    @producer.flush
    end_threads if @threads
    join(threads: nil)
    @ends = (0...@partitions).to_h { |partition| [partition, end_of(partition)] }
    await_committed
    @all_read = true
    @observing.join
    @lock.synchronize { @members.keys }.each { |id| close(id) }
    await_ends
  end

  # What their threads have not processed, a member without threads reads.
  def end_threads
    @lock.synchronize { @members.keys }.each { |id| close(id) }
    await_ends
  end

  def end_of(partition)
    attempts ||= 0
    @observer.watermarks(@topic, partition, timeout: 30).last
  rescue Penstock::Error
    (attempts += 1) < 10 ? sleep(1) && retry : raise
  end

  def await_committed
    deadline = now + PATIENCE
    offsets = observe until @fault || now > deadline || @ends.all? { |partition, size| offsets.to_h.fetch(partition, 0) >= size }
    return unless now > deadline

    @stuck = true
    @problems << "stuck: #{PATIENCE} s after the last message, committed is #{offsets}, the ends are #{@ends}"
  end

  def await_ends
    deadline = now + LONGEST_CLOSE + 5
    sleep 0.02 until @lock.synchronize { @members.empty? } || now > deadline
    @lock.synchronize { @members.keys }.each { |id| @problems << "#{id} does not end" }
  end

  def check
    lines = Dir[File.join(@directory, "*.ledger")].flat_map { |path| File.readlines(path) }
    events = @events + lines.filter_map { |line| line.end_with?("\n") && JSON.parse(line) }
    @checker = (@threads ? ThreadsChecker : Checker).new
    # What a group that was too slow has not processed is not lost.
    found = @checker.check(events, @fault || @stuck ? {} : @ends).map do |problem|
      "#{EachOnce::LOST_OR_REPEATED if @checker.class.lost_or_repeated?(problem)}#{@name}: #{problem}"
    end
    found + slow_closes(events).map { |problem| "#{@name}: #{problem}" }
  end

  # Keeps the ledgers of a storm that has found something.
  def keep(_problem)
    return if @fault || File.exist?(kept = File.join(KEPT, @topic))

    FileUtils.mkdir_p(KEPT)
    FileUtils.cp_r(@directory, kept)
    File.write(File.join(kept, "observer.ledger"), @events.map { |event| "#{JSON.generate(event)}\n" }.join)
    File.write(File.join(kept, "problems"), (@problems + @checker.problems).join("\n"))
  end

  def slow_closes(events)
    closes = events.select { |_, _, kind, _| kind == "closed" }
    closes.filter_map { |_, id, _, (_, seconds)| "#{id} took #{seconds} s to close" if seconds > LONGEST_CLOSE }
  end

  def stop
    @sent = @all_read = true
    [@sending, @observing, @growing, *@freezing].compact.each { |thread| thread.join(ENDING) || thread.kill }
    @lock.synchronize { @members.compact.each_value { |pid| Process.kill(:KILL, pid) } }
    @nursery&.close
    @reader&.join(10)
    @observer&.close
    @producer&.purge
    @producer&.close(timeout: 5)
  end
end

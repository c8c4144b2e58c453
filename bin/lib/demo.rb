# frozen_string_literal: true

# What bin/demo shows once everything is built.

require "json"
require "optparse"
require "penstock"
require "timeout"

# Reads what the producers deliver, as a member of a consumer group.
class DemoReader
  JOINING = 30 # seconds
  READING = 60 # seconds for what is left at the end

  # @return [Integer] messages so far
  attr_reader :read

  def initialize(servers, topic)
    @read = 0
    @assigned = Queue.new
    kafka = { "bootstrap.servers": servers, "group.id": "penstock-demo-#{rand(2**32)}", log_level: 3 }
    @consumer = Penstock::Consumer.new(**kafka) { |config| config.rebalance_listener = self }
    @consumer.subscribe(topic)
    @thread = Thread.new { read_all }
    Timeout.timeout(JOINING) { @assigned.pop }
  end

  # Called by the consumer. Begins behind what the topic has had before.
  def assigned(rebalance)
    rebalance.partitions.each do |topic, partitions|
      partitions.each { |partition| rebalance.start_at(topic, partition, @consumer.watermarks(topic, partition).last) }
    end
    @assigned << true
  end

  # Waits until it has read so many. Yields from time to time.
  # @return [Boolean] whether it has read exactly so many
  def finish(expected)
    deadline = now + READING
    yield sleep 0.05 while @read < expected && now < deadline
    sleep 0.3 # a repeated message would come now
    @lag = @consumer.lag.values.flat_map(&:values).sum(&:to_i)
    @done = true
    @thread.join
    @consumer.close
    @read == expected && @lag.zero?
  end

  # @return [Integer] messages a second, while any came
  def rate = @first ? (@read / [@latest - @first, 1e-6].max).round : 0

  # @return [Integer] what the group had not read at the end
  attr_reader :lag

  private

  def read_all
    until @done
      batch = @consumer.poll_batch(max: 10_000, timeout: 0.1)
      next if batch.empty?

      @first ||= now
      @latest = now
      @read += batch.size
      batch.release
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

# Many producers, each in a thread of the demo's own, sending batches in rounds. A consumer group reads them back.
class Demo
  Round = Struct.new(:delivered, :failed, :seconds) do
    def rate = delivered / seconds
  end

  def initialize(producers:, messages:, rounds:, size:, bootstrap:, json:)
    @count = producers
    @messages = messages
    @rounds = rounds
    @size = size
    @bootstrap = bootstrap
    @json = json
    @topic = "penstock-demo"
  end

  def run
    cluster = Penstock::EmbeddedCluster.new unless @bootstrap
    servers = @bootstrap || cluster.bootstrap_servers
    puts "#{@count} producers, #{@messages} messages of #{@size} bytes each a round, on " \
         "#{cluster ? "an embedded cluster" : "Kafka"} at #{servers}", ""
    latency = median_latency(servers)
    @reader = DemoReader.new(servers, @topic)
    threads_before = Thread.list
    producers = Array.new(@count) { |i| producer(i, servers) }
    rounds = send_rounds(producers)
    added = (Thread.list - threads_before - @senders).size
    pollers = native_pollers
    stats = Penstock::Poller.instance.stats
    read_all = @reader.finish(@delivered) { show_reading unless @reader.read == @shown }
    producers.each(&:close)
    cluster&.close
    report(rounds, added, pollers, stats, latency)
    read_all && @delivered == @count * @messages * @rounds
  end

  private

  def producer(index, servers)
    Penstock::Producer.new do |config|
      config.id = "demo-#{index}"
      config.kafka = { "bootstrap.servers": servers, log_level: 3 } # a Kafka that has just started makes librdkafka warn
    end
  end

  def send_rounds(producers)
    batch = Array.new(@messages) { { topic: @topic, payload: ("x" * @size).freeze } }
    puts format("%-8s %10s %8s %9s %12s %10s %8s", "round", "delivered", "failed", "seconds", "messages/s", "read back", "lag")
    @delivered = 0
    Array.new(@rounds) { |i| show(i + 1, send_round(producers, batch)) }
  end

  def send_round(producers, batch)
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    @senders = producers.map { |producer| Thread.new { send_batch(producer, batch) } }
    counts = @senders.map(&:value)
    Round.new(counts.sum(&:first), counts.sum(&:last), Process.clock_gettime(Process::CLOCK_MONOTONIC) - start)
  end

  # @return [Array(Integer, Integer)] delivered and failed
  def send_batch(producer, batch)
    [producer.produce_many_sync(batch).size, 0]
  rescue Penstock::ProduceError => e
    warn "#{producer.id}: #{e.message}"
    delivered = e.respond_to?(:dispatched) ? e.dispatched.count(&:delivered?) : 0
    [delivered, batch.size - delivered]
  end

  def show(number, round)
    @delivered += round.delivered
    print format("%-8d %10d %8d %9.3f %12d", number, round.delivered, round.failed, round.seconds, round.rate)
    show_reading(0)
    round
  end

  # Of all rounds.
  def show_reading(indent = 51)
    @shown = read = @reader.read
    puts format("%*s %10d %8d", indent, "", read, @delivered - read)
  end

  SINGLE_MESSAGES = 200

  # @return [Float] ms that produce_sync takes with default settings, one call after the other
  def median_latency(servers)
    one = Penstock::Producer.new("bootstrap.servers": servers, log_level: 3)
    message = { topic: @topic, payload: ("x" * @size).freeze }
    one.produce_sync(message) # connects
    times = Array.new(SINGLE_MESSAGES) do
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      one.produce_sync(message)
      Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
    end
    (times.sort[SINGLE_MESSAGES / 2] * 1e3).round(3)
  ensure
    one.close
  end

  # As the system sees them: threads of this process by name.
  def native_pollers
    names = Dir["/proc/self/task/*/comm"].filter_map { |path| name_in(path) }
    names.empty? ? 1 : names.count { |name| name.start_with?("penstock.poll") }
  end

  def name_in(path)
    File.read(path).chomp
  rescue Errno::ENOENT, Errno::ESRCH
    nil # the thread has ended meanwhile
  end

  def report(rounds, added, pollers, stats, latency)
    delivered = rounds.sum(&:delivered)
    expected = @count * @messages * @rounds
    rate = rounds.map(&:rate).sort[rounds.size / 2]
    puts "", "#{delivered} of #{expected} messages delivered, #{rounds.sum(&:failed)} failed; " \
             "#{rate.round} messages/s in the median round (the first also connects)"
    puts "#{@reader.read} messages read back by a consumer group meanwhile, #{@reader.rate} messages/s; its lag is #{@reader.lag}"
    puts "#{latency} ms for one message with produce_sync, the median of #{SINGLE_MESSAGES} calls with default settings"
    puts "#{added} Ruby threads added, #{pollers} native poller, #{stats[:wakeups]} wake-ups for #{stats[:messages]} " \
         "messages, #{stats[:missed_wakeups]} missed"
    puts "librdkafka #{Penstock.librdkafka_version}, Ruby #{RUBY_VERSION}"
    return unless @json

    puts JSON.generate(producers: @count, messages: expected, delivered:, failed: rounds.sum(&:failed), read: @reader.read,
                       lag: @reader.lag, read_per_s: @reader.rate, msgs_per_s: rate.round, sync_latency_ms: latency,
                       ruby_threads_added: added, native_pollers: pollers, missed_wakeups: stats[:missed_wakeups],
                       librdkafka: Penstock.librdkafka_version, ruby: RUBY_VERSION)
  end
end

options = { producers: 25, messages: 1_000, rounds: 5, size: 100, bootstrap: nil, json: false }
parser = OptionParser.new do |opts|
  %i[producers messages rounds size].each do |name|
    opts.on("--#{name} N", Integer) do |value|
      raise OptionParser::InvalidArgument, "must be at least 1" unless value.positive?

      options[name] = value
    end
  end
  opts.on("--bootstrap SERVERS") { |value| options[:bootstrap] = value }
  opts.on("--json") { options[:json] = true }
end
begin
  parser.parse!
  raise OptionParser::InvalidArgument, ARGV.join(" ") unless ARGV.empty?
rescue OptionParser::ParseError => e
  abort "bin/demo: #{e.message}; see bin/demo --help"
end

$stdout.sync = true
exit Demo.new(**options).run

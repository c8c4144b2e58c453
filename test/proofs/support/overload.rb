# frozen_string_literal: true

require "rbconfig"
require_relative "../../support/limited"

# Loads that exceed what a client accepts or what listeners read. Each runs in a separate process, on a cluster of this process,
# and prints its figures in a line of "name=number". Memory is compared between equal phases, not with a number: memory that a
# process allocates only once is allocated in the first phase.
class Overload
  LIBRARY = File.expand_path("../../../lib", __dir__)
  INTERNAL = File.expand_path("../../support/internal.rb", __dir__)
  SCHEDULER = File.expand_path("../../support/plain_scheduler", __dir__)

  HEAD = <<~'RUBY'
    require "logger"
    SERVERS, TOPIC, *NUMBERS = ARGV
    def producer(**kafka)
      Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": SERVERS, "linger.ms": 0, **kafka }
        config.max_payload_size = 2_000_000
        yield config if block_given?
      end
    end
    def resident
      GC.start
      File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1].to_i # kB
    end
    # A first phase to warm up, then what each equal phase has added.
    def growth(phases)
      yield
      phases.times.map { before = resident; yield; resident - before }
    end
    def report(**numbers) = puts(numbers.map { |pair| pair.join("=") }.join(" "))
  RUBY

  # Four threads, more messages than queue space, and each policy. Each message has one result: delivered, dropped with a failed
  # delivery result, or rejected with an error. The topic has exactly the messages that were reported as delivered.
  QUEUE = <<~'RUBY'
    count = Integer(NUMBERS[0])
    %i[wait raise drop].each do |policy|
      one = producer("queue.buffering.max.messages": 50) { |config| config.on_queue_full = policy }
      published = Queue.new
      %w[message.acknowledged error.occurred].each { |name| one.monitor.subscribe(name) { |event| published << event[:label] } }
      one.produce_sync(topic: TOPIC, payload: "#{policy} first", partition: 0, label: "first")
      threads = Array.new(4) do |t|
        Thread.new do
          Array.new(count / 4) do |i|
            label = "#{policy} #{t} #{i}"
            [label, one.produce_async(topic: TOPIC, payload: label, partition: 0, label:)]
          rescue Penstock::QueueFullError
            [label, nil]
          end
        end
      end
      all = threads.flat_map(&:value)
      one.close
      rejected, accepted = all.partition { |_, handle| handle.nil? }
      delivered, failed = accepted.partition { |_, handle| handle.delivered? }
      labels = Array.new(published.size) { published.pop } - ["first"]
      abort "#{policy}: without a delivery result: #{accepted.count { |_, handle| handle.pending? }}" if accepted.any? { |_, handle| handle.pending? }
      abort "#{policy}: published #{labels.size}, #{labels.uniq.size} of them once, of #{accepted.size}" unless labels.sort == accepted.map(&:first).sort
      File.write("#{NUMBERS[1]}.#{policy}", delivered.map(&:first).join("\n"))
      report("#{policy}_delivered": delivered.size, "#{policy}_failed": failed.size, "#{policy}_rejected": rejected.size)
    end
  RUBY

  PAYLOADS = <<~'RUBY'
    count, phases = NUMBERS.map { |number| Integer(number) }
    one = producer("queue.buffering.max.kbytes": 20_000, "message.max.bytes": 1_100_000)
    payload = "x" * 1_000_000
    grown = growth(phases) do
      count.times { one.produce_async(topic: TOPIC, payload:, partition: 0) }
      one.flush
    end
    report(messages: one.metrics[:delivered], failed: one.metrics[:failed], peak_kb: File.read("/proc/self/status")[/VmHWM:\s+(\d+)/, 1],
         grown_kb: grown.join(","), last_kb: grown.last, sum_kb: grown.sum)
  RUBY

  HANDLES = <<~'RUBY'
    count, phases = NUMBERS.map { |number| Integer(number) }
    one = producer
    drop = lambda do
      count.times { |i| one.produce_async(topic: TOPIC, payload: "x" * 20, key: "k", partition_key: "p", label: "l#{i}") }
      one.flush
    end
    grown = growth(phases, &drop)
    GC.start
    report(messages: one.metrics[:delivered], failed: one.metrics[:failed],
         left: ObjectSpace.each_object(Penstock::DeliveryHandle).count, grown_kb: grown.join(","), last_kb: grown.last, sum_kb: grown.sum)
  RUBY

  # Statistics of producers, and debug lines, that nothing reads. A producer and a consumer each without a logger (librdkafka
  # prints, here to /dev/null) and with one, and a producer whose listener has gone.
  IDLE = <<~'RUBY'
    interval, phase, phases = NUMBERS.map { |number| Float(number) }
    noisy = { "statistics.interval.ms": interval.to_i, debug: "all" }
    $stderr.reopen(File::NULL)
    nowhere = Logger.new(File::NULL)
    producers = Array.new(3) { |i| producer(**noisy) { |config| config.logger = nowhere if i > 0 } }
    listener = producers.last.monitor.subscribe("statistics.emitted") { |event| event }
    producers.each { |one| one.produce_sync(topic: TOPIC, payload: "x", partition: 0) }
    producers.last.monitor.unsubscribe(listener)
    consumers = Array.new(2) do |i|
      Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": SERVERS, debug: "all" }
        config.logger = nowhere if i > 0
      end
    end
    consumers.each { |one| one.assign(TOPIC => { 0 => :end }).poll(timeout: 0.1) }
    seconds = phase * phases.to_i
    events = Penstock::Poller.instance.stats[:events]
    sizes = growth(phases.to_i) { sleep phase }
    second_half = sizes.last(sizes.size / 2)
    report(seconds: seconds, events: Penstock::Poller.instance.stats[:events] - events, resident_kb: resident, grown_kb: sizes.join(","),
         last_kb: sizes.last, slope_kb_per_minute: (second_half.sum / (phase * second_half.size) * 60).round(1))
  RUBY

  # One thread never sleeps, so it releases the GVL only when Ruby preempts it. It polls four consumers without waiting. Meanwhile
  # four producers deliver as fast as they can, each from a separate thread, and no thread waits for their messages. The program
  # reports the longest time in which one producer delivered nothing, or one consumer got nothing.
  SPIN = <<~'RUBY'
    seconds = Float(NUMBERS[0])
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    consumers = Array.new(4) do |partition|
      made = Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": SERVERS, "fetch.wait.max.ms": 10, "auto.offset.reset": "earliest" }
      end
      made.assign(TOPIC => { partition => :beginning })
    end
    producers = Array.new(4) { producer("queue.buffering.max.messages": 10_000) { |config| config.on_queue_full = :drop } }
    # The producers are connected, and the consumers consume, before anything is measured.
    producers.each_with_index { |one, partition| one.produce_sync(topic: TOPIC, payload: "x", partition:) }
    consumers.each { |one| nil until one.poll(timeout: 1) }
    over = false
    sending = producers.each_with_index.map do |one, partition|
      Thread.new do
        one.produce_many_async(Array.new(1_000) { { topic: TOPIC, payload: "x" * 100, partition: } }) until over
      end
    end
    polls = 0
    consumed = [0] * 4
    start = time = now
    # For each producer and consumer: its count, since when, and the longest time without a change.
    counts = Array.new(8) { [0, start, 0] }
    while time < start + seconds
      250.times { consumers.each_with_index { |one, of| consumed[of] += 1 if one.poll(timeout: 0) } }
      polls += 1_000
      time = now
      counts = [*producers.map { |one| one.metrics[:delivered] }, *consumed].zip(counts).map do |many, (count, since, longest)|
        [many, many == count ? since : time, [longest, time - since].max]
      end
    end
    over = true
    sending.each(&:join)
    stalls = counts.map { |_, _, longest| longest.round(2) }
    report(seconds:, polls:, consumed: consumed.sum, delivered: producers.sum { |one| one.metrics[:delivered] },
         stall_s: stalls.first(4).max, reading_stall_s: stalls.last(4).max)
    producers.each(&:purge)
  RUBY

  # Topics, fibers and settings of variants that are used once. A round sends through all the topics with one producer, to an
  # unreachable cluster and with a small queue, because librdkafka keeps a topic until its client closes. It also sends one
  # message in each of many fibers.
  NAMES = <<~'RUBY'
    require ENV.fetch("SCHEDULER")
    topics, fibers, phases = NUMBERS.map { |number| Integer(number) }
    unreachable = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 }
    one = producer
    number = 0
    round = lambda do
      lonely = producer(**unreachable)
      lonely.monitor.subscribe("error.occurred") { |event| event[:label] }
      reader = Penstock::Consumer.new { |config| config.kafka = { **unreachable } }
      topics.times do
        topic = "names-#{number += 1}"
        lonely.produce_async(topic:, payload: "x", partition: 0, label: topic)
        reader.assign(topic => [0]) if (number % 100).zero?
        reader.poll(timeout: 0)
      end
      lonely.purge
      lonely.close(timeout: 0)
      reader.close
      fibers.times.each_slice(1_000) do |slice|
        Thread.new do
          Fiber.set_scheduler(PlainScheduler.new)
          slice.each { Fiber.schedule { one.produce_sync(topic: TOPIC, payload: "x", partition: 0) } }
        end.join
      end
      one.with(topic_config: { "message.timeout.ms": 100_000 + number }).produce_sync(topic: TOPIC, payload: "x", partition: 0)
    end
    objects = lambda do
      GC.start
      ObjectSpace.count_objects.then { |counts| counts[:TOTAL] - counts[:FREE] }
    end
    counts = []
    grown = growth(phases) do
      round.call
      counts << objects.call
    end
    more = counts.each_cons(2).map { |before, after| after - before }
    report(topics: number, fibers: fibers * (phases + 1), clients: Internal::ProducerClient.open_count, grown_kb: grown.join(","),
         least_kb: grown.min, half_kb: grown.last(phases / 2).sum, objects: more.join(","), least_objects: more.min,
         half_objects: more.last(phases / 2).sum)
  RUBY

  # @param servers [String] of a cluster
  def initialize(servers)
    @servers = servers
  end

  # @return [Hash{Symbol => String}]
  def run(program, topic, *numbers, seconds: 120)
    arguments = [@servers, topic, *numbers.map(&:to_s)]
    ruby = [RbConfig.ruby, "-w", "-I", LIBRARY, "-r", "penstock", "-r", INTERNAL, "-e", "#{HEAD}#{program}", *arguments]
    output, errors, status = Limited.capture3({ "SCHEDULER" => SCHEDULER }, *ruby, seconds:)
    raise "#{status}: #{output} #{errors}" unless status.success?

    output.split.to_h { |pair| pair.split("=", 2) }.transform_keys(&:to_sym)
  end
end

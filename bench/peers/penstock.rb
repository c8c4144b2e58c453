# frozen_string_literal: true

# Penstock, as a program that speaks the protocol of bench/README.md. Besides what is said there:
#
#   --mode fd|thread|reactor  who polls: one poller for all producers (the default), a thread for each, the fiber scheduler
#   --listener                async: a listener of message.acknowledged; the round ends when it has been told of all
#   --step                    a middleware step that changes nothing
#
# and two more workloads:
#
#   transactions  one producer: --transactions T of M messages each
#   life          producers are made one after the other, send M messages each and wait; then they are closed

require "json"
require "optparse"
require "penstock"

# One workload, prepared and ready to be run again and again.
class PenstockPeer
  WORKLOADS = %w[batch async sync transactions life].freeze
  NO_SUCH_WORKLOAD = 64

  def initialize(workload, options)
    abort_with(NO_SUCH_WORKLOAD, "no workload #{workload.inspect}") unless WORKLOADS.include?(workload)
    @workload = workload
    @options = options
    @messages = Array.new(options[:messages]) { |i| message(i) }
    @producers = workload == "life" ? [] : Array.new(options[:producers]) { producer }
    @sent = @told = 0
    connect
  end

  # @return [Hash] what is printed for the round
  def round = { failed: 0, **public_send(@workload) }

  def close
    @go&.close
    @threads&.each(&:join)
    @producers.each(&:close)
  end

  # ---- the workloads ----

  # Each producer has a thread, which the rounds do not start.
  def batch
    return timed(@messages.size) { @producers.first.produce_many_sync(@messages) } if @producers.one?

    @threads ||= @producers.map { |producer| Thread.new { batches(producer) } }
    timed(@producers.size * @messages.size) do
      @producers.size.times { @go << true }
      @producers.size.times { @done.pop }
    end
  end

  def async
    producer = @producers.first
    timed(@messages.size) do
      handles = @messages.map { |message| producer.produce_async(message) }
      handles.each(&:wait)
      wait_for_the_listener(@messages.size)
    end
  end

  def sync
    producer = @producers.first
    latencies = []
    timed(@messages.size) do
      @messages.each do |message|
        start = now
        producer.produce_sync(message)
        latencies << ((now - start) * 1e6).round(1)
      end
    end.merge(latencies_us: latencies)
  end

  def transactions
    producer = @producers.first
    timed(@options[:transactions] * @messages.size) do
      @options[:transactions].times do
        producer.transaction { producer.produce_many_async(@messages) }
      end
    end
  end

  # What a round does is just what other rounds leave out.
  def life
    started = made = nil
    round = timed(@options[:producers] * @messages.size) do
      started = now
      producers = Array.new(@options[:producers]) { producer.tap { |one| one.produce_many_sync(@messages) } }
      made = now
      producers.each(&:close)
    end
    start_ms = (made - started) * 1e3
    round.merge(start_ms: start_ms.round(3), close_ms: ((round[:seconds] * 1e3) - start_ms).round(3))
  end

  private

  def producer
    Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers" => @options[:bootstrap], **@options[:set] }
      config.polling.mode = @options[:mode]
      config.event_queue_limit = 2 * @options[:messages] if @options[:listener]
    end
  end

  def message(number)
    { topic: @options[:topic], payload: "x" * @options[:size], **(@options[:key] ? { key: number.to_s } : {}),
      **(@options[:headers] ? { headers: { "trace" => "t" * 32, "kind" => "bench" } } : {}) }
  end

  def connect
    @producers.each do |producer|
      producer.monitor.subscribe("message.acknowledged") { |event| @told += 1 if event[:offset] >= 0 } if @options[:listener]
      producer.middleware.append { |message| message } if @options[:step]
    end
    first = @messages.first
    @producers.each { |one| @workload == "transactions" ? one.transaction { one.produce_async(first) } : one.produce_sync(first) }
    wait_for_the_listener(1)
    @go = Thread::Queue.new
    @done = Thread::Queue.new
  end

  def wait_for_the_listener(count)
    return unless @options[:listener]

    @sent += count
    sleep 0.0005 until @told == @sent
  end

  def batches(producer)
    while @go.pop
      producer.produce_many_sync(@messages)
      @done << true
    end
  end

  # What earlier rounds left behind is not this one's burden.
  def timed(count)
    GC.start
    start = now
    yield
    { seconds: (now - start).round(6), delivered: count }
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def abort_with(status, text)
    warn "penstock.rb: #{text}"
    exit status
  end
end

options = { producers: 1, size: 100, set: {}, mode: :fd, transactions: 20 }
OptionParser.new do |opts|
  %i[bootstrap topic].each { |name| opts.on("--#{name} TEXT") { |value| options[name] = value } }
  %i[producers messages size transactions].each { |name| opts.on("--#{name} N", Integer) { |value| options[name] = value } }
  %i[key headers listener step].each { |name| opts.on("--#{name}") { options[name] = true } }
  opts.on("--mode MODE", %i[fd thread reactor]) { |value| options[:mode] = value }
  opts.on("--set SETTING") { |value| options[:set].store(*value.split("=", 2)) }
end.parse!

peer = PenstockPeer.new(ARGV.first, options)
$stdout.sync = true
versions = "Penstock #{Penstock::VERSION}, Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"
puts JSON.generate(ready: versions, differs: [])
puts JSON.generate(peer.round) while $stdin.gets
peer.close

# frozen_string_literal: true

# Penstock: a peer, see bench/README.md. Its additional options:
#
#   --mode fd|thread  one poller for all producers (the default), or a polling thread for each
# --listener async: a listener of message.acknowledged; the round ends when it has received all events
#   --step                    a middleware step that changes nothing
#   --no-flush                callers that wait linger too (config.flush_on_wait = false)
#
# and two more workloads:
#
#   transactions  one producer: --transactions T of M messages each
#   life          producers are made one after the other, send M messages each and wait; then they are closed

require "penstock"
require_relative "protocol"

# One workload, ready to be run repeatedly.
class PenstockPeer
  WORKLOADS = %w[batch async sync transactions life].freeze

  def initialize(options)
    @options = options
    @messages = options.build_messages
    @sent = @published = 0
    @producers = options.workload == "life" ? [] : Array.new(options.producers) { connected_producer }
  end

  # @return [Hash] the figures of the round
  def round
    GC.start # so that garbage of earlier rounds does not count
    { failed: 0, **public_send(@options.workload) }
  end

  def close
    @go&.close
    @threads&.each(&:join)
    @producers.each(&:close)
  end

  # ---- the workloads ----

  def batch
    return timed(@messages.size) { @producers.first.produce_many_sync(@messages) } if @producers.one?

    start_threads unless @threads
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
    count = @options.more[:transactions]
    timed(count * @messages.size) do
      count.times { producer.transaction { producer.produce_many_async(@messages) } }
    end
  end

  # A round measures exactly what the other workloads leave out of theirs.
  def life
    started = made = nil
    round = timed(@options.producers * @messages.size) do
      started = now
      producers = Array.new(@options.producers) { producer.tap { |one| one.produce_many_sync(@messages) } }
      made = now
      producers.each(&:close)
    end
    start_ms = (made - started) * 1e3
    round.merge(start_ms: start_ms.round(3), close_ms: ((round[:seconds] * 1e3) - start_ms).round(3))
  end

  private

  def producer
    Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers" => @options.bootstrap, **@options.set }
      config.polling.mode = @options.more[:mode]
      config.event_queue_limit = 2 * @messages.size if @options.more[:listener]
      config.flush_on_wait = @options.more[:flush]
    end
  end

  def connected_producer
    one = producer
    one.monitor.subscribe("message.acknowledged") { |event| @published += 1 if event[:offset] >= 0 } if @options.more[:listener]
    one.middleware.append { |message| message } if @options.more[:step]
    first = @messages.first
    @options.workload == "transactions" ? one.transaction { one.produce_async(first) } : one.produce_sync(first)
    wait_for_the_listener(1)
    one
  end

  def wait_for_the_listener(count)
    return unless @options.more[:listener]

    @sent += count
    sleep 0.0005 until @published == @sent
  end

  # One producer for each count, which the rounds do not start.
  def start_threads
    @go = Thread::Queue.new
    @done = Thread::Queue.new
    @threads = @producers.map do |producer|
      Thread.new do
        while @go.pop
          producer.produce_many_sync(@messages)
          @done << true
        end
      end
    end
  end

  def timed(count)
    start = now
    yield
    { seconds: (now - start).round(6), delivered: count }
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

options = Bench::Protocol.options(ARGV, { mode: :fd, transactions: 20, flush: true }) do |parser, more|
  parser.on("--mode MODE", %i[fd thread]) { |value| more[:mode] = value }
  parser.on("--transactions T", Integer) { |value| more[:transactions] = value }
  parser.on("--no-flush") { more[:flush] = false }
  %i[listener step].each { |name| parser.on("--#{name}") { more[name] = true } }
end
Bench::Protocol.no_such_workload unless PenstockPeer::WORKLOADS.include?(options.workload)

peer = PenstockPeer.new(options)
versions = "Penstock #{Penstock::VERSION}, Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"
Bench::Protocol.serve(versions) { peer.round }
peer.close

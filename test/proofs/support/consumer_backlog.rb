# frozen_string_literal: true

require "rbconfig"
require "securerandom"
require_relative "../../support/limited"

# A backlog of 1 KB messages in 16 partitions of a real Kafka, and a program that reads it slowly. It reports its memory.
class ConsumerBacklog
  LIBRARY = File.expand_path("../../../lib", __dir__)
  TOPICS = 4 # of 4 partitions each, which Kafka creates
  SIZE = 1_000

  PROGRAM = <<~'RUBY'
    require "fiddle"
    servers, memory, total, *topics = ARGV
    TRIM = Fiddle::Function.new(Fiddle::Handle::DEFAULT["malloc_trim"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_INT)
    def status(name) = File.read("/proc/self/status")[/#{name}:\s+(\d+)/, 1].to_i * 1024
    def resident = [GC.start, TRIM.call(0), status("VmRSS")].last
    # The largest size, when it has not grown for a second.
    def settled
      size = 0
      loop do
        sleep 1
        break if status("VmHWM") <= size + (1 << 20)
        size = status("VmHWM")
      end
      status("VmHWM")
    end
    make = lambda do
      Penstock::Consumer.new("bootstrap.servers": servers, "auto.offset.reset": "earliest") do |config|
        config.memory = Integer(memory) unless memory == "default"
      end
    end
    warm = make.call
    warm.assign(topics.first => { 0 => :beginning })
    nil until warm.poll(timeout: 1)
    warm.close
    base = resident
    consumer = make.call
    consumer.assign(topics.to_h { |topic| [topic, (0..3).to_h { |partition| [partition, :beginning] }] })
    read = 0
    read += consumer.poll_batch(max: 1, timeout: 1).size while read.zero?
    stalled = settled - base
    held = []
    # A tenth of the messages is kept, then released.
    while held.sum(&:size) < Integer(total) / 10
      held << consumer.poll_batch(max: 1_000, timeout: 1)
    end
    read += held.sum(&:size)
    consumer.pause
    10.times { consumer.poll_batch(timeout: 0.05) }
    full = resident
    held.each(&:release)
    2.times { consumer.poll_batch(timeout: 1) } # what is kept for the next batches is given back
    released = full - resident
    consumer.resume
    while read < Integer(total)
      batch = consumer.poll_batch(max: 1_000, timeout: 1)
      read += batch.size
      batch.release
    end
    most = status("VmHWM") - base
    consumer.close
    puts [stalled, held.sum(&:size), released, most, read].join(" ")
  RUBY

  Sizes = Struct.new(:stalled, :held, :released, :most, :read)

  def initialize(servers, megabytes)
    @servers = servers
    @total = megabytes * 1_000
    @topics = Array.new(TOPICS) { "backlog-#{SecureRandom.hex(4)}" }
  end

  attr_reader :total

  def produce
    producer = Penstock::Producer.new("bootstrap.servers": @servers, acks: 1, "enable.idempotence": false)
    @topics.each { |topic| producer.produce_sync(topic:, payload: "x" * SIZE, partition: 0) }
    payload = "x" * SIZE
    messages = Array.new(16) { |i| { topic: @topics[i % TOPICS], payload:, partition: i / TOPICS } } * 50
    remaining = @total - TOPICS
    while remaining.positive?
      part = messages.first(remaining)
      producer.produce_many_async(part)
      remaining -= part.size
    end
    producer.flush
    raise "some messages failed" unless producer.metrics[:failed].zero?

    producer.close
    self
  end

  # @param memory [Integer, nil] bytes
  # @return [Sizes] what the stalled reader took; how many messages it kept, and how much was returned when they were released;
  #   its largest size
  def read(memory, seconds: 100)
    output, errors, status = Limited.capture3(RbConfig.ruby, "-I", LIBRARY, "-r", "penstock", "-e", PROGRAM, @servers,
                                              (memory || "default").to_s, @total.to_s, *@topics, seconds:)
    raise "#{status} #{errors}" unless status.success?

    Sizes.new(*output.split.map(&:to_i))
  end
end

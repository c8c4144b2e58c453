# frozen_string_literal: true

# Many Ractors on one producer, with garbage collection and compaction, and clients that come and go, going on; then looks
# where each message is. As a program of its own:
#
#   ruby -Ilib test/support/ractor_storm.rb [RACTORS [MESSAGES OF EACH [COMPACT: yes or no]]]
#
# Its last line is the figure; it fails when a message is not where its verdict says.

require "penstock"

Warning[:experimental] = false

# One Ractor's part. A message's payload is the Ractor's number and its own.
class RactorStorm
  TOPIC = "storm"
  PARTITIONS = 8

  # @return [Hash{Symbol => Array<Integer>}] the numbers of its messages by their verdict
  def self.produce(shareable, ractor, size)
    verdicts = { delivered: [], not_persisted: [], possibly_persisted: [] }
    number = 0
    while number < size
      kind = number % 4
      batch = kind < 2 ? 1 : [50, size - number].min
      numbers = Array.new(batch) { |i| number + i }
      messages = numbers.map { |one| message(ractor, one) }
      note(verdicts, numbers, send(%i[one_sync one_async many_sync many_async][kind], shareable, messages))
      number += batch
    end
    verdicts
  end

  def self.message(ractor, number)
    { topic: TOPIC, payload: "#{ractor} #{number}#{" " * (number % 300)}", key: "k#{number}", label: number,
      headers: { "ractor" => [ractor.to_s, number.to_s] } }
  end

  def self.note(verdicts, numbers, reports)
    raise "#{numbers.size} messages, #{reports.size} verdicts" unless reports.size == numbers.size

    numbers.zip(reports) do |one, report|
      raise "the report of #{one} has the label #{report.label.inspect}" if report.label && report.label != one

      verdicts.fetch(report.error ? report.status : :delivered) << one
    end
  end

  # What is raised is a verdict too: an Error that has `retriable?` says that nothing is in the topic.
  Verdict = Struct.new(:status, :error, :label)

  def self.verdict_of(error)
    unsent = error.is_a?(Penstock::DeliveryError) ? error.retriable? : !error.is_a?(Penstock::WaitTimeoutError)
    Verdict.new(unsent ? :not_persisted : :possibly_persisted, error)
  end

  def self.one_sync(shareable, messages)
    [shareable.produce_sync(messages.first)]
  rescue Penstock::Error => e
    [verdict_of(e)]
  end

  def self.one_async(shareable, messages)
    [awaited(shareable.produce_async(messages.first))]
  rescue Penstock::Error => e
    [verdict_of(e)]
  end

  def self.awaited(handle)
    handle.wait
  rescue Penstock::DeliveryError
    handle.report
  end

  def self.many_sync(shareable, messages)
    shareable.produce_many_sync(messages).map(&:report)
  rescue Penstock::Error => e
    taken_of(e, messages)
  end

  def self.many_async(shareable, messages)
    shareable.produce_many_async(messages).map { |handle| awaited(handle) }
  rescue Penstock::Error => e
    taken_of(e, messages)
  end

  def self.taken_of(error, messages)
    dispatched = error.is_a?(Penstock::ProduceManyError) ? error.dispatched.map { |handle| awaited(handle) } : []
    dispatched + Array.new(messages.size - dispatched.size) { Verdict.new(:not_persisted, error) }
  end

  # @param compact [Boolean] whether the heap is compacted while the Ractors run
  def initialize(ractors, size, compact:)
    @ractors = ractors
    @size = size
    @compact = compact
    @cluster = Penstock::EmbeddedCluster.new
    @cluster.create_topic(TOPIC, partitions: PARTITIONS)
    @told = 0
    @collected = @given_up = @replaced = 0
  end

  def run
    start = now
    verdicts = storm
    seconds = now - start
    problems = compare(verdicts, stored)
    problems << "#{@told} of #{verdicts.sum { |one| one[:delivered].size }} deliveries were told" unless all_told?(verdicts)
    problems << "work without a wake-up: #{@missed}" unless @missed.zero?
    problems.first(20).each { |problem| puts problem }
    puts figure(verdicts, seconds, problems)
    problems.empty?
  end

  private

  def storm
    producer = make_producer
    shareable = producer.shareable
    made = Array.new(@ractors) do |number|
      Ractor.new(shareable, number, @size) { |handle, own, size| RactorStorm.produce(handle, own, size) }
    end
    done = false
    trouble = Thread.new { trouble_until(producer) { done } }
    verdicts = made.map { |ractor| value_of(ractor) }
    done = true
    trouble.join
    @missed = producer.poller.stats[:missed_wakeups]
    producer.close
    verdicts
  end

  # Looks whether it has ended: the main Ractor, asleep in `take`, is woken by that, and then Ruby 3.3 and 3.4 hang now and then
  # (ractor_wakeups.rb).
  def value_of(ractor)
    sleep 0.01 until ractor.inspect.end_with?(" terminated>")
    ractor.respond_to?(:value) ? ractor.value : ractor.take
  end

  def make_producer
    producer = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": @cluster.bootstrap_servers, "linger.ms": 1, "message.timeout.ms": 30_000 }
      config.wait_backoff_on_idempotent_fatal_error = 0
      config.max_attempts_on_idempotent_fatal_error = 1_000
      config.logger = Logger.new(nil)
    end
    producer.monitor.subscribe("message.acknowledged") { @told += 1 }
    producer
  end

  # Collects, compacts, gives clients up and lets them fail.
  def trouble_until(producer)
    until yield
      GC.start
      GC.compact if @compact
      @collected += 1
      @given_up += 1 if (@collected % 3).zero? && producer.disconnect
      fail_fatally(producer) if (@collected % 7).zero?
      sleep 0.02
    end
  end

  def fail_fatally(producer)
    producer.client.test_fatal_error(:out_of_order_sequence_number, "storm")
    @replaced += 1
  rescue Penstock::Error
    nil # this one has failed already, or is being replaced
  end

  # @return [Hash{Array(Integer, Integer) => Integer}] how often each message is in the topic
  def stored
    consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": @cluster.bootstrap_servers } }
    consumer.assign(TOPIC => (0...PARTITIONS).to_h { |partition| [partition, :beginning] })
    left = (0...PARTITIONS).sum { |partition| consumer.watermarks(TOPIC, partition).last }
    found = Hash.new(0)
    while left.positive? && (batch = consumer.poll_batch(max: 1_000, timeout: 10)).any?
      batch.each { |message| found[message.payload.split.map(&:to_i)] += 1 }
      left -= batch.size
    end
    found
  ensure
    consumer&.close
  end

  def compare(verdicts, found)
    verdicts.each_with_index.flat_map do |one, ractor|
      problems = []
      problems << "Ractor #{ractor}: #{one.values.sum(&:size)} verdicts for #{@size} messages" if one.values.sum(&:size) != @size
      { delivered: 1..1, not_persisted: 0..0, possibly_persisted: 0..1 }.each do |verdict, times|
        one[verdict].each do |number|
          count = found[[ractor, number]]
          problems << "#{ractor} #{number}: #{verdict}, and #{count} times in the topic" unless times.cover?(count)
        end
      end
      problems
    end
  end

  # What a call sent again had a verdict before.
  def all_told?(verdicts) = @told >= verdicts.sum { |one| one[:delivered].size }

  def figure(verdicts, seconds, problems)
    counts = %i[delivered not_persisted possibly_persisted].map do |verdict|
      "#{verdicts.sum { |one| one[verdict].size }} #{verdict}"
    end
    "ractors: #{@ractors} Ractors, #{@ractors * @size} messages: #{counts.join(", ")}; #{problems.size} wrong; " \
      "#{@collected} collections#{" with compaction" if @compact}, #{@given_up} disconnects, #{@replaced} fatal errors; " \
      "#{seconds.round(1)} s, Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

if $PROGRAM_NAME == __FILE__
  require "logger"
  ractors, size, compact = ARGV
  exit RactorStorm.new(Integer(ractors || 8), Integer(size || 5_000), compact: compact != "no").run
end

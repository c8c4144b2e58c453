# frozen_string_literal: true

# Many Ractors on one producer, during garbage collection and compaction, while clients are replaced. Afterwards it checks where
# each message is stored. To run it as a program:
#
#   ruby -Ilib test/proofs/support/ractor_storm.rb [RACTORS [MESSAGES OF EACH [COMPACT: yes or no]]]
#
# Its last line is the figure. It fails when a message is not where its result says.

require "penstock"

Warning[:experimental] = false

# The work of one Ractor. A message's payload is the Ractor's number and its own number.
class RactorStorm
  TOPIC = "storm"
  PARTITIONS = 8

  # @return [Hash{Symbol => Array<Integer>}] the numbers of its messages by their result
  def self.produce(shareable, ractor, size)
    results = { delivered: [], not_persisted: [], possibly_persisted: [] }
    number = 0
    while number < size
      kind = number % 4
      batch = kind < 2 ? 1 : [50, size - number].min
      numbers = Array.new(batch) { |i| number + i }
      messages = numbers.map { |one| message(ractor, one) }
      note(results, numbers, send(%i[one_sync one_async many_sync many_async][kind], shareable, messages))
      number += batch
    end
    results
  end

  def self.message(ractor, number)
    { topic: TOPIC, payload: "#{ractor} #{number}#{" " * (number % 300)}", key: "k#{number}", label: number,
      headers: { "ractor" => [ractor.to_s, number.to_s] } }
  end

  def self.note(results, numbers, reports)
    raise "#{numbers.size} messages, #{reports.size} results" unless reports.size == numbers.size

    numbers.zip(reports) do |one, report|
      raise "the report of #{one} has the label #{report.label.inspect}" if report.label && report.label != one

      results.fetch(report.error ? report.status : :delivered) << one
    end
  end

  # A raised error is a result too: a `retriable?` DeliveryError says that the message is not in the topic.
  Result = Struct.new(:status, :error, :label)

  def self.result_of(error)
    unsent = error.is_a?(Penstock::DeliveryError) ? error.retriable? : !error.is_a?(Penstock::WaitTimeoutError)
    Result.new(unsent ? :not_persisted : :possibly_persisted, error)
  end

  def self.one_sync(shareable, messages)
    [shareable.produce_sync(messages.first)]
  rescue Penstock::Error => e
    [result_of(e)]
  end

  def self.one_async(shareable, messages)
    [awaited(shareable.produce_async(messages.first))]
  rescue Penstock::Error => e
    [result_of(e)]
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
    dispatched + Array.new(messages.size - dispatched.size) { Result.new(:not_persisted, error) }
  end

  # @param compact [Boolean] whether the heap is compacted while the Ractors run
  def initialize(ractors, size, compact:)
    @ractors = ractors
    @size = size
    @compact = compact
    @cluster = Penstock::EmbeddedCluster.new
    @cluster.create_topic(TOPIC, partitions: PARTITIONS)
    @published = 0
    @collected = @given_up = @replaced = 0
  end

  def run
    start = now
    results = storm
    seconds = now - start
    problems = compare(results, stored)
    problems << "#{@published} of #{results.sum { |one| one[:delivered].size }} published" unless all_published?(results)
    problems << "work without a wake-up: #{@missed}" unless @missed.zero?
    problems.first(20).each { |problem| puts problem }
    puts figure(results, seconds, problems)
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
    results = made.map { |ractor| value_of(ractor) }
    done = true
    trouble.join
    @missed = producer.poller.stats[:missed_wakeups]
    producer.close
    results
  end

  # Polls for the Ractor's end. Otherwise the end wakes the main Ractor in `take`, and Ruby 3.3 and 3.4 sometimes hang then
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
    producer.monitor.subscribe("message.acknowledged") { @published += 1 }
    producer
  end

  # Collects, compacts, closes clients and makes them fail.
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
    nil # the client has failed already, or is being replaced
  end

  # @return [Hash{Array(Integer, Integer) => Integer}] how often each message is stored
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

  def compare(results, found)
    results.each_with_index.flat_map do |one, ractor|
      problems = []
      problems << "Ractor #{ractor}: #{one.values.sum(&:size)} results for #{@size} messages" if one.values.sum(&:size) != @size
      { delivered: 1..1, not_persisted: 0..0, possibly_persisted: 0..1 }.each do |result, times|
        one[result].each do |number|
          count = found[[ractor, number]]
          problems << "#{ractor} #{number}: #{result}, and #{count} times in the topic" unless times.cover?(count)
        end
      end
      problems
    end
  end

  # A call that sends a message again publishes its earlier result as well.
  def all_published?(results) = @published >= results.sum { |one| one[:delivered].size }

  def figure(results, seconds, problems)
    counts = %i[delivered not_persisted possibly_persisted].map do |result|
      "#{results.sum { |one| one[result].size }} #{result}"
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

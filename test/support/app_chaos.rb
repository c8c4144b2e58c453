# frozen_string_literal: true

require "penstock/testing"

# An application on a driver, to which the seed does what can happen: failing and batched work, rebalances in time and late,
# crashes, commits that fail. Afterwards nothing may be lost, and what came twice must have a reason. See {#run}.
class AppChaos
  TOPIC = "chaos"
  GROUP = "group"
  KEYS = 8
  Seen = Struct.new(:partition, :offset, :key, :life, keyword_init: true)

  class Broken < StandardError; end

  attr_reader :driver
  # @return [Integer] how often a partition was parked to leave memory to others
  attr_reader :paused

  # @param order [Symbol] of the route
  # @param seed [Integer]
  # @param partitions [Integer]
  # @param memory [Integer, nil] bytes for messages that are polled and not processed
  # @param options [Hash] further ones of the route
  def initialize(order, seed, partitions: 3, memory: nil, **options)
    @order = order
    @repeats = options.key?(:batch) # what was finished of a batch that then failed comes again
    @random = Random.new(seed ^ 0x5eed)
    @partitions = partitions
    @life = 0 # grows whenever something may come again
    @seen = [] # every message that a processor has finished
    @highest = Hash.new(0) # committed offset
    @away = []
    @driver = Penstock::Testing.drive(app(options), seed:)
    @paused = 0
    limit(memory) if memory
  end

  # @param rounds [Integer]
  # @return [self]
  # @raise [Broken] when a promise is broken
  def run(rounds)
    rounds.times { act }
    bring_back
    driver.advance(600)
    check_all
    report = driver.stop
    broken("the stop: #{report}") unless report.complete?
    @partitions.times { |partition| check_committed(partition, last: true) }
    self
  end

  # @return [Integer]
  def produced = @produced ||= 0

  private

  def app(options)
    me = self
    processor = Class.new(Penstock::Processor) do
      define_method(options.key?(:batch) ? :process_batch : :process) { |what| me.__send__(:called, self, what) }
      define_method(:tick) { nil }
    end
    Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.threads = 4
      app.group(GROUP) do |group|
        group.topic TOPIC, to: processor, order: @order, in_flight: 20, dead_letter: "dead", retry: { times: 3 },
                           **options
      end
    end
  end

  # Far less than an application may have.
  def limit(memory)
    settings = driver.instance_variable_get(:@settings).dup
    settings.define_singleton_method(:backlog_bytes) { memory }
    settings.monitor.subscribe("client.pause") { @paused += 1 }
    driver.instance_variable_set(:@settings, settings.freeze)
    driver.__send__(:begin_again)
  end

  # ---- what a processor does ----

  def called(processor, what)
    @processor = processor
    process(what)
  end

  def process(what)
    return process_one(what) unless what.is_a?(Penstock::RecordBatch)

    what.each do |message|
      process_one(message)
      what.done(message) if @random.rand(3).zero?
    end
  end

  def process_one(message)
    raise "poison" if message.payload == "poison"
    raise "now and then" if @random.rand(12).zero?
    raise Penstock::Processor::Paused, @random.rand(5) if @random.rand(60).zero?

    @seen << Seen.new(partition: message.partition, offset: message.offset, key: message.key, life: @life)
  end

  # ---- what happens ----

  def act
    case @random.rand(100)
    when 0...45 then produce(@random.rand(1..12))
    when 45...75 then @random.rand(1..30).times { driver.step }
    when 75...86 then driver.advance(@random.rand * 8)
    when 86...90 then take_away(:revoke)
    when 90...92 then take_away(:lose)
    when 92...94 then bring_back
    when 94...95 then lose_for_a_moment
    when 95...97 then driver.fail_commits(GROUP)
    else crash
    end
    check_overlap
    @partitions.times { |partition| check_committed(partition) }
  end

  def produce(count)
    count.times do
      @produced = produced + 1
      driver.produce(TOPIC, partition: @random.rand(@partitions), key: @random.rand(10).zero? ? nil : "k#{@random.rand(KEYS)}",
                            payload: @random.rand(40).zero? ? "poison" : "fine")
    end
  end

  def take_away(how)
    partition = @random.rand(@partitions)
    @life += 1
    @away << partition
    driver.public_send(how, GROUP, { TOPIC => [partition] })
  end

  # What was begun before goes on meanwhile.
  def lose_for_a_moment
    partition = @random.rand(@partitions)
    return if @away.include?(partition) || size(partition).zero?

    @life += 1
    driver.lose(GROUP, { TOPIC => [partition] })
    @random.rand(4).times { driver.step }
    driver.assign(GROUP, { TOPIC => [partition] })
    @random.rand(10).times { driver.step }
  end

  def bring_back
    driver.advance(40) if @random.rand(2).zero? # a revocation that is held back is over
    driver.advance(40)
    @away.uniq.each { |partition| driver.assign(GROUP, { TOPIC => [partition] }) }
    @away.clear
  end

  def crash
    @life += 1
    @away.clear
    driver.crash
  end

  # ---- what must be so ----

  # One piece of work at a time has messages of a lane.
  def check_overlap
    return if @order == :unordered

    twice = running.flat_map { |work| work.slices.map(&:lane).uniq }.tally.find { |_, count| count > 1 }
    several = @order == :partition && running.map(&:partition).tally.any? { |_, count| count > 1 }
    broken("two workers have messages of one lane") if twice || several
  end

  def running
    driver.instance_variable_get(:@runtime).running.grep(Penstock::App.const_get(:Work))
  end

  def check_committed(partition, last: false)
    committed = driver.committed(GROUP, TOPIC, partition) || 0
    finished = finished(partition)
    hole = (0...committed).find { |offset| !finished[offset] }
    broken("offset #{committed} of partition #{partition} is committed, and #{hole} is not finished") if hole
    broken("the committed offset of partition #{partition} fell to #{committed}") if committed < @highest[partition]
    @highest[partition] = committed
    broken("at the end #{committed} of #{size(partition)} are committed") if last && committed != size(partition)
  end

  def log(partition) = driver.instance_variable_get(:@log).select { |message| message.partition == partition }
  def size(partition) = log(partition).size

  # @return [Hash{Integer => true}] by offset: processed, or its copy is stored
  def finished(partition)
    done = @seen.each_with_object({}) { |one, found| found[one.offset] = true if one.partition == partition }
    driver.produced("dead").each do |copy|
      done[copy[:headers]["source_offset"].to_i] = true if copy[:headers]["source_partition"] == partition.to_s
    end
    done
  end

  def check_all
    @partitions.times do |partition|
      done = finished(partition)
      missing = log(partition).map(&:offset).reject { |offset| done[offset] }
      broken("partition #{partition}: #{missing.size} messages were lost, such as #{missing.first}") if missing.any?
    end
    check_order
    check_repetitions
  end

  # Within a life, the messages of a lane are finished in order. Dead letters have no order with the others.
  def check_order
    return if @order == :unordered

    lanes = @seen.group_by { |one| [one.life, one.partition, @order == :key ? one.key : nil] }
    lanes.each do |(_, partition, key), list|
      next if @order == :key && key.nil?

      offsets = list.map(&:offset).uniq
      broken("partition #{partition}, key #{key.inspect}: the order #{offsets.inspect}") unless offsets == offsets.sort
    end
  end

  # A message that was finished comes again only after a crash or a rebalance, or in a batch that has failed.
  def check_repetitions
    twice = @seen.group_by { |one| [one.life, one.partition, one.offset] }.find { |_, list| list.size > 1 }
    broken("#{twice[0].inspect} was finished twice in one life") if twice && !@repeats
  end

  def broken(text)
    again = "FROM=#{driver.seed} SEEDS=1 ruby -Ilib -Itest test/app/chaos_test.rb"
    raise Broken, "#{text} (order #{@order}, seed #{driver.seed}; to repeat it: #{again})"
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/app_chaos"
require_relative "../support/each_once"

# What an application promises, whatever comes first. SEEDS=500 FROM=1000 tries other and more orders of events, ROUNDS=600 longer
# ones.
class AppChaosTest < PenstockTest
  include EachOnce

  slow(/\Atest_nothing_is_lost_repeated_or_out_of_order_by_(?!key\z)|_is_found\z/)

  thorough(/_by_a?_?throttled_/)

  FROM = Integer(ENV.fetch("FROM", "0"))
  SEEDS = Integer(ENV.fetch("SEEDS") { { "quick" => 4, "gate" => 6, "all" => 12 }.fetch(Marks::TESTS) })
  ROUNDS = Integer(ENV.fetch("ROUNDS", "100"))

  { "partition" => [:partition, {}], "key" => [:key, {}], "unordered" => [:unordered, {}],
    "batches_of_a_partition" => [:partition, { batch: { size: 7, wait: 0.5 } }],
    "batches_without_order" => [:unordered, { batch: { size: 5 } }],
    "throttled_keys_with_ticks" => [:key, { throttle: { messages: 6, per: 0.5 }, tick: 3 }],
    "a_throttled_partition_with_ticks" => [:partition, { throttle: { messages: 6, per: 0.5 }, tick: 3 }] }
    .each do |name, (order, options)|
    define_method(:"test_nothing_is_lost_repeated_or_out_of_order_by_#{name}") do
      messages = (FROM...(FROM + SEEDS)).sum { |seed| produced(AppChaos.new(order, seed, **options)) }
      assert_operator messages, :>, SEEDS * 50
    end
  end

  # Its processor goes back now and then, and commits follow. So what comes again is no defect.
  class Seeking < AppChaos
    private

    def process_one(message)
      return super if @random.rand(25).positive?

      @life += 1
      raise Penstock::Processor::SeekTo, [message.offset - @random.rand(6), 0].max
    end

    def check_committed(partition, last: false)
      @highest[partition] = 0
      super
    end

    def check_order = nil
  end

  { "messages" => {}, "batches" => { batch: { size: 5, wait: 1 } },
    "throttled_messages" => { throttle: { messages: 20, per: 1 } } }
    .each do |name, options|
    define_method(:"test_nothing_is_lost_when_a_processor_of_#{name}_seeks") do
      [nil, 3_000].product([*FROM...(FROM + (SEEDS / 3))]) do |memory, seed|
        assert_operator produced(Seeking.new(:partition, seed, memory:, **options)), :>, 0
      end
    end
  end

  # Its processor sends each message on, and some of that is not delivered. So it is what was delivered that counts, and what
  # comes again after it is no defect.
  class Sending < AppChaos
    def initialize(...)
      super
      driver.instance_variable_get(:@runtime).sent.script { :msg_timed_out if @random.rand(15).zero? }
    end

    private

    def process_one(message)
      raise "poison" if message.payload == "poison"

      @processor.produce({ topic: "out", key: message.partition.to_s, payload: message.offset.to_s })
      raise Penstock::Processor::Skipped, "enough" if @processor.record && @random.rand(20).zero?

      super
    end

    def finished(partition)
      done = super.slice(*dead(partition))
      driver.produced("out").each { |copy| done[copy[:payload].to_i] = true if copy[:key] == partition.to_s }
      done
    end

    def dead(partition)
      copies = driver.produced("dead").map { |copy| copy[:headers] }
      copies.filter_map { |one| one["source_offset"].to_i if one["source_partition"] == partition.to_s }
    end

    def check_repetitions = nil
  end

  { "messages" => [:partition, {}], "keys" => [:key, {}], "unordered_messages" => [:unordered, {}],
    "batches" => [:partition, { batch: { size: 5 } }], "batches_without_order" => [:unordered, { batch: { size: 5 } }] }
    .each do |name, (order, options)|
    define_method(:"test_nothing_is_lost_when_#{name}_are_sent_on_and_deliveries_fail") do
      (FROM...(FROM + (SEEDS / 3))).each do |seed|
        assert_operator produced(Sending.new(order, seed, **options)), :>, 0
      end
    end
  end

  # @return [Integer]
  def produced(chaos)
    chaos.run(ROUNDS).produced
  rescue AppChaos::Broken => e
    assert_nothing_lost_or_repeated([e.message]) # it has no clock: no machine is too slow for it
  end

  # Each of these defects must be found, or the test above shows nothing.
  DEFECTS = {
    "a commit of what is in work" =>
      [:OffsetTracker, :to_commit, ->(tracker) { [tracker.base && (tracker.base + 1), nil] }],
    "a lane that two workers have" => [:Lane, :ready?, ->(lane) { lane.waiting.nil? && !lane.slices.empty? }],
    "a commit that fails and is not repeated" => [:OffsetTracker, :not_committed, ->(_tracker) {}],
    "an assignment that goes on after its end" => [:Partition, :revoke, ->(_partition) {}],
    "a message that counts as skipped" => [:Starts, :map_of, ->(*) { [[0, 3]] }],
    "a parked partition that is read on behind what was dropped" =>
      [:Detours, :rewind, ->(_, partitions) { -> { partitions.map(&:place) } }, { memory: 3_000 }]
  }.freeze

  DEFECTS.each do |name, (part, method, body, options)|
    define_method(:"test_#{name.tr(" ", "_")}_is_found") do
      part = Penstock::App.const_get(part)
      good = part.instance_method(method)
      part.remove_method(method)
      part.define_method(method) { |*more| body.call(self, *more) }
      assert_raises(AppChaos::Broken) do
        20.times { |seed| %i[partition key].each { |order| AppChaos.new(order, seed, **(options || {})).run(ROUNDS) } }
      end
    ensure
      part.remove_method(method)
      part.define_method(method, good)
    end
  end
end

# frozen_string_literal: true

# One process with many consumers: one thread that waits for all, or a thread for each.
class ManyConsumers < Bench::Scenario
  title "Many consumers in a process"
  about "Consumers that read one partition each, without a group; messages of 100 bytes. One thread waits for all of them with " \
        "a ConsumerSet, or each has a thread of its own. Rate: they read what the partitions of the busy ones have. Then all " \
        "are idle: CPU time of the threads that read. Then the first one gets 50 messages one by one: CPU time of these " \
        "threads for each."
  table "rate", "messages/s", better: :more
  table "idle CPU", "us/s", better: :less
  table "a message", "us of CPU", better: :less
  table "threads", "threads", better: :less
  reference "a thread each"
  common({})
  rounds 3
  apart true
  # What 99 idle consumers add to the cost of one busy one.
  bar 0.8, table: "a message", case: "1 of 100 busy", of_case: "1 of 1 busy"
  bar 1, table: "rate", case: "100 of 100 busy"

  CASES = { "1 of 1 busy" => [1, 1], "1 of 100 busy" => [100, 1], "100 of 100 busy" => [100, 100] }.freeze
  # The embedded cluster keeps little of each partition.
  MESSAGES = { embedded: 30_000, kafka: 400_000 }.freeze
  # It also answers a request for messages only when this time is over, even if messages come.
  FILLED = {} # rubocop:disable Style/MutableConstant -- which topics have their messages
  SET = { embedded: { "fetch.wait.max.ms" => 50 }, kafka: {} }.freeze

  def cases = CASES

  def sides((count, busy))
    kind = @embedded ? :embedded : :kafka
    each = busy == 1 ? MESSAGES[kind] : 200_000 / busy
    name = fill(count, busy, each)
    set = SET[kind].map { |pair| pair.join("=") }
    { "a thread each" => "threads", "Penstock" => "set" }.to_h do |side, mode|
      [side, -> { run(side, busy * each, name, mode, count, busy, each, *set) }]
    end
  end

  def figures(round)
    { "rate" => round[:delivered] / round[:seconds], "idle CPU" => round[:idle_us], "a message" => round[:message_us],
      "threads" => round[:threads] }
  end

  private

  def run(side, messages, *arguments) = note(side, Bench::Program.start("many_consumers.rb", messages, servers, *arguments))

  # Makes the topic, unless an earlier attempt of the guard has.
  def fill(count, busy, each)
    name = "#{topic}-#{count}-#{busy}"
    FILLED[[servers, name]] ||= create(name, count, busy, each)
  end

  def create(name, count, busy, each)
    Bench.create_topic(servers, name, count, embedded: @embedded)
    producer = Penstock::Producer.new("bootstrap.servers": servers)
    (0...(busy * each)).each_slice(10_000) do |numbers|
      producer.produce_many_sync(numbers.map { |i| { topic: name, payload: "x" * 100, partition: i % busy } })
    end
    producer.close
    name
  end
end

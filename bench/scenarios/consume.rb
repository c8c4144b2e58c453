# frozen_string_literal: true

require "json"

# Reading a topic that has messages.
class Consume < Bench::Scenario
  title "Reading messages"
  about "A consumer reads a topic from its beginning: 16 partitions or 1, messages of 100 bytes, every payload. Timed from the " \
        "first message to the last. C has fast settings (fetch.queue.backoff.ms 10, or before librdkafka 2.2.0 " \
        "queued.min.messages 1,000,000), Penstock its defaults. JSON: documents of 1 kB are parsed, by the program or by " \
        "config.deserializer, compared with the time that the program spends in JSON.parse."
  table "rate", "messages/s", better: :more
  common({})
  rounds 7

  EACH = "Penstock, each"
  C_DEFAULTS = "C, librdkafka's defaults"
  PYTHON = "confluent-kafka"
  PYTHON_FAST = "confluent-kafka, fast settings"
  PARSING = "its time in JSON.parse"
  VALUES = "Penstock, deserializer"

  CASES = { "16 partitions" => [:read, 16], "1 partition" => [:read, 1], "JSON" => [:json] }.freeze
  READS = ["16 partitions", "1 partition"].freeze

  READS.each do |name|
    bar 0.6, case: name, table: "rate"
    bar 0.25, side: EACH, case: name, table: "rate"
    bar 8, case: name, table: "rate", to: PYTHON
    bar 3, case: name, table: "rate", to: PYTHON_FAST
  end
  bar 0.9, case: "JSON", table: "rate", to: PARSING
  bar 0.9, side: VALUES, case: "JSON", table: "rate", to: PARSING
  guard "16 partitions"

  # What the embedded cluster keeps of each partition is less than a quick consumer reads in a second.
  COUNTS = { embedded: { 16 => [640_000, 1], 1 => [40_000, 10] }, kafka: { 16 => [1_000_000, 1], 1 => [1_000_000, 1] } }.freeze
  DOCUMENTS = 60_000
  FILLED = {} # rubocop:disable Style/MutableConstant -- which topics have their messages

  def cases = CASES

  def sides((kind, *arguments)) = send(kind, *arguments)

  private

  def read(partitions)
    messages, passes = COUNTS.fetch(@embedded ? :embedded : :kafka).fetch(partitions)
    fill("#{partitions}-partitions", partitions, messages) { "x" * 100 }
    more = [partitions, messages, passes]
    { "C" => run("C", "consume.c", "read", *more, set: fast),
      C_DEFAULTS => (run(C_DEFAULTS, "consume.c", "read", *more) if others.any?), # it sleeps most of the time
      "Penstock" => run("Penstock", "consume.rb", "batch", *more), EACH => run(EACH, "consume.rb", "each", *more),
      **python(more) }.compact
  end

  def python(more)
    return {} unless others.include?(PYTHON)

    why_not = Bench::Peers[PYTHON].why_not
    return { PYTHON => leave_out(PYTHON, why_not.delete_prefix("#{PYTHON}: ")) } if why_not

    newer = { "fetch.queue.backoff.ms": 10 } # it brings its own librdkafka
    { PYTHON => {}, PYTHON_FAST => newer }.to_h { |side, set| [side, run(side, "consume.py", "batch", *more, set:)] }
  end

  def json
    document = JSON.generate("id" => 1, "items" => Array.new(28) { |i| { "name" => "item #{i}", "count" => i } })
    fill("json", 16, DOCUMENTS) { document }
    { "json" => "Penstock", "values" => VALUES, "parse" => PARSING }
      .to_h { |kind, side| [side, run(side, "consume.rb", kind, 16, DOCUMENTS, 1)] }
  end

  def run(side, file, kind, partitions, messages, passes, set: {})
    all = set.map { |pair| pair.join("=") }
    note(side, Bench::Program.start(file, messages * passes, servers, @topic, kind, partitions, messages, passes, *all))
  end

  def fast
    newer = Gem::Version.new(Penstock.librdkafka_version) >= Gem::Version.new("2.2.0")
    newer ? { "fetch.queue.backoff.ms": 10 } : { "queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 65_536 }
  end

  # Makes a topic, unless an earlier attempt of the guard has, and fills its partitions evenly.
  def fill(name, partitions, messages, &)
    @topic = "#{topic}-#{name}"
    FILLED[[servers, @topic]] ||= create(partitions, messages, &)
  end

  def create(partitions, messages, &payload)
    Bench.create_topic(servers, @topic, partitions, embedded: @embedded)
    producer = Penstock::Producer.new("bootstrap.servers": servers)
    (0...messages).each_slice(10_000) do |numbers|
      producer.produce_many_sync(numbers.map { |i| { topic: @topic, payload: payload.call, partition: i % partitions } })
    end
    producer.close
    @topic
  end
end

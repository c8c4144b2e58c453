# frozen_string_literal: true

require "json"

# What an application costs beside the consumer that it uses.
class Application < Bench::Scenario
  title "Applications"
  about "An application reads a topic from its beginning, compared with a plain consumer that does the same with each message: " \
        "12 partitions, JSON documents of 1,081 bytes, keys. In batches of 100 and one by one the payload is read; parsed: the " \
        "value of each message, of a JSON decoder. Timed from the first message to the last."
  table "rate", "messages/s", better: :more
  reference "a plain consumer"
  common({})
  rounds 5
  apart true
  # 0.3, 2 and 5 us for each message, beside 2 us of a plain consumer.
  bar 0.6, case: "batches of 100", table: "rate"
  bar 0.5, case: "one by one", table: "rate"
  bar 0.28, case: "by key", table: "rate"
  bar 0.9, case: "parsed", table: "rate"

  CASES = { "batches of 100" => %w[batch batch], "one by one" => %w[each one], "by key" => %w[each key],
            "parsed" => %w[values parsed] }.freeze
  PARTITIONS = 12
  BYTES = 1_081
  # The embedded cluster keeps little of each partition.
  MESSAGES = { embedded: 36_000, kafka: 400_000 }.freeze
  FILLED = {} # rubocop:disable Style/MutableConstant -- which topics have their messages

  def cases = CASES

  def sides((plain, app))
    name = fill
    { "a plain consumer" => ["consume.rb", plain, 1], "Penstock" => ["application.rb", app] }.to_h do |side, (file, kind, *more)|
      [side, -> { run(side, file, name, kind, PARTITIONS, messages, *more) }]
    end
  end

  private

  def messages = MESSAGES.fetch(@embedded ? :embedded : :kafka)

  def run(side, file, name, *arguments) = note(side, Bench::Program.start(file, messages, servers, name, *arguments))

  # Makes the topic, unless an earlier attempt has.
  def fill = FILLED[[servers, topic]] ||= create

  def create
    Bench.create_topic(servers, topic, PARTITIONS, embedded: @embedded)
    producer = Penstock::Producer.new("bootstrap.servers": servers)
    (0...messages).each_slice(10_000) do |numbers|
      producer.produce_many_sync(numbers.map { |i| { topic:, payload: document(i), partition: i % PARTITIONS, key: key(i) } })
    end
    producer.close
    topic
  end

  def key(number) = "k#{number % 1_000}"

  def document(number)
    start = JSON.generate("id" => number, "items" => Array.new(20) { |i| { "name" => "item #{i}", "count" => i } })
    "#{start.chop},\"more\":\"#{"x" * (BYTES - start.bytesize - 10)}\"}"
  end
end

# frozen_string_literal: true

# How long a message takes to the program that reads it.
class Arrival < Bench::Scenario
  title "From a producer's send to the consumer"
  about "A plain C producer sends messages of 8 bytes, one by one, 2 to 8 ms apart, without linger. A consumer polls: the time " \
        "from the send until the program has the message. C polls with rd_kafka_consumer_poll."
  table "median", "us", better: :less
  table "p99", "us", better: :less
  common({})
  rounds 21
  bar 0.95, case: "1 partition"

  MESSAGES = 300

  def cases = { "1 partition" => MESSAGES }

  def sides(count)
    name = "#{topic}-arrival"
    Bench.create_topic(servers, name, 1, embedded: @embedded)
    sender = Bench.compile(File.join(Bench::Program::DIRECTORY, "arrival.c"))
    { "C" => ["arrival.c", name, count], "Penstock" => ["arrival.rb", name, count, sender] }
      .to_h { |side, (file, *rest)| [side, note(side, Bench::Program.start(file, count, servers, *rest))] }
  end

  def figures(round)
    { "median" => Bench.median(round[:latencies_us]), "p99" => Bench.percentile(round[:latencies_us], 99) }
  end
end

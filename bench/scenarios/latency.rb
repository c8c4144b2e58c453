# frozen_string_literal: true

# Calls that wait for their delivery results.
class Latency < Bench::Scenario
  title "Latency of synchronous calls"
  about "Calls wait for the results of messages of 100 bytes. One by one: a producer sends 500 messages and waits for each. " \
        "A batch: one call sends 1,000 or 100,000 messages. Threads and fibers: each sends one by one. " \
        "Mixed: while one thread sends one by one, another sends 20,000 messages a second and waits for none. linger.ms is 5, " \
        "librdkafka's default, unless the case or the side says otherwise."
  table "p50", "us", better: :less
  table "p95", "us", better: :less
  table "p99", "us", better: :less
  table "rate", "messages/s", better: :more
  table "size of requests", "messages", better: :more

  # Sides besides C and Penstock.
  LINGERS = "flush_on_wait off" # Penstock, with config.flush_on_wait = false
  NO_LINGER = "linger.ms 0"     # Penstock, with this setting

  CASES = {
    "one by one, linger 0 ms" => [:one_by_one, 0], "one by one" => [:one_by_one, 5],
    "a batch of 1,000" => [:batch, 1_000], "a batch of 100,000" => [:batch, 100_000],
    "100 threads" => [:waiters, 20_000, "thread", 100], "1,000 fibers" => [:waiters, 100_000, "plain", 1_000],
    "mixed" => [:mixed]
  }.freeze

  bar 0.9, case: "one by one, linger 0 ms", table: "p50"
  bar 20, case: "one by one", table: "p50", to: LINGERS
  bar 4, case: "a batch of 1,000", table: "rate"
  bar 0.97, case: "a batch of 100,000", table: "rate", to: LINGERS
  ["100 threads", "1,000 fibers"].each { |name| bar 0.95, case: name, table: "rate", to: NO_LINGER } # rounds vary by a third
  bar 0.8, case: "mixed", table: "size of requests", to: LINGERS

  def cases = CASES

  def sides((kind, *arguments)) = send(kind, *arguments)

  def figures(round)
    return { "size of requests" => round[:request_size] } if round[:request_size]
    return { "rate" => round[:delivered] / round[:seconds] } unless round[:latencies_us]

    { "p50" => 50, "p95" => 95, "p99" => 99 }.transform_values { |percent| Bench.percentile(round[:latencies_us], percent) }
  end

  private

  def one_by_one(linger)
    lingers = linger.zero? ? {} : { LINGERS => ["Penstock", "--no-flush"] }
    which = (OWN + others).to_h { |name| [name, [name]] }.merge(lingers)
    peers("sync", which, messages: 500, set: { "linger.ms" => linger })
  end

  def batch(count)
    peers("batch", { "C" => ["C"], "Penstock" => ["Penstock"], LINGERS => ["Penstock", "--no-flush"] }, messages: count)
  end

  def waiters(messages, kind, count)
    { "Penstock" => {}, NO_LINGER => { "linger.ms" => 0 } }.to_h do |side, set|
      [side, program(side, "waiters.rb", messages, messages, kind, count, 1, set:)]
    end
  end

  def mixed
    { "Penstock" => "flush", LINGERS => "linger" }.to_h { |side, kind| [side, program(side, "mixed.rb", 20_000, 20_000, kind)] }
  end
end

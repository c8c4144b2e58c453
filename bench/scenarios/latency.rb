# frozen_string_literal: true

# One message at a time.
class Latency < Bench::Scenario
  title "Latency of a synchronous call"
  about "One producer sends 500 messages of 100 bytes one after the other, and waits for each: the time from the call " \
        "until it returns with the delivery result."
  table "p50", "us", better: :less
  table "p95", "us", better: :less
  table "p99", "us", better: :less
  ["linger 0 ms", "linger 5 ms"].each { |name| bar 0.9, case: name, table: "p50" }

  def cases = { "linger 0 ms" => 0, "linger 5 ms" => 5 }

  def sides(linger) = peers("sync", OWN + others, messages: 500, set: { "linger.ms" => linger })

  def figures(round)
    { "p50" => 50, "p95" => 95, "p99" => 99 }.transform_values { |percent| Bench.percentile(round[:latencies_us], percent) }
  end
end

# frozen_string_literal: true

# The cost of waiting.
class Wake < Bench::Scenario
  title "From the delivery result to its waiter"
  about "Messages one by one: from librdkafka's delivery result until its waiter runs again, and the whole round trip. Sides: " \
        "a C program whose polling thread wakes the waiter, a Ruby thread, which serves its own client, and a fiber, which " \
        "the poller wakes."
  table "wake-up", "us", better: :less
  table "wake-up p99", "us", better: :less
  table "round trip", "us", better: :less
  settings "linger.ms" => 0
  bar 0.66, case: "alone", side: "thread"
  bar 0.5, case: "alone", side: "fiber, async"
  bar 0.95, table: "round trip", case: "alone", side: "thread"

  WAITERS = { "thread" => "thread", "fiber, async" => "async", "fiber, plain" => "plain" }.freeze

  # Beside a thread that computes, each wait ends with a wait for the GVL, of a time slice of 100 ms.
  def cases = { "alone" => 500, "beside a thread that computes" => 5 }

  def sides(trips)
    plugin = Bench.compile(File.join(Bench::Program::DIRECTORY, "acknowledged.c"), "-shared", "-fPIC")
    c = trips == 500 ? { "C" => program("C", "wait.c", trips, plugin, trips) } : {}
    c.merge(WAITERS.to_h do |side, waiter|
      [side, program(side, "wait.rb", trips, plugin, trips, waiter, trips == 500 ? "alone" : "busy")]
    end)
  end

  def figures(round)
    { "wake-up" => Bench.median(round[:wakes]), "wake-up p99" => Bench.percentile(round[:wakes], 99),
      "round trip" => Bench.median(round[:trips]) }.transform_values { |ns| ns / 1e3 }
  end
end

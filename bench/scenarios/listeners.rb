# frozen_string_literal: true

# What listeners cost.
class Listeners < Bench::Scenario
  title "A listener of each delivery"
  about "produce_many_sync of 100,000 messages of 100 bytes, until one listener has received each event. And messages " \
        "one by one, until each has its result and its event, beside a producer whose listener sleeps for ever."
  table "rate", "messages/s", better: :more
  table "result p99", "ms", better: :less
  table "event p99", "ms", better: :less
  reference "no listener"

  def cases = { "of each delivery" => { "no listener" => "none", "a listener" => "one" },
                "of another producer" => { "no listener" => "quick", "a listener" => "sleeper" } }

  def sides(kinds)
    count = kinds.value?("none") ? 100_000 : 500
    kinds.to_h { |side, kind| [side, program(side, "listeners.rb", count, count, kind)] }
  end

  def figures(round)
    return super unless round[:events]

    { "result p99" => Bench.percentile(round[:results], 99), "event p99" => Bench.percentile(round[:events], 99) }
  end
end

# frozen_string_literal: true

# What listeners cost.
class Listeners < Bench::Scenario
  title "A listener of each verdict"
  about "produce_many_sync of 100,000 messages of 100 bytes, until one listener has been told of each verdict; and messages " \
        "one by one, until each has its verdict and its listener was told, beside a producer whose listener sleeps for ever."
  table "rate", "messages/s", better: :more
  table "verdict p99", "ms", better: :less
  table "told p99", "ms", better: :less
  reference "no listener"

  def cases = { "of each verdict" => { "no listener" => "none", "a listener" => "one" },
                "of another producer" => { "no listener" => "quick", "a listener" => "sleeper" } }

  def sides(kinds)
    count = kinds.value?("none") ? 100_000 : 500
    kinds.to_h { |side, kind| [side, program(side, "listeners.rb", count, count, kind)] }
  end

  def figures(round)
    return super unless round[:told]

    { "verdict p99" => Bench.percentile(round[:verdicts], 99), "told p99" => Bench.percentile(round[:told], 99) }
  end
end

# frozen_string_literal: true

# Whether a pause makes the next call slower.
class Gaps < Bench::Scenario
  title "After a pause"
  about "produce_many_sync of 1,000 messages of 100 bytes after a pause: the thread that serves a producer must not sleep " \
        "past the moment when it is needed."
  table "call", "ms", better: :less
  reference "Penstock"
  rounds 5

  PAUSES = [0, 1, 2, 5].freeze
  PAUSES.drop(1).each { |seconds| bar 0.66, case: "after #{seconds} s", of_case: "after 0 s" }

  def cases = PAUSES.to_h { |seconds| ["after #{seconds} s", seconds] }

  def sides(seconds) = { "Penstock" => program("Penstock", "gaps.rb", 1_000, seconds) }

  def figures(round) = { "call" => round[:ms] }
end

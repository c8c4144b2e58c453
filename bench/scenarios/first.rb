# frozen_string_literal: true

# The first message of a new client.
class First < Bench::Scenario
  title "The first message"
  about "A producer, from its creation until the first delivery result. A consumer, from the call of assign, or of subscribe " \
        "in a new group, to the first message. Each round makes a new client."
  table "time", "ms", better: :less
  rounds 7

  CASES = { "a producer" => "produce", "a consumer, assign" => "assign", "a consumer, subscribe" => "subscribe" }.freeze
  CASES.each_key { |name| bar 0.9, case: name }

  def cases = CASES

  def sides(kind)
    { "C" => program("C", "first.c", 1, kind), "Penstock" => program("Penstock", "first.rb", 1, kind) }
  end

  def figures(round) = { "time" => round[:ms] }
end

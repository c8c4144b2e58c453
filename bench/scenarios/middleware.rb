# frozen_string_literal: true

# The cost of Ruby code that handles each message.
class Middleware < Bench::Scenario
  title "A middleware step"
  about "One producer sends 100,000 messages of 100 bytes, with and without a middleware step that changes nothing."
  table "rate", "messages/s", better: :more
  reference "Penstock"
  bar 0.7, side: "Penstock, a step", case: "one batch"
  bar 0.7, side: "Penstock, a step", case: "one call each"
  guard "one call each"

  def cases = { "one batch" => "batch", "one call each" => "async" }

  def sides(workload)
    peers(workload, { "Penstock" => ["Penstock"], "Penstock, a step" => ["Penstock", "--step"] }, messages: 100_000)
  end
end

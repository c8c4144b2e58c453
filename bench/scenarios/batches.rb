# frozen_string_literal: true

# Large batches of one producer.
class Batches < Bench::Scenario
  title "Batches of one producer"
  about "One producer sends messages of 100 bytes in one call and waits for all delivery results."
  table "rate", "messages/s", better: :more
  bar 0.95, case: "100,000 messages"
  guard "100,000 messages"

  def cases = { "1,000 messages" => 1_000, "10,000 messages" => 10_000, "100,000 messages" => 100_000 }

  def sides(count) = peers("batch", OWN + others, messages: count)
end

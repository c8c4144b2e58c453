# frozen_string_literal: true

# MessagePack in Ractors, without Kafka.
class CodecRactors < Bench::Scenario
  title "MessagePack in Ractors"
  about "Round trips of a document of 350 bytes, unpacked and packed again 200,000 times by each Ractor, all of them at once. " \
        "The msgpack gem cannot be used outside of the main Ractor."
  table "rate", "round trips/s", better: :more
  reference "Penstock"
  rounds 15

  def cases = { "1 Ractor" => 1, "2 Ractors" => 2, "4 Ractors" => 4 }
  bar 1.7, case: "2 Ractors", of_case: "1 Ractor"

  def sides(ractors) = { "Penstock" => program("Penstock", "codec_ractors.rb", ractors * 200_000, ractors) }
end

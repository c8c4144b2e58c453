# frozen_string_literal: true

# MessagePack in Ractors, without Kafka.
class CodecRactors < Bench::Scenario
  title "MessagePack in Ractors"
  about "Round trips of a document, unpacked and packed again by all Ractors in parallel. The same number of processes shows " \
        "what the machine allows. Numbers: 1,000 of them, which allocate no objects. Document: 350 bytes with 12 objects, " \
        "whose collection stops all Ractors. Literals: Ruby makes the same objects without MessagePack."
  table "rate", "round trips/s", better: :more
  reference "processes"
  rounds 7

  ROUND_TRIPS = { "numbers" => 50_000, "document" => 300_000, "literals" => 300_000 }.freeze
  private_constant :ROUND_TRIPS

  bar 1.7, case: "numbers, 2", of_case: "numbers, 1", side: "Ractors"

  # @return [Hash] the document and the number of workers
  def cases = ROUND_TRIPS.keys.product([1, 2, 4]).to_h { |name, count| ["#{name}, #{count}", [name, count]] }

  def sides(work)
    name, count = work
    trips = ROUND_TRIPS.fetch(name)
    %w[Ractors processes].to_h do |side|
      [side, program(side, "codec_ractors.rb", count * trips, name, side.downcase, count, trips)]
    end
  end
end

# frozen_string_literal: true

# MessagePack in Ractors, without Kafka.
class CodecRactors < Bench::Scenario
  title "MessagePack in Ractors"
  about "Round trips of a document, unpacked and packed again by each Ractor, all at once; beside as many processes, which is " \
        "what the machine allows. Numbers: 1,000 of them, which are no objects to Ruby. Document: 350 bytes with 12 objects, " \
        "which all Ractors stop to collect. Literals: the same objects made by Ruby alone, without MessagePack: what Ruby allows."
  table "rate", "round trips/s", better: :more
  reference "processes"
  rounds 7

  ROUND_TRIPS = { "numbers" => 50_000, "document" => 300_000, "literals" => 300_000 }.freeze
  private_constant :ROUND_TRIPS

  bar 1.7, case: "numbers, 2", of_case: "numbers, 1", side: "Ractors"

  # @return [Hash] with the document and how many work on it
  def cases = ROUND_TRIPS.keys.product([1, 2, 4]).to_h { |name, count| ["#{name}, #{count}", [name, count]] }

  def sides(work)
    name, count = work
    trips = ROUND_TRIPS.fetch(name)
    %w[Ractors processes].to_h do |side|
      [side, program(side, "codec_ractors.rb", count * trips, name, side.downcase, count, trips)]
    end
  end
end

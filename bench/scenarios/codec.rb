# frozen_string_literal: true

# MessagePack without Kafka.
class Codec < Bench::Scenario
  title "MessagePack: packing and unpacking"
  about "One document, packed into a String and unpacked again by one call each: CPU time for one, and the most memory that " \
        "the process takes more for one of each, with a garbage collection after it. No Kafka takes part."
  table "packing", "us", better: :less
  table "unpacking", "us", better: :less
  table "memory", "KB", better: :less
  reference "msgpack gem"
  rounds 15

  cases = ["a small map", "a big array", "a big map", "long strings", "short strings", "integers", "floats", "a nested document"]
  cases.product(%w[packing unpacking]) { |name, table| bar 1.0, case: name, table: }
  ["a big array", "long strings"].each { |name| bar 1.0, case: name, table: "memory" } # of the others it is a few pages
  CASES = cases.to_h { |name| [name, name] }.freeze
  private_constant :CASES

  def cases = CASES

  def sides(document)
    gem = Gem::Specification.find_all_by_name("msgpack").any?
    leave_out("msgpack gem", "gem msgpack is not installed") unless gem
    libraries = { "msgpack gem" => ("msgpack" if gem), "Penstock" => "penstock" }.compact
    libraries.to_h { |side, library| [side, program(side, "codec.rb", 1, library, document)] }
  end

  def figures(round)
    { "packing" => round[:packing], "unpacking" => round[:unpacking], "memory" => round[:memory] }
  end
end

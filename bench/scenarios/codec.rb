# frozen_string_literal: true

require_relative "../programs/codec_packing"

# MessagePack without Kafka.
class Codec < Bench::Scenario
  title "MessagePack: packing and unpacking"
  about "One document, packed into a String and unpacked again, with one call each: a call's CPU time, and the most memory " \
        "that one of each adds to the process, before a garbage collection. No Kafka takes part."
  table "packing", "us", better: :less
  table "unpacking", "us", better: :less
  table "memory", "KB", better: :less
  reference "msgpack gem"
  rounds 15

  cases = ["a small map", "a big array", "a big map", "long strings", "short strings", "integers", "floats", "a nested document"]
  cases.product(%w[packing unpacking]) { |name, table| bar 1.0, case: name, table: }
  ["a big array", "long strings"].each { |name| bar 1.0, case: name, table: "memory" } # for the other cases it is a few pages
  CodecPacking::CASES.each_key { |name| bar 1.0, case: name, table: "packing" }
  unpacked = ["recursive ext types", "ext types", "deep nesting", "unique keys", "integer keys", "symbol keys", "frozen"]
  unpacked.each { |name| bar 1.0, case: name, table: "unpacking" }
  CASES = [*cases, *CodecPacking::CASES.keys, *unpacked].to_h { |name| [name, name] }.freeze
  SINCE = { **CodecPacking::SINCE, "recursive ext types" => "1.5" }.freeze # the gem's version that added it
  private_constant :CASES, :SINCE

  def cases = CASES

  def sides(document)
    installed = Gem::Specification.find_all_by_name("msgpack").map(&:version).max
    gem = installed && installed >= Gem::Version.new(SINCE.fetch(document, "0"))
    leave_out("msgpack gem", installed ? "gem msgpack #{installed} cannot do it" : "gem msgpack is not installed") unless gem
    libraries = { "msgpack gem" => ("msgpack" if gem), "Penstock" => "penstock" }.compact
    libraries.to_h { |side, library| [side, program(side, "codec.rb", 1, library, document)] }
  end

  # Some cases are only packed.
  def figures(round)
    { "packing" => round[:packing], "unpacking" => round[:unpacking], "memory" => round[:memory] }.compact
  end
end

# frozen_string_literal: true

# A process with many producers.
class Producers < Bench::Scenario
  title "Many producers"
  about "Each producer, in a separate thread, sends 1,000 messages of 100 bytes as one batch and waits for all " \
        "delivery results."
  table "rate", "messages/s", better: :more
  bar 0.8, case: "25 producers"
  guard "25 producers"

  SIDES = { "C" => %w[C], "Penstock" => %w[Penstock],
            "Penstock, a polling thread each" => %w[Penstock --mode thread] }.freeze

  def cases = [1, 2, 5, 10, 25, 100].to_h { |count| ["#{count} #{count == 1 ? "producer" : "producers"}", count] }

  def sides(count) = peers("batch", SIDES.merge(others.to_h { |name| [name, [name]] }), producers: count, messages: 1_000)
end

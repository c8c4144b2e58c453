# frozen_string_literal: true

# How long it takes to begin and to end.
class Life < Bench::Scenario
  title "Start and close"
  about "So many producers are made, each of which sends a message and waits for it, one after the other; then each is closed."
  table "start", "ms", better: :less
  table "close", "ms", better: :less
  settings "linger.ms" => 0

  def cases = { "1 producer" => 1, "25 producers" => 25 }

  def sides(count) = peers("life", OWN, messages: 1, producers: count)

  def figures(round) = { "start" => round[:start_ms], "close" => round[:close_ms] }
end

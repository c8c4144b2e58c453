# frozen_string_literal: true

# How long starting and closing take.
class Life < Bench::Scenario
  title "Start and close"
  about "Producers are made one after the other. Each sends a message and waits for it. Then each is closed."
  table "start", "ms", better: :less
  table "close", "ms", better: :less
  settings "linger.ms" => 0

  def cases = { "1 producer" => 1, "25 producers" => 25 }

  def sides(count) = peers("life", OWN, messages: 1, producers: count)

  def figures(round) = { "start" => round[:start_ms], "close" => round[:close_ms] }
end

# frozen_string_literal: true

# Small and large payloads.
class Payloads < Bench::Scenario
  title "Payload sizes"
  about "One producer sends messages with payloads of the given size in one call and waits for all delivery results."
  table "rate", "messages/s", better: :more
  table "volume", "MB/s", better: :more

  # The number of messages makes rounds of about the same length.
  def cases
    { "100 B" => [100, 100_000], "1 KB" => [1_000, 50_000], "10 KB" => [10_000, 10_000], "100 KB" => [100_000, 1_000] }
  end

  def sides(size_and_count)
    @size, messages = size_and_count
    peers("batch", OWN + others, size: @size, messages:)
  end

  def figures(round) = super.merge("volume" => round[:delivered] * @size / round[:seconds] / 1e6)
end

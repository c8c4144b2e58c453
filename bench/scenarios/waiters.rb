# frozen_string_literal: true

# Many messages in threads and fibers that wait for each.
class Waiters < Bench::Scenario
  title "Messages one by one, in threads and fibers"
  about "10,000 messages of 100 bytes, sent by several threads or fibers. Each sends its next message when " \
        "the previous one has its result."
  table "rate", "messages/s", better: :more
  reference "threads"
  settings "linger.ms" => 0
  rounds 5

  MESSAGES = 10_000
  KINDS = { "threads" => "thread", "fibers, async" => "async", "fibers, plain" => "plain" }.freeze

  # @return [Hash] with the numbers of waiters and of producers
  def cases = { "one" => [1, 1], "three" => [3, 1], "100" => [100, 1], "1,000" => [1_000, 1], "100, 10 producers" => [100, 10] }

  def sides(numbers)
    waiters, producers = numbers
    KINDS.to_h { |side, kind| [side, program(side, "waiters.rb", MESSAGES, MESSAGES, kind, waiters, producers)] }
  end
end

# frozen_string_literal: true

# Transactions, one after the other.
class Transactions < Bench::Scenario
  title "Transactions"
  about "One producer commits transactions with messages of 100 bytes, one after the other."
  table "rate", "transactions/s", better: :more

  EACH_ROUND = 20

  def cases = [1, 10, 100].to_h { |count| ["#{count} #{count == 1 ? "message" : "messages"}", count] }

  def sides(count)
    OWN.to_h do |name|
      own = { "transactional.id" => "#{topic}-#{name}" }
      [name, peer(name, name, "transactions", messages: count, transactions: EACH_ROUND, set: own)]
    end
  end

  def figures(round) = { "rate" => EACH_ROUND / round[:seconds] }
end

# frozen_string_literal: true

# A long stream, with one call for each message.
class Stream < Bench::Scenario
  title "A stream of messages"
  about "One producer sends 1,000,000 messages of 100 bytes with one call each. Each has a handle, promise or " \
        "callback. Then the producer waits for all."
  table "rate", "messages/s", better: :more
  rounds 7
  bar 0.5, case: "handles"
  bar 1.0, case: "handles", to: "confluent-kafka"
  guard "handles"

  COUNT = 1_000_000

  # Only Penstock has listeners. Its figures with a listener are compared with the others' same stream.
  def cases
    { "handles" => {}, "handles and a listener" => { more: ["--listener"] },
      "with keys and headers" => { key: true, headers: true } }
  end

  def sides(options)
    more = options.fetch(:more, [])
    sides = (OWN + others).to_h { |name| [name, [name, *(more if name == "Penstock")]] }
    leave_out("Java", "with keys and headers: its tool sends neither") if options[:key] && sides.delete("Java")
    peers("async", sides, messages: COUNT, **options.except(:more))
  end
end

# frozen_string_literal: true

# docs/evidence/safety.md, "A broker that lies".

Mutation.area("hostile broker", test: "test/proofs/hostile_broker_test.rb") do
  without :batch_headers_bounded, "a batch ends when its messages have many headers",
          sub: { " || taking->headers >= MOST_HEADERS" => "" },
          only: "test_a_batch_with_many_headers_ends_early_and_the_rest_follows"
  without :hung_transaction_ends, "the wait for a transaction's call ends when librdkafka hangs",
          sub: { "latest_us + OVERRUN_US" => "PS_FOREVER" }, only: "test_a_transaction_ends_when_librdkafka_hangs_in_it"
end

Mutation.area("hostile broker", test: "test/consumer/consumer_test.rb") do
  without :damaged_headers_flagged, "a message whose headers cannot be read does not appear as a message without headers",
          sub: { "if (!readable) fetched->records" => "if (!readable && false) fetched->records" },
          only: "test_a_message_with_damaged_headers_loses_nothing_else"
end

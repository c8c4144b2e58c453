# frozen_string_literal: true

# docs/evidence/safety.md, "A broker that lies".
Mutation.define "hostile broker: a batch ends when its messages have many headers",
                file: "ext/penstock/ruby/poll_methods.c", from: " || taking->headers >= MOST_HEADERS", to: "",
                test: "test/proofs/hostile_broker_test.rb",
                only: "test_a_batch_with_many_headers_ends_early_and_the_rest_follows"

Mutation.define "hostile broker: a message whose headers cannot be read does not appear as a message without headers",
                file: "ext/penstock/ruby/poll_methods.c",
                from: "    if (!readable) fetched->records", to: "    if (!readable && false) fetched->records",
                test: "test/consumer_test.rb", only: "test_a_message_with_damaged_headers_loses_nothing_else"

Mutation.define "hostile broker: the wait for a transaction's call ends when librdkafka hangs",
                file: "ext/penstock/ruby/transaction_methods.c",
                from: "latest_us + OVERRUN_US)", to: "PS_FOREVER)",
                test: "test/proofs/hostile_broker_test.rb", only: "test_a_transaction_ends_when_librdkafka_hangs_in_it"

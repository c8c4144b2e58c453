# frozen_string_literal: true

# docs/evidence/safety.md, "Secrets".

Mutation.area("security", test: "test/proofs/core_test.rb") do
  without :redaction_lock, "secrets given later are read under a lock",
          sub: { "mutex_lock" => "mutex_trylock" }, only: "test_no_part_of_the_core_has_a_data_race", runs: 3
  without :truncated_secret_hidden, "a truncated text has no part of a secret",
          only: "test_no_part_of_the_core_uses_freed_memory_or_leaks", runs: 3
end

Mutation.area("security", test: "test/proofs/gc_classes_test.rb") do
  without :secret_copied, "a secret keeps its value while librdkafka reads it",
          by: "memset(secret->bytes, 0, size);", only: "test_secret_under_stress"
end

Mutation.area("security", test: "test/native/tokens_test.rb") do
  without :token_always_answered, "librdkafka gets its answer whatever a token provider does",
          sub: { "answer_anyway(bearer, reason)" => "nil" },
          only: "test_a_provider_that_fails_in_any_way_gives_its_client_a_failure"
  without :token_reason_safe, "librdkafka gets no reason that it would reject",
          sub: { "safe(reason)" => "reason.to_s" }, only: "test_a_provider_that_fails_in_any_way_gives_its_client_a_failure"
end

Mutation.area("security", test: "test/config/secret_test.rb") do
  without :error_redacted, "errors of librdkafka have no secrets",
          only: "test_secret_settings_that_librdkafka_quotes_are_removed_from_log_lines_and_errors"
end

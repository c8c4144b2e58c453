# frozen_string_literal: true

# docs/evidence/safety.md, "Secrets".
parts = { test: "test/proofs/core_test.rb", runs: 3 }
tokens = { test: "test/tokens_test.rb", only: "test_a_provider_that_fails_in_any_way_gives_its_client_a_failure" }

Mutation.define "security: secrets given later are read under a lock",
                file: "ext/penstock/core/base/redact.c",
                from: "ps_redact(struct ps_redaction *redaction, char *text)\n{\n    pthread_mutex_lock",
                to: "ps_redact(struct ps_redaction *redaction, char *text)\n{\n    pthread_mutex_trylock",
                **parts, only: "test_no_part_of_the_core_has_a_data_race"

Mutation.define "security: a truncated text has no part of a secret",
                file: "ext/penstock/core/base/redact.c", from: "        secret_hide_part(text, redaction->words[i]);\n",
                **parts, only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"

Mutation.define "security: a secret keeps its value while librdkafka reads it",
                file: "ext/penstock/ruby/secret.c", from: "    memcpy(secret->bytes, RSTRING_PTR(string), size);\n",
                to: "    memset(secret->bytes, 0, size);\n",
                test: "test/proofs/gc_classes_test.rb", only: "test_secret_under_stress"

Mutation.define "security: librdkafka gets its answer whatever a token provider does",
                file: "lib/penstock/native/token_refresher.rb",
                from: "set_token_failure(reason) unless bearer.answered? #", to: "set_token_failure(reason) if false #", **tokens

Mutation.define "security: librdkafka gets no reason that it would reject",
                file: "lib/penstock/native/bearer.rb", from: "set_failure(safe(reason))", to: "set_failure(reason.to_s)", **tokens

Mutation.define "security: errors of librdkafka have no secrets",
                file: "ext/penstock/core/client/client.c", from: "    ps_redact(&client->redaction, copy);\n",
                test: "test/secret_test.rb",
                only: "test_secret_settings_that_librdkafka_quotes_are_removed_from_log_lines_and_errors"

# frozen_string_literal: true

# Which offsets are committed.
{ "the work of other threads is not marked by a poll" =>
    ["        if (owner && range->owner != owner) continue;\n", "", "test_another_threads_work_is_not_committed"],
  "a message is not marked in a later assignment" =>
    ["place && held(place, offset, epoch) && offset", "place && offset",
     "test_a_message_of_an_earlier_assignment_cannot_be_marked"],
  "nothing is processed behind an open range" =>
    ["while ((range = place->first) && !is_open(range)) {", "while ((range = place->first)) {",
     "test_another_threads_work_is_not_committed"],
  "a seek forgets what was polled" =>
    ["        drop_ranges(ledger, place);\n        place->position", "        place->position",
     "test_a_seek_forgets_what_another_thread_polled"] }
  .each do |what, (from, to, only)|
  Mutation.define "ledger: #{what}", file: "ext/penstock/core/consume/ledger.c", from:, to:,
                                     test: "test/consumer_mark_test.rb", only:
end

Mutation.define "ledger: nothing is handed out that it cannot note",
                file: "ext/penstock/ruby/poll_methods.c",
                from: "    if (!reserve(taking, message)) return false;\n", to: "    (void)reserve;\n",
                test: "test/consumer_memory_test.rb", only: "test_no_message_is_returned_for_which_the_ledger_has_no_memory"

Mutation.define "ledger: closing stores what is processed",
                file: "ext/penstock/core/consume/consumer.c",
                from: "    ps_consumer_store(consumer);\n    int64_t sent_us = ps_now_us();",
                to: "    int64_t sent_us = ps_now_us();",
                test: "test/consumer_mark_test.rb", only: "test_a_crashed_process_loses_nothing"

{ "a partition is not revoked while it is paused" =>
    ["consumer", "        ps_consumer_resume_revoked(consumer, partitions);\n",
     "test_a_partition_that_is_revoked_by_the_group_is_not_paused"],
  "an assignment by hand ends pauses" =>
    ["consumer_jobs", "    ps_consumer_resume_revoked(consumer, NULL);\n",
     "test_a_partition_that_is_assigned_again_is_not_paused"],
  "what the listener pauses is paused" =>
    ["consumer", "    else if (assigned) pause_assigned(consumer, partitions);\n",
     "test_the_listener_pauses_what_it_is_assigned"] }
  .each do |what, (file, from, only)|
  Mutation.define "pausing: #{what}", file: "ext/penstock/core/consume/#{file}.c", from:, to: "",
                                      test: "test/consumer_pause_test.rb", only:
end

Mutation.define "rebalance listener: closing answers for a listener that runs",
                file: "ext/penstock/core/consume/consumer.c", from: "    answer_now(consumer);", to: "    ",
                test: "test/rebalance_listener_test.rb", only: "test_close_while_the_listener_is_told_of_what_is_revoked"

Mutation.define "closing: rebalances that wait are answered before the group is left",
                file: "ext/penstock/core/consume/consumer.c",
                from: "    answer_waiting(consumer);\n    ps_consumer_drop_taken", to: "    ps_consumer_drop_taken",
                test: "test/consumer_closing_test.rb",
                only: "test_an_assignment_that_nobody_has_polled_is_answered_before_the_group_is_left"

Mutation.define "config.start_at: a poll that does not learn the places leaves the rebalance unanswered",
                file: "ext/penstock/ruby/consumer_calls.c", from: "    telling->later = true;", to: "    ",
                test: "test/consumer_start_at_test.rb", only: "test_polls_raise_and_ask_again_while_nobody_answers"

Mutation.define "polling: messages behind an error come after it",
                file: "ext/penstock/ruby/poll_methods.c",
                from: "used < count && !consumer->problems && use(", to: "used < count && use(",
                test: "test/consumer_test.rb", only: "test_messages_behind_an_error_come_after_it"

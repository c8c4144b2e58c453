# frozen_string_literal: true

# Requests of an admin client: who waits for them, who frees them.

Mutation.area("admin",
              test: "test/proofs/allocations_test.rb", only: "test_error_paths_of_an_admin_client_destroy_what_they_create") do
  without :left_caller_answer_freed, "an answer whose caller has left is destroyed", sub: { "!call->left && " => "" }
  without :closed_call_answer_freed, "an answer that nobody took is destroyed at a close"
  without :dropped_fiber_call_freed, "a dropped fiber's call is ended by the GC", sub: { "dfree = asking_free, ." => "" }
end

Mutation.area("admin", test: "test/proofs/core_test.rb", only: "test_no_part_of_the_core_uses_freed_memory_or_leaks", runs: 3) do
  without :no_call_after_close, "no call begins once a close has ended all", sub: { "admin->shut" => "false" }
  without :settled_call_retained, "a settled call is kept until its waiter is woken",
          sub: { "atomic_fetch_add(&call->refs, 1); " => "" }
  without :closed_calls_freed, "calls without an answer are freed at a close"
end

Mutation.area("admin", test: "test/admin/admin_test.rb") do
  without :close_ends_calls, "a close ends the waits of callers", only: "test_close_ends_a_request_of_another_thread_at_once"
  without :rejection_ends_calls, "a rejection ends the waits of callers",
          by: "(void)rejected;", only: "test_a_question_of_a_client_that_brokers_reject_raises_within_the_rejection_timeout"
  without :close_ends_question, "a question ends soon after a close begins",
          sub: { "ps_now_us() >= deadline_us || !asks_on(job)" => "(void)asks_on, ps_now_us() >= deadline_us" },
          only: "test_a_question_in_progress_delays_a_close_by_a_second_at_most"
  without :trap_close_skips_own_thread, "a close in a trap does not wait for the thread that it interrupts",
          by: "if (reads_here(object) && false) {",
          only: "test_a_trap_that_closes_the_client_while_its_thread_reads_an_answer_does_not_wait_for_itself"
  without :coordinator_request_untimed, "librdkafka does not time a coordinator's request out",
          sub: { "HOUR_MS" => "asking->timeout_ms % HOUR_MS / 2" },
          only: "test_a_request_to_a_coordinator_that_timed_out_is_forgotten_and_does_no_harm_when_the_coordinator_returns"
  without :unforgettable_request_replaces_client, "a client with a request that librdkafka cannot forget is replaced",
          sub: { "call->coordinated" => "false" },
          only: "test_a_request_to_a_coordinator_that_timed_out_is_forgotten_and_does_no_harm_when_the_coordinator_returns"
  without :stale_client_replaced, "a client is replaced when its last user has left",
          sub: { "--admin->users == 0 && admin->stale" => "(--admin->users, admin->stale)" },
          only: "test_a_client_that_forgets_a_request_leaves_the_calls_of_other_threads_alone"
  without :embedded_lacks_request, "the embedded cluster gets no request that it does not know",
          by: "(void)raise_if_embedded_lacks;", only: "test_requests_that_the_embedded_cluster_does_not_know_raise"
end

Mutation.area("admin", test: "test/admin/groups_test.rb") do
  without :moved_leaders_found, "leaders that have moved are asked for",
          sub: { "if (any_leader_moved(asked, err)) find" => "if (any_leader_moved(asked, err) && false) find" },
          only: "test_a_leader_that_has_moved_is_found"
end

Mutation.area("admin", test: "test/admin/hostile_test.rb") do
  without :stale_coordinator_forgotten, "a coordinator that is none any more is forgotten",
          sub: { "err == RD_KAFKA_RESP_ERR_NOT_COORDINATOR" => "false" },
          only: "test_a_call_finds_the_new_coordinator_when_the_former_one_rejects_offset_commit"
end

Mutation.area("admin", test: "test/admin/unreachable_test.rb") do
  without :unreachable_ends_calls, "calls end while no broker can be reached",
          sub: { "away ? before : 0" => "0" }, only: "test_a_request_ends_soon_while_all_brokers_refuse_connections"
  without :slow_broker_not_away, "a broker that accepts connections is reachable",
          sub: { "atomic_load(&connections->expecting) == 0" => "true" },
          only: "test_a_silent_broker_stays_reachable_while_connections_to_it_are_made_again"
  without :unreachable_client_replaced, "a client that found no broker is replaced",
          only: "test_a_call_after_one_that_found_no_broker_connects_at_once"
  without :replaced_client_stays_accepted, "a client that a broker has served stays accepted when it is replaced",
          only: "test_a_port_that_hangs_up_since_the_client_was_replaced_does_not_reject_it"
end

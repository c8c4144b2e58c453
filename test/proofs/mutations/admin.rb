# frozen_string_literal: true

# Requests of an admin client: who waits for them, who frees them.
allocations = { test: "test/proofs/allocations_test.rb", only: "test_error_paths_of_an_admin_client_destroy_what_they_create" }
core = { test: "test/proofs/core_test.rb", only: "test_no_part_of_the_core_uses_freed_memory_or_leaks", runs: 3 }
admin = ->(only) { { test: "test/admin_test.rb", only: } }

{ "an answer whose caller has left is destroyed" =>
    ["core/admin/admin_call.c", "bool wanted = !call->left && atomic_load", "bool wanted = atomic_load", allocations],
  "an answer that nobody took is destroyed at a close" =>
    ["core/admin/admin_call.c", "        if (call->answer) ps_admin_answer_destroy(call->answer);\n", "", allocations],
  "no call begins once a close has ended all" =>
    ["core/admin/admin_call.c", "bool shut = admin->shut;", "bool shut = false;", core],
  "a settled call is kept until its waiter is woken" =>
    ["core/admin/admin_call.c", "        atomic_fetch_add(&call->refs, 1); /* the caller may take",
     "        /* the caller may take", core],
  "calls without an answer are freed at a close" =>
    ["core/admin/admin.c", "    ps_admin_calls_forget(admin);\n", "", core],
  "a close ends the waits of callers" =>
    ["core/admin/admin.c", "    ps_admin_calls_end(admin, PS_ADMIN_CLOSED);\n", "",
     admin["test_close_ends_a_request_of_another_thread_at_once"]],
  "a rejection ends the waits of callers" =>
    ["core/admin/admin.c", "    if (rejected) ps_admin_calls_end(admin, PS_ADMIN_REJECTED);\n", "    (void)rejected;\n",
     admin["test_a_question_of_a_client_that_brokers_reject_raises_within_the_rejection_timeout"]],
  "a question ends soon after a close begins" =>
    ["core/admin/admin_job.c", "ps_now_us() >= deadline_us || !asks_on(job)", "(void)asks_on, ps_now_us() >= deadline_us",
     admin["test_a_question_in_progress_delays_a_close_by_a_second_at_most"]],
  "a close in a trap does not wait for the thread that it interrupts" =>
    ["ruby/admin_client.c", "if (reads_here(object)) {", "if (reads_here(object) && false) {",
     admin["test_a_trap_that_closes_the_client_while_its_thread_reads_an_answer_does_not_wait_for_itself"]],
  "a dropped fiber's call is ended by the GC" =>
    ["ruby/admin_client.c", ".dfree = asking_free, .dsize = asking_size", ".dsize = asking_size", allocations],
  "leaders that have moved are asked for" =>
    ["core/admin/admin_job.c", "if (any_leader_moved(asked, err)) find", "if (any_leader_moved(asked, err) && false) find",
     { test: "test/admin_groups_test.rb", only: "test_a_leader_that_has_moved_is_found" }],
  "librdkafka does not time a coordinator's request out" =>
    ["ruby/admin_client.c", "asking->timeout_ms = HOUR_MS;", "asking->timeout_ms = asking->timeout_ms % HOUR_MS / 2;",
     admin["test_a_request_to_a_coordinator_that_timed_out_is_forgotten_and_does_no_harm_when_the_coordinator_returns"]],
  "a client with a request that librdkafka cannot forget is replaced" =>
    ["core/admin/admin_call.c", "if (call->coordinated && atomic_load(&call->end)", "if (false && atomic_load(&call->end)",
     admin["test_a_request_to_a_coordinator_that_timed_out_is_forgotten_and_does_no_harm_when_the_coordinator_returns"]],
  "a client is replaced when its last user has left" =>
    ["core/admin/admin.c", "--admin->users == 0 && admin->stale", "(--admin->users, admin->stale)",
     admin["test_a_client_that_forgets_a_request_leaves_the_calls_of_other_threads_alone"]],
  "a coordinator that is none any more is forgotten" =>
    ["ruby/admin_client.c", "if (err == RD_KAFKA_RESP_ERR_NOT_COORDINATOR) ps_admin_forget", "if (false) ps_admin_forget",
     { test: "test/admin_hostile_test.rb",
       only: "test_a_call_finds_the_new_coordinator_when_the_former_one_rejects_offset_commit" }],
  "the embedded cluster gets no request that it does not know" =>
    ["ruby/admin_client.c", "    raise_if_embedded_lacks(admin, asking->request->op);\n", "    (void)raise_if_embedded_lacks;\n",
     admin["test_requests_that_the_embedded_cluster_does_not_know_raise"]] }
  .each do |what, (file, from, to, test)|
  Mutation.define "admin: #{what}", file: "ext/penstock/#{file}", from:, to:, **test
end

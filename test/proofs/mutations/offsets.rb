# frozen_string_literal: true

# Offsets that are asked for, gone back to, and committed without waiting.
{ "a leader that has moved is asked for" =>
    ["consumer_jobs", "(!ps_leader_moved(err) && !ps_leader_moved(place->err)) || ", "true || ",
     "test_a_leader_that_has_moved_is_found"],
  "librdkafka stores the earlier offset" =>
    ["consumer_jobs", "if (stored->cnt > 0 && consumer->settings.grouped) rd", "if (false) rd",
     "test_a_seek_with_commit_goes_back_for_all_members"],
  "the ledger knows that librdkafka stores the earlier offset" =>
    ["ledger", "        if (rewinds) place->stored = offset;\n", "", "test_a_seek_with_commit_goes_back_for_all_members"],
  "asynchronous commits are coalesced" =>
    ["async_commits", "if (commits->on_their_way == 0 && !joins && ps_now_us()", "if (ps_now_us()",
     "test_asynchronous_commits_are_coalesced"],
  "an asynchronous commit is repeated for a new epoch" =>
    ["async_commits", "bool again = open &&", "bool again = false && open &&",
     "test_an_asynchronous_commit_is_repeated_if_the_member_has_a_new_epoch"],
  "a close sends what waits" =>
    ["async_commits", "bool lets = !any_waiting(commits) || now_us >= send_by_us;", "bool lets = true;",
     "test_a_close_sends_what_waits"],
  "what waits is sent before a revocation" =>
    ["consumer", "        ps_async_commits_revoked(consumer, partitions);\n", "",
     "test_what_waits_is_sent_before_partitions_are_given_up"] }
  .each do |what, (file, from, to, only)|
  Mutation.define "offsets: #{what}", file: "ext/penstock/core/consume/#{file}.c", from:, to:,
                                      test: "test/consumer_offsets_test.rb", only:
end

Mutation.define "offsets: periodic commits wait for each other",
                file: "ext/penstock/core/consume/async_commits.c",
                from: "if (commits->on_their_way == 0 && !joins && !first && stored_is_due(commits))",
                to: "if (stored_is_due(commits))",
                test: "test/consumer_defects_test.rb", only: "test_34_periodic_commits_do_not_overtake_each_other"

{ "an assignment by hand finds out where partitions begin" =>
    ["consumer_jobs", "    if (list && !find_starts(query)) return RD_KAFKA_RESP_ERR__DESTROY;\n", "",
     "test_36_a_partition_that_is_assigned_again_is_not_moved_by_a_leader_that_answers_slowly"],
  "a seek finds out where the end is" =>
    ["consumer_jobs", "    if (!find_starts(query)) {", "    if (false) {",
     "test_35_a_seek_after_a_seek_to_the_end_is_not_undone_by_a_leader_that_answers_slowly"],
  "it is found out where the group's partitions begin" =>
    ["consumer", "if (assigned) return find_starts(consumer, partitions);", "if (assigned) return false;",
     "test_36_a_partition_that_comes_back_repeats_nothing"],
  "a revocation takes its turn among the commits" =>
    ["consumer", "atomic_load(&consumer->client.state) == PS_OPEN && join_line(consumer);", "false;",
     "test_34_the_last_commit_before_a_revocation_is_not_overtaken_by_an_earlier_one"],
  "so does a close" =>
    ["consumer", "    await_turn(consumer, &turn, begun_us);\n    if", "    if",
     "test_34_the_last_commit_before_a_close_is_not_overtaken_by_an_earlier_one"],
  "so does an assignment by hand" =>
    ["consumer_jobs", "    await_turn(query, &turn, ps_now_us() + PS_LONGEST_TURN_US);\n", "",
     "test_34_the_last_commit_before_an_assignment_is_not_overtaken_by_an_earlier_one"],
  "a revocation's turn passes" =>
    ["async_commits", "return ps_now_us() - first->come_us < LONGEST_TURN_US ? first : first->next;", "return first;",
     "test_34_a_commit_between_the_listener_and_the_answer_succeeds"],
  "a commit waits for one that no caller waits for" =>
    ["async_commits", "bool idle = !commits->waiting && commits->on_their_way == 0 &&", "bool idle =",
     "test_34_a_commit_that_is_repeated_does_not_overtake_a_later_one"],
  "a commit waits for one of another thread" =>
    ["async_commits", "turn->come = idle && is_next(commits, turn);", "turn->come = idle;",
     "test_34_a_commit_of_another_thread_that_is_repeated_does_not_overtake_a_later_one"],
  "an asynchronous commit waits behind one whose caller waits" =>
    ["async_commits", "    if (last) last->after = merge(list, last->after);\n    else ", "    ",
     "test_34_an_asynchronous_commit_waits_for_one_whose_caller_waits"],
  "a commit that passes a revocation does not pass what waits behind it" =>
    ["async_commits", "return first_turn(commits) == turn && !first->after;", "return first_turn(commits) == turn;",
     "test_34_a_commit_that_passes_a_revocation_does_not_pass_earlier_commits"],
  "an assignment without a listener is not answered before" =>
    ["consumer", "    if (consumer->starts) return !atomic_load(&consumer->starts->done);\n", "",
     "test_35_a_seek_after_the_groups_assignment_is_not_undone_by_a_late_answer"] }
  .each do |what, (file, from, to, only)|
  Mutation.define "starts: #{what}", file: "ext/penstock/core/consume/#{file}.c", from:, to:,
                                     test: "test/consumer_defects_test.rb", only:
end

Mutation.define "joining: no commit is sent while the member joins its group again",
                file: "ext/penstock/core/consume/joining.c",
                from: "ps_now_us() < atomic_load(&consumer->joining_until_us);", to: "false;",
                test: "test/consumer_defects_test.rb", only: "test_07_commits_while_the_member_joins_its_group_again"

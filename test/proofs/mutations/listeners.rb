# frozen_string_literal: true

# The protections that keep a listener from disturbing anything but its own producer (docs/events.md).

Mutation.area("listeners", test: "test/instrumentation/listeners_test.rb") do
  without :listener_threads, "other producers' events go to another thread",
          sub: { "64" => "1" }, only: "test_a_listener_that_sleeps_for_3_seconds_in_a_loop_delays_no_other_producer"
  without :slow_listener_published, "a slow listener is named",
          only: "test_a_listener_over_its_budget_is_reported_by_name_once_while_it_still_runs"
  without :slow_listener_named_once, "a slow listener is named once",
          only: "test_a_listener_over_its_budget_is_reported_by_name_once_while_it_still_runs"
  without :listener_errors_rescued, "an error reaches no other listener",
          sub: { "rescue Exception => e #" => "rescue NoMemoryError => e #" },
          only: "test_a_listener_that_raises_is_reported_once_and_delivery_of_events_continues"
  without :listener_errors_published, "an error is published",
          only: "test_a_listener_that_raises_is_reported_once_and_delivery_of_events_continues"
  without :ended_thread_replaced, "a thread that is ended is replaced",
          only: "test_a_listener_that_ends_its_thread_costs_the_other_listeners_no_event"
  without :next_listener_first, "the next thread continues after the listener that ended it",
          by: "notify(listener, event)\n@index += 1", lines: 2,
          only: "test_a_listener_that_ends_its_thread_costs_the_other_listeners_no_event"
  without :close_from_listener, "closing from a listener waits for no listener",
          sub: { "EventDispatcher.here?" => "false" }, only: "test_a_listener_may_close_its_producer"
  without :close_waits_for_budget, "closing waits for a listener at most for its budget",
          sub: { " now > give_up ||" => "" },
          only: "test_a_listener_that_waits_for_close_in_another_thread_blocks_it_only_for_its_budget"
  without :one_publisher_at_a_time, "one thread at a time publishes a producer's events",
          sub: { " && !events->served" => "" },
          only: "test_a_producers_events_are_published_one_at_a_time_in_order_by_any_thread", runs: 3
end

Mutation.area("few threads", test: "test/process/few_threads_test.rb") do
  without :patient_without_the_gvl, "no other thread takes over from one that waits for the GVL",
          sub: { "if (dispatch->latest->runs) " => "" }, only: "test_threads_of_many_busy_clients"
end

# frozen_string_literal: true

# The protections that keep a listener from disturbing anything but its own producer (docs/events.md).
module ListenerMutations
  DISPATCHER = "lib/penstock/instrumentation/event_dispatcher.rb"
  WORKER = "lib/penstock/native/event_worker.rb"
  SOURCE = "lib/penstock/native/event_source.rb"
  EVENTS = "ext/penstock/core/client/events.c"
  DISPATCH = "ext/penstock/core/client/dispatch.c"

  def self.define(name, only, **options) = Mutation.define("listeners: #{name}", test: "test/listeners_test.rb", only:, **options)

  define "other producers' events go to another thread",
         "test_a_listener_that_sleeps_for_3_seconds_in_a_loop_delays_no_other_producer",
         file: DISPATCHER, from: "MAX_THREADS = 64", to: "MAX_THREADS = 1"
  define "as many threads as there are bad listeners", "test_five_bad_listeners_of_different_kinds_delay_none_of_fifteen_others",
         file: DISPATCHER, from: "MAX_THREADS = 64", to: "MAX_THREADS = 3"
  define "a slow listener is named", "test_a_listener_over_its_budget_is_reported_by_name_once_while_it_still_runs",
         file: WORKER, from: "source.publish_slow(listener, event, now - @seen_at)"
  define "it is named once", "test_a_listener_over_its_budget_is_reported_by_name_once_while_it_still_runs",
         file: WORKER, from: "          @reported = calls\n"
  define "an error reaches no other listener", "test_a_listener_that_raises_is_reported_once_and_delivery_of_events_continues",
         file: SOURCE, from: "rescue Exception => e #", to: "rescue NoMemoryError => e #"
  define "an error is published", "test_a_listener_that_raises_is_reported_once_and_delivery_of_events_continues",
         file: SOURCE, from: "listener.failed(e, event, listeners_of(\"error.occurred\"))"
  define "a thread that is ended is replaced", "test_a_listener_that_ends_its_thread_costs_the_other_listeners_no_event",
         file: DISPATCHER, from: "          worker.end_turn(true)\n"
  define "the next thread continues after the listener that ended it",
         "test_a_listener_that_ends_its_thread_costs_the_other_listeners_no_event",
         file: SOURCE, from: "          @index += 1\n          notify(listener, event)\n",
         to: "          notify(listener, event)\n          @index += 1\n"
  define "closing from a listener waits for no listener", "test_a_listener_may_close_its_producer",
         file: "lib/penstock/producer/closer.rb", from: "listening: EventDispatcher.here?", to: "listening: false"
  define "closing waits for a listener at most for its budget",
         "test_a_listener_that_waits_for_close_in_another_thread_blocks_it_only_for_its_budget",
         file: SOURCE, from: "return if now > give_up ||", to: "return if"
  define "the queue is bounded", "test_a_listener_that_falls_behind_costs_no_memory",
         file: EVENTS, from: "if (size >= events->limit && event->kind != PS_EVENT_CLOSED)", to: "if (size >= UINT32_MAX)"
  define "one thread at a time publishes a producer's events",
         "test_a_producers_events_are_published_one_at_a_time_in_order_by_any_thread",
         file: DISPATCH, from: "if (!events->ready && !events->served) {", to: "if (!events->ready) {", runs: 3
end

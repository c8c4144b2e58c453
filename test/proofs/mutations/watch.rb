# frozen_string_literal: true

# ext/penstock/core/client/watch.c: a waiting thread serves its client. No work is lost when it takes over and hands back.

Mutation.area("watch", test: "test/proofs/core_test.rb", only: "test_no_part_of_the_core_uses_freed_memory_or_leaks", runs: 3) do
  without :watch_end_pushes, "the poller serves what is unread when the watch ends"
  without :watch_end_loops, "a client that is signalled while the watch ends is pushed again",
          by: "word = atomic_load(&polled->watch);\n" \
              "do if (word == PS_WATCH_RUNG) ps_poller_push(polled);\n" \
              "while (!atomic_compare_exchange_strong(&polled->watch, &word, PS_WATCH_NONE));",
          lines: 5
  without :watch_clears_first, "a signal is cleared before the queue is read",
          before: "atomic_store(&polled->watch, PS_WATCH_LOOKS);"
  without :watch_borrow_retries, "a thread that may not serve reports it",
          sub: { "ps_poller_borrow_or_retry" => "ps_poller_borrow" }
  without :watch_one_thread, "one thread at a time serves",
          sub: { "!atomic_compare_exchange_strong(&polled->watch, &none, PS_WATCH_LOOKS)" =>
                  "none == PS_WATCH_NONE && (atomic_store(&polled->watch, PS_WATCH_LOOKS), false)" }
  without :watch_leaves_rest, "the poller serves what is left when the thread's own wait is over",
          sub: { "rd_kafka_queue_length(polled->queue) == 0" => "true" }
  without :poller_hands_back, "the poller hands a client back like other threads", by: "atomic_store(&polled->served, false);"
  without :watch_deadline, "a thread serves no longer than it waits", sub: { "slice_end_us < " => "" }
end

Mutation.area("watch", test: "test/native/watch_test.rb") do
  without :watch_interrupt_wakes, "an interrupt or the end of the wait wakes the watching thread",
          by: "(void)watch, (void)sleeps;", only: "test_after_thread_kill_of_the_serving_thread_the_others_get_their_results"
  without :watch_ends_in_nogvl, "the client is handed back before the wait ends in Ruby",
          only: "test_repeatedly_interrupted_threads_lose_no_message", runs: 3
end

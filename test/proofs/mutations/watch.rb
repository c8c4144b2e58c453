# frozen_string_literal: true

# ext/penstock/core/client/watch.c: a waiting thread serves its client, and no work is lost when it takes over and hands back.
watch = { file: "ext/penstock/core/client/watch.c" }
parts = { test: "test/proofs/core_test.rb", only: "test_no_part_of_the_core_uses_freed_memory_or_leaks", runs: 3 }

Mutation.define "watch: the poller serves what is unread when the watch ends",
                **watch, from: "        ps_poller_push(polled);\n", **parts

Mutation.define "watch: a client that is signalled while the watch ends is pushed again",
                **watch, from: <<-BEFORE, to: <<-AFTER, **parts
    while ((word = atomic_load(&polled->watch)) == PS_WATCH_RUNG ||
           !atomic_compare_exchange_strong(&polled->watch, &word, PS_WATCH_NONE)) {
        atomic_store(&polled->watch, PS_WATCH_LOOKS);
        ps_poller_push(polled);
    }
                BEFORE
    word = atomic_load(&polled->watch);
    do
        if (word == PS_WATCH_RUNG) ps_poller_push(polled);
    while (!atomic_compare_exchange_strong(&polled->watch, &word, PS_WATCH_NONE));
                AFTER

Mutation.define "watch: a signal is cleared before the queue is read",
                **watch, from: "    ps_poller_serve(polled, waiter, deadline_us);\n",
                         to: "    ps_poller_serve(polled, waiter, deadline_us);\n" \
                             "    atomic_store(&polled->watch, PS_WATCH_LOOKS);\n",
                         **parts

Mutation.define "watch: a thread that may not serve reports it",
                **watch, from: "if (!ps_poller_borrow_or_retry(polled)) return;",
                         to: "if (!ps_poller_borrow(polled)) return;", **parts

Mutation.define "watch: an interrupt or the end of the wait wakes the watching thread",
                file: "ext/penstock/core/wait/completion.c",
                from: "if (atomic_compare_exchange_strong(watch, &sleeps, PS_WATCH_LOOKS)) ps_word_wake(watch);",
                to: "(void)watch, (void)sleeps;", test: "test/watch_test.rb",
                only: "test_after_thread_kill_of_the_serving_thread_the_others_get_their_results"

Mutation.define "watch: one thread at a time serves", **watch,
                from: "!atomic_compare_exchange_strong(&polled->watch, &none, PS_WATCH_LOOKS)",
                to: "none == PS_WATCH_NONE && (atomic_store(&polled->watch, PS_WATCH_LOOKS), false)", **parts

Mutation.define "watch: the poller serves what is left when the thread's own wait is over",
                file: "ext/penstock/core/client/poller.c",
                from: "return rd_kafka_queue_length(polled->queue) == 0;", to: "return true;",
                **parts

Mutation.define "watch: the poller hands a client back like other threads",
                file: "ext/penstock/core/client/poller.c",
                from: "NULL, PS_FOREVER);\n    ps_poller_hand_back(polled);\n",
                to: "NULL, PS_FOREVER);\n    atomic_store(&polled->served, false);\n",
                **parts

Mutation.define "watch: the client is handed back before the wait ends in Ruby",
                file: "ext/penstock/ruby/nogvl.c", from: "        end_watch(&sleep);\n", to: "",
                test: "test/watch_test.rb", only: "test_repeatedly_interrupted_threads_lose_no_message", runs: 3

Mutation.define "watch: a thread serves no longer than it waits",
                file: "ext/penstock/core/client/poller.c", from: "slice_end_us < deadline_us ?", to: "deadline_us ?", **parts

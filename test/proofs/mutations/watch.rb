# frozen_string_literal: true

# ext/penstock/core/client/watch.c: a thread that waits serves its client, and nothing is lost on the way there and back.
watch = { file: "ext/penstock/core/client/watch.c" }
parts = { test: "test/proofs/core_test.rb", only: "test_no_part_of_the_core_uses_freed_memory_or_leaks", runs: 3 }

Mutation.define "watch: what nobody looked at when it ends is the poller's",
                **watch, from: "        ps_poller_push(polled);\n", **parts

Mutation.define "watch: what is rung while it ends is pushed again",
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

Mutation.define "watch: a ring is forgotten before the queue is looked at",
                **watch, from: "    ps_poller_serve(polled, waiter, deadline_us);\n",
                         to: "    ps_poller_serve(polled, waiter, deadline_us);\n" \
                             "    atomic_store(&polled->watch, PS_WATCH_LOOKS);\n",
                         **parts

Mutation.define "watch: who is turned away says so",
                **watch, from: "if (!ps_poller_claim(polled)) return;", to: "if (!ps_poller_borrow(polled)) return;", **parts

Mutation.define "watch: who interrupts or ends the wait wakes who keeps it",
                file: "ext/penstock/core/wait/completion.c",
                from: "if (atomic_compare_exchange_strong(watch, &sleeps, PS_WATCH_LOOKS)) ps_word_wake(watch);",
                to: "(void)watch, (void)sleeps;", test: "test/watch_test.rb",
                only: "test_after_thread_kill_of_the_thread_that_serves_the_others_get_their_verdicts"

Mutation.define "watch: one thread at a time", **watch,
                from: "!atomic_compare_exchange_strong(&polled->watch, &none, PS_WATCH_LOOKS)",
                to: "none == PS_WATCH_NONE && (atomic_store(&polled->watch, PS_WATCH_LOOKS), false)", **parts

Mutation.define "watch: what is left in the queue when its own wait is over is left to the poller",
                file: "ext/penstock/core/client/poller.c",
                from: "return rd_kafka_queue_length(polled->queue) == 0;", to: "return true;",
                **parts

Mutation.define "watch: the poller's own serving is handed back as others' is",
                file: "ext/penstock/core/client/poller.c",
                from: "NULL, PS_FOREVER);\n    ps_poller_hand_back(polled);\n",
                to: "NULL, PS_FOREVER);\n    atomic_store(&polled->served, false);\n",
                **parts

Mutation.define "watch: it is handed back before the wait is over for Ruby",
                file: "ext/penstock/ruby/nogvl.c", from: "        end_watch(&sleep);\n", to: "",
                test: "test/watch_test.rb", only: "test_threads_that_are_interrupted_again_and_again_lose_nothing", runs: 3

Mutation.define "watch: who serves does so no longer than it waits",
                file: "ext/penstock/core/client/poller.c", from: "slice_us < deadline_us ?", to: "deadline_us ?", **parts

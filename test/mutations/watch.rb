# frozen_string_literal: true

# ext/penstock/core/watch.c: a thread that waits serves its client, and nothing is lost on the way there and back.
watch = { file: "ext/penstock/core/watch.c" }
parts = { test: "test/core_test.rb", only: "test_each_part_by_itself_touches_nothing_that_is_freed_and_leaks_nothing", runs: 3 }

Mutation.define "watch: what nobody looked at when it ends is the poller's",
                **watch, from: "        ps_poller_push(client);\n", **parts

Mutation.define "watch: what is rung while it ends is pushed again",
                **watch, from: <<-BEFORE, to: <<-AFTER, **parts
    while ((word = atomic_load(&client->watch)) == RUNG || !atomic_compare_exchange_strong(&client->watch, &word, NONE)) {
        atomic_store(&client->watch, LOOKS);
        ps_poller_push(client);
    }
                BEFORE
    word = atomic_load(&client->watch);
    do
        if (word == RUNG) ps_poller_push(client);
    while (!atomic_compare_exchange_strong(&client->watch, &word, NONE));
                AFTER

Mutation.define "watch: a ring is forgotten before the queue is looked at",
                **watch, from: "    ps_poller_serve(client, waiter, deadline_us);\n",
                         to: "    ps_poller_serve(client, waiter, deadline_us);\n    atomic_store(&client->watch, LOOKS);\n",
                         **parts

Mutation.define "watch: who is turned away says so",
                **watch, from: "if (!ps_poller_claim(client)) return;", to: "if (!ps_poller_borrow(client)) return;", **parts

Mutation.define "watch: who interrupts or ends the wait wakes who keeps it", **watch,
                from: "if (atomic_compare_exchange_strong(watch, &sleeps, LOOKS)) ps_word_wake(watch);",
                to: "(void)watch, (void)sleeps;", test: "test/watch_test.rb",
                only: "test_after_thread_kill_of_the_thread_that_serves_the_others_get_their_verdicts"

Mutation.define "watch: one thread at a time", **watch,
                from: "!atomic_compare_exchange_strong(&client->watch, &none, LOOKS)",
                to: "none == NONE && (atomic_store(&client->watch, LOOKS), false)", **parts

Mutation.define "watch: what is left in the queue when its own wait is over is left to the poller",
                file: "ext/penstock/core/poller.c", from: "return rd_kafka_queue_length(client->queue) == 0;", to: "return true;",
                **parts

Mutation.define "watch: the poller's own serving is handed back as others' is",
                file: "ext/penstock/core/poller.c",
                from: "NULL, PS_FOREVER);\n    ps_poller_hand_back(client);\n",
                to: "NULL, PS_FOREVER);\n    atomic_store(&client->served, false);\n",
                **parts

Mutation.define "watch: it is handed back before the wait is over for Ruby",
                file: "ext/penstock/nogvl.c", from: "        end_watch(&sleep);\n", to: "",
                test: "test/watch_test.rb", only: "test_threads_that_are_interrupted_again_and_again_lose_nothing", runs: 3

Mutation.define "watch: who serves does so no longer than it waits",
                file: "ext/penstock/core/poller.c", from: "slice_us < deadline_us ?", to: "deadline_us ?", **parts

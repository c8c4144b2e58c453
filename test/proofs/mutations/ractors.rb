# frozen_string_literal: true

RACTORS = { test: "test/ractor_test.rb" }.freeze

Mutation.define("ractors: the extension declares itself safe for Ractors", **RACTORS,
                file: "ext/penstock/penstock.c",
                from: "    rb_ext_ractor_safe(true);\n",
                only: "test_ractors_send_through_one_producer_and_each_message_is_stored_once")
Mutation.define("ractors: a handle is a frozen native object", **RACTORS,
                file: "ext/penstock/ruby/shareable_producer.c",
                from: " | RUBY_TYPED_FROZEN_SHAREABLE",
                only: "test_configuration_errors_reports_and_messages_are_shareable_when_frozen")
Mutation.define("ractors: constants are deeply frozen", **RACTORS,
                file: "lib/penstock/config/kafka_checks.rb",
                from: "    Ractor.make_shareable(ORDERED)\n",
                only: "test_a_ractor_may_have_its_own_consumers_and_pass_messages_on")
Mutation.define("ractors: an error that is frozen keeps no backtrace object", **RACTORS,
                file: "ext/penstock/ruby/error.c",
                from: "        rb_ivar_set(self, rb_intern(\"bt_locations\"), Qnil);",
                to: "        (void)0;",
                only: "test_configuration_errors_reports_and_messages_are_shareable_when_frozen")
Mutation.define("ractors: a label in a Ractor must be shareable", **RACTORS,
                file: "ext/penstock/ruby/produce_methods.c",
                from: "if (!rb_ractor_shareable_p(message->label))",
                to: "if (0)",
                only: "test_an_unshareable_label_raises_and_nothing_is_sent")
Mutation.define("ractors: labels for listeners are marked", **RACTORS,
                file: "ext/penstock/ruby/event_source.c",
                from: "        if (events->labels[i]) rb_gc_mark_movable(events->labels[i]);",
                to: "        (void)0;",
                only: "test_labels_of_a_ractor_that_has_ended_are_kept_and_moved_for_listeners")
Mutation.define("ractors: labels for listeners are updated after a move", **RACTORS,
                file: "ext/penstock/ruby/event_source.c",
                from: "        if (events->labels[i]) events->labels[i] = rb_gc_location(events->labels[i]);",
                to: "        (void)0;",
                only: "test_labels_of_a_ractor_that_has_ended_are_kept_and_moved_for_listeners")
Mutation.define("ractors: a call has a reference to its client", **RACTORS,
                runs: 5,
                file: "ext/penstock/core/produce/slot.c",
                from: "    if (producer) ps_client_retain(&producer->client);\n    pthread_mutex_unlock",
                to: "    pthread_mutex_unlock",
                only: "test_a_storm_of_ractors_loses_no_message")
Mutation.define("ractors: a slot has a reference to its client", **RACTORS,
                runs: 5,
                file: "ext/penstock/core/produce/slot.c",
                from: "    if (producer) ps_client_retain(&producer->client);\n    pthread_mutex_lock",
                to: "    pthread_mutex_lock",
                only: "test_a_storm_of_ractors_loses_no_message")
Mutation.define("ractors: the slot has the connection's client", **RACTORS,
                file: "lib/penstock/producer/connection.rb",
                from: "        @slot.client = @client unless @slot.nil? || @slot.inherited?\n",
                to: "        @slot.client = @published ||= @client unless @slot.nil? || @slot.inherited?\n", # the first one
                only: "test_after_a_disconnect_the_next_call_of_a_ractor_connects_again")
Mutation.define("ractors: the main Ractor replaces a client after a fatal error", **RACTORS,
                file: "lib/penstock/producer/connection.rb",
                from: "        @internals.publisher.replace_failed(self, @client) if @client\n",
                only: "test_after_a_fatal_error_a_new_client_sends_the_message_once")
Mutation.define("ractors: a close closes the handles, and ends the thread that serves them", **RACTORS,
                file: "lib/penstock/producer/closer.rb",
                from: "        connections.each { |connection| connection.slot&.close }\n",
                only: "test_closing_the_producer_closes_its_handles_and_frees_them")
Mutation.define("ractors: handles keep their producer", **RACTORS,
                file: "ext/penstock/core/produce/slot.c",
                from: "    *over = slot->closed || slot->handles == 0;",
                to: "    *over = true;",
                only: "test_handles_keep_their_producer_alive")
Mutation.define("ractors: a producer without handles is collected", **RACTORS,
                file: "ext/penstock/core/produce/slot.c",
                from: "        if (last) ps_bell_ring(&slot->asks);\n",
                to: "        (void)last;\n",
                only: "test_handles_keep_their_producer_alive")
Mutation.define("ractors: a thread that serves Ractors is replaced when it is killed", **RACTORS,
                file: "lib/penstock/native/client_reference.rb",
                from: "      restart(connection) unless finished\n",
                only: "test_a_killed_ractor_thread_is_replaced")
Mutation.define("ractors: an inherited slot is left alone", **RACTORS,
                file: "ext/penstock/core/produce/slot.c",
                from: "    if (inherited(slot)) return PS_SLOT_FORKED;\n",
                only: "test_in_a_fork_child_an_inherited_handle_raises_and_a_new_one_works")
Mutation.define("ractors: a hook added later disables the handles", **RACTORS,
                file: "lib/penstock/producer/publisher.rb",
                from: "        @internals.ractor_handles.refresh\n",
                only: "test_around_added_later_makes_calls_raise")
Mutation.define("ractors: middleware added later disables the handles", **RACTORS,
                file: "lib/penstock/producer/middleware.rb",
                from: "      tell_producers if first\n",
                only: "test_middleware_added_later_makes_calls_raise")
Mutation.define("ractors: a listener of calls added later disables the handles", **RACTORS,
                file: "lib/penstock/instrumentation/monitor.rb",
                from: "WATCHED = [*NATIVE, *PER_CALL].freeze",
                to: "WATCHED = NATIVE",
                only: "test_a_listener_added_later_makes_calls_raise")
Mutation.define("ractors: producers are found without a search through all objects", **RACTORS,
                file: "lib/penstock/producer/registry.rb",
                from: "def self.all = @all.values",
                to: "def self.all = ObjectSpace.each_object(Producer).map { |one| of(one) }",
                only: "test_a_later_listener_to_all_producers_gets_events_of_connected_producers")
Mutation.define("ractors: a producer is made in the main Ractor", **RACTORS,
                file: "lib/penstock/producer/internals.rb",
                from: "        RactorHandles.raise_in_other_ractors\n",
                only: "test_a_producer_is_made_and_shared_in_the_main_ractor_and_not_in_a_trap")
Mutation.define("ractors: producers are known without being kept", **RACTORS,
                file: "lib/penstock/producer/registry.rb",
                from: "@all = ObjectSpace::WeakMap.new",
                to: "@all = {}.compare_by_identity",
                only: "test_the_list_of_all_producers_keeps_none_of_them_alive")
Mutation.define("ractors: collected producers are no longer found",
                test: "test/events_test.rb",
                runs: 5,
                file: "lib/penstock/producer/registry.rb",
                from: "@all.values\n\n    # The value is the key: with true, Ruby 3.1 returns freed keys, and crashes.\n" \
                      "    def self.remember(internals) = @all[internals] = internals",
                to: "@all.keys\n\n    def self.remember(internals) = @all[internals] = true",
                only: "/test_/")
Mutation.define("ractors: middleware disables the handles of disconnected producers too", **RACTORS,
                file: "lib/penstock/producer/middleware.rb",
                from: "def tell_producers = Producer",
                to: "def tell_producers = Native::ProducerClient.open_count.zero? ? [] : Producer",
                only: "test_middleware_added_while_disconnected_makes_calls_raise")
Mutation.define("ractors: listeners to all producers disable the handles of disconnected producers too", **RACTORS,
                file: "lib/penstock/instrumentation/monitor.rb",
                from: "      ProducerRegistry.all.each(&:listeners_changed)\n",
                to: "      ProducerRegistry.all.each(&:listeners_changed) unless Native::ProducerClient.open_count.zero?\n",
                only: "test_a_listener_to_all_added_while_disconnected_makes_calls_raise")
Mutation.define("ractors: one thread at a time checks and publishes what disables the handles", **RACTORS,
                file: "lib/penstock/producer/ractor_handles.rb",
                from: "        @refreshing.synchronize do # else an earlier check could overwrite this result later\n",
                to: "        true.then do\n",
                only: "test_one_thread_at_a_time_checks_for_unshareable_parts")
Mutation.define("ractors: a close keeps the handles of sent messages", **RACTORS,
                file: "lib/penstock/producer/resending.rb",
                from: "      raise if handles.empty?\n\n      false\n",
                to: "      raise\n",
                only: "test_a_batch_that_is_partly_sent_when_the_producer_closes_keeps_its_handles")
Mutation.define("ractors: a handle made beside a close is closed", **RACTORS,
                file: "lib/penstock/producer/connection.rb",
                from: "unless @internals.status.active? # a closing", to: "if false # a closing",
                only: "test_a_handle_that_is_made_while_the_producer_closes_is_closed")
Mutation.define("ractors: a listener does not wait for its own end", **RACTORS,
                file: "lib/penstock/producer/connection.rb",
                from: "          slot&.changing = true\n",
                only: "test_a_handle_in_a_listener_that_the_producers_reload_waits_for_raises")
Mutation.define("ractors: messages of the last handle publish their events", **RACTORS,
                file: "lib/penstock/native/client_reference.rb",
                from: "      connection.hold_events # while", to: "      # while",
                only: "test_events_of_the_last_handles_messages_are_published_after_the_producer_is_dropped")

# frozen_string_literal: true

# docs/evidence/safety.md, "Ractors".

Mutation.area("ractors", test: "test/process/ractor_test.rb") do
  without :ractor_safe, "the extension declares itself safe for Ractors",
          only: "test_ractors_send_through_one_producer_and_each_message_is_stored_once"
  without :handle_frozen, "a handle is a frozen native object",
          sub: { " | RUBY_TYPED_FROZEN_SHAREABLE" => "" },
          only: "test_configuration_errors_reports_and_messages_are_shareable_when_frozen"
  without :constants_shareable, "constants are deeply frozen",
          only: "test_a_ractor_may_have_its_own_consumers_and_pass_messages_on"
  without :frozen_error_backtrace, "an error that is frozen keeps no backtrace object",
          sub: { 'rb_ivar_set(self, rb_intern("bt_locations"), Qnil)' => "(void)0" },
          only: "test_configuration_errors_reports_and_messages_are_shareable_when_frozen"
  without :label_shareable, "a label in a Ractor must be shareable",
          sub: { "!rb_ractor_shareable_p(message->label)" => "0" }, only: "test_an_unshareable_label_raises_and_nothing_is_sent"
  without :labels_mark, "labels for listeners are marked",
          by: "(void)0;", only: "test_labels_of_a_ractor_that_has_ended_are_kept_and_moved_for_listeners"
  without :labels_relocation, "labels for listeners are updated after a move",
          by: "(void)0;", only: "test_labels_of_a_ractor_that_has_ended_are_kept_and_moved_for_listeners"
  without :slot_retains, "a slot has a reference to its client", only: "test_a_storm_of_ractors_loses_no_message", runs: 5
  without :slot_gets_client, "the slot has the connection's client",
          by: "@slot.client = @published ||= @client unless @slot.nil? || @slot.inherited?",
          only: "test_after_a_disconnect_the_next_call_of_a_ractor_connects_again"
  without :main_ractor_replaces, "the main Ractor replaces a client after a fatal error",
          only: "test_after_a_fatal_error_a_new_client_sends_the_message_once"
  without :close_closes_slots, "a close closes the handles, and ends the thread that serves them",
          only: "test_closing_the_producer_closes_its_handles_and_frees_them"
  without :slot_asks_over, "handles keep their producer", by: "*over = true;", only: "test_handles_keep_their_producer_alive"
  without :last_handle_rings, "a producer without handles is collected",
          by: "(void)last;", only: "test_handles_keep_their_producer_alive"
  without :slot_thread_restarted, "a thread that serves Ractors is replaced when it is killed",
          only: "test_a_killed_ractor_thread_is_replaced"
  without :slot_fork_checked, "an inherited slot is left alone",
          only: "test_in_a_fork_child_an_inherited_handle_raises_and_a_new_one_works"
  without :hook_refreshes_handles, "a hook added later disables the handles", only: "test_around_added_later_makes_calls_raise"
  without :middleware_refreshes_handles, "middleware added later disables the handles",
          only: "test_middleware_added_later_makes_calls_raise"
  without :per_call_listeners_watched, "a listener of calls added later disables the handles",
          by: "WATCHED = NATIVE", only: "test_a_listener_added_later_makes_calls_raise"
  without :producers_listed, "producers are found without a search through all objects",
          by: "ObjectSpace.each_object(Producer).map { |one| of(one) }",
          only: "test_a_later_listener_to_all_producers_gets_events_of_connected_producers"
  without :main_ractor_only, "a producer is made in the main Ractor",
          only: "test_a_producer_is_made_and_shared_in_the_main_ractor_and_not_in_a_trap"
  without :producers_listed_weakly, "producers are known without being kept",
          by: "@all = [].tap { |all| all.define_singleton_method(:add) { |one| push(one) } }",
          only: "test_the_list_of_all_producers_keeps_none_of_them_alive"
  without :middleware_finds_disconnected, "middleware disables the handles of disconnected producers too",
          sub: { "ProducerRegistry.all" => "Native::ProducerClient.open_count.zero? ? [] : ProducerRegistry.all" },
          only: "test_middleware_added_while_disconnected_makes_calls_raise"
  without :listeners_find_disconnected, "listeners to all producers disable the handles of disconnected producers too",
          sub: { "if Ractor.current == Ractor.main" => "unless Native::ProducerClient.open_count.zero?" },
          only: "test_a_listener_to_all_added_while_disconnected_makes_calls_raise"
  without :refresh_serialized, "one thread at a time checks and publishes what disables the handles",
          by: "true.then do", only: "test_one_thread_at_a_time_checks_for_unshareable_parts"
  without :close_keeps_sent_handles, "a close keeps the handles of sent messages",
          by: "raise", only: "test_a_batch_that_is_partly_sent_when_the_producer_closes_keeps_its_handles"
  without :late_slot_closed, "a handle made beside a close is closed",
          sub: { "unless @internals.status.active?" => "if false" },
          only: "test_a_handle_that_is_made_while_the_producer_closes_is_closed"
  without :slot_changing, "a listener does not wait for its own end",
          only: "test_a_handle_in_a_listener_that_the_producers_reload_waits_for_raises"
  without :last_events_held, "messages of the last handle publish their events",
          sub: { "connection.hold_events " => "" },
          only: "test_events_of_the_last_handles_messages_are_published_after_the_producer_is_dropped"
end

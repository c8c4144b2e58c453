# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/client_test_case"

class ClientsBufferedTest < ClientTestCase
  def described = Penstock::Clients::Buffered

  def payloads(client) = client.messages.map { |message| message[:payload] }

  # behaviour: A stand-in that keeps messages
  def test_the_buffered_client_keeps_messages_in_order
    client = self.client
    client.produce({ topic: "a", payload: "1", key: "k", label: 5 })
    client.produce_many([{ topic: "b", payload: "2" }, { topic: "a", payload: nil }], false)
    assert_equal [{ topic: "a", payload: "1", key: "k", label: 5 }, { topic: "b", payload: "2" }, { topic: "a", payload: nil }],
                 client.messages
    assert_equal [["1", nil], ["2"], []],
                 (%w[a b c].map { |topic| client.messages_for(topic).map { |message| message[:payload] } })
  end

  def test_a_topic_may_be_a_symbol_or_a_string
    client = self.client
    client.produce({ topic: :a, payload: "" })
    assert_equal [{ topic: "a", payload: "" }], client.messages
    assert_equal client.messages, client.messages_for(:a)
  end

  def test_kept_messages_do_not_change_if_the_caller_changes_its_objects
    client = self.client
    label = +"label"
    message = { topic: +"a", payload: +"1", headers: { "h" => [+"x"] }, label: }
    client.produce(message)
    message[:payload] << "2"
    message[:headers]["h"][0] << "y"
    message[:headers]["more"] = ""
    message[:topic] << "b"
    message[:key] = "late"
    assert_equal [{ topic: "a", payload: "1", headers: { "h" => ["x"] }, label: "label" }], client.messages
    assert_same label, client.messages[0][:label]
    assert_raises(FrozenError) { client.messages[0][:key] = "k" }
    client.messages.clear
    assert_equal 1, client.messages.size
  end

  def test_failed_and_rejected_messages_are_not_kept
    client = self.client.fail_next(:msg_timed_out).fail_next(:queue_full)
    client.produce({ topic: "a", payload: "1" })
    assert_raises(Penstock::QueueFullError) { client.produce({ topic: "a", payload: "2" }) }
    assert_raises(Penstock::MessageInvalidError) { client.produce({ topic: "a" }) }
    client.produce({ topic: "a", payload: "3" })
    assert_equal %w[3], payloads(client)
  end

  def test_reset_discards_messages_and_starts_again
    client = self.client.script { :transport if _1[:payload] == "bad" }
    client.produce({ topic: "a", payload: "1" })
    assert_empty client.reset.messages
    assert_equal 0, client.produce({ topic: "a", payload: "bad" }).report.offset
    assert_equal %w[bad], payloads(client)
  end

  # behaviour: A stand-in that keeps messages
  def test_messages_of_a_transaction_appear_with_the_commit
    client = transactional
    handle = client.produce({ topic: "a", payload: "1" })
    client.produce_many([{ topic: "a", payload: "2" }], false)
    assert_predicate handle, :delivered?
    assert_empty client.messages
    client.commit_transaction(1_000)
    assert_equal %w[1 2], payloads(client)
    client.begin_transaction
    client.produce({ topic: "a", payload: "3" })
    assert_equal %w[1 2], payloads(client)
    client.commit_transaction(1_000)
    assert_equal %w[1 2 3], payloads(client)
  end

  # behaviour: A stand-in that keeps messages
  def test_messages_of_an_aborted_transaction_never_appear
    client = transactional
    client.produce({ topic: "a", payload: "1" })
    client.abort_transaction(1_000)
    client.begin_transaction
    client.produce({ topic: "a", payload: "2" })
    client.fail_next(:transport).produce({ topic: "a", payload: "3" })
    assert_raises(Penstock::Error) { client.commit_transaction(1_000) }
    assert_empty client.messages
    client.abort_transaction(1_000)
    client.begin_transaction
    client.produce({ topic: "a", payload: "4" })
    client.commit_transaction(1_000)
    assert_equal %w[4], payloads(client)
  end

  def test_a_reset_within_a_transaction_discards_its_messages
    client = transactional
    client.produce({ topic: "a", payload: "1" })
    client.reset
    client.produce({ topic: "a", payload: "2" })
    client.commit_transaction(1_000)
    assert_equal %w[2], payloads(client)
  end

  def test_closing_within_a_transaction_discards_its_messages_and_keeps_the_others
    client = transactional
    client.produce({ topic: "a", payload: "1" })
    client.commit_transaction(1_000)
    client.begin_transaction
    client.produce({ topic: "a", payload: "2" })
    client.close(1_000)
    assert_equal %w[1], payloads(client)
  end

  def test_an_acknowledged_message_is_among_the_kept_messages
    client = self.client
    found = nil
    @monitor.subscribe("message.acknowledged") { |event| found = client.messages_for(event[:topic]) }
    client.produce({ topic: "a", payload: "1" })
    assert_equal [{ topic: "a", payload: "1" }], found
  end

  def test_no_message_is_lost_if_several_threads_produce
    client = self.client
    Array.new(4) { Thread.new { 200.times { client.produce({ topic: "a", payload: "" }) } } }.each(&:join)
    assert_equal 800, client.messages.size
  end
end

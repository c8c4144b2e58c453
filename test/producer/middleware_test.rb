# frozen_string_literal: true

require_relative "../test_helper"

class MiddlewareTest < PenstockTest
  def setup
    super
    @middleware = Penstock::Middleware.new
  end

  def trail(name)
    ->(message) { message.merge(payload: message[:payload] + name) }
  end

  def test_steps_run_in_order_with_prepended_steps_first
    @middleware.append(trail("b")).append(trail("c"))
    @middleware.prepend(trail("a"))
    @middleware.append { |message| message.merge(key: "k") }
    assert_equal({ topic: "t", payload: "abc", key: "k" }, @middleware.run({ topic: "t", payload: "" }))
    assert_equal 4, @middleware.to_a.size
  end

  def test_without_steps_run_returns_the_message_or_array_itself
    message = { topic: "t", payload: "x" }
    messages = [message]
    assert_predicate @middleware, :empty?
    assert_same message, @middleware.run(message)
    assert_same messages, @middleware.run_many(messages)
  end

  # behaviour: Middleware runs once for each message, before it is checked
  def test_without_steps_a_run_allocates_nothing
    message = { topic: "t", payload: "x" }.freeze
    @middleware.run(message)
    GC.disable
    before = GC.stat(:total_allocated_objects)
    100.times { @middleware.run(message) }
    assert_operator GC.stat(:total_allocated_objects) - before, :<, 10
  ensure
    GC.enable
  end

  def test_a_step_that_changes_its_hash_and_headers_does_not_change_the_callers
    @middleware.append do |message|
      message[:headers]["trace"] = "1"
      message[:topic] = "other"
      message
    end
    message = { topic: "t", payload: "x", headers: { "a" => "b" }.freeze }.freeze
    assert_equal({ topic: "other", payload: "x", headers: { "a" => "b", "trace" => "1" } }, @middleware.run(message))
    assert_equal [{ topic: "t", payload: "x", headers: { "a" => "b" } }], [message]
  end

  def test_each_step_is_called_once_for_each_message_of_a_batch
    seen = []
    @middleware.append { |message| message.tap { seen << message[:payload] } }
    messages = Array.new(3) { |i| { topic: "t", payload: i.to_s } }
    assert_equal messages, @middleware.run_many(messages)
    assert_equal %w[0 1 2], seen
  end

  class Forgetful
    def call(_message); end
  end

  def test_the_error_names_a_step_that_returns_no_hash
    @middleware.append(trail("a")).append(Forgetful.new)
    error = assert_raises(Penstock::MessageInvalidError) { @middleware.run({ topic: "t", payload: "" }) }
    assert_includes error.message, "step MiddlewareTest::Forgetful returned NilClass instead of a message Hash"
    message = { topic: "t", payload: "" }
    error = assert_raises(Penstock::MessageInvalidError) { @middleware.run_many([message, message]) }
    assert_includes error.message, "Message 0 of the batch: "
  end

  def test_the_error_names_the_place_of_a_block_that_returns_no_hash
    @middleware.append { 5 }
    error = assert_raises(Penstock::MessageInvalidError) { @middleware.run({ topic: "t", payload: "" }) }
    assert_match(/Proc at .*middleware_test\.rb:\d+ returned Integer/, error.message)
    assert_match(/middleware_test\.rb:\d+/, @middleware.inspect)
  end

  def test_errors_of_a_step_are_raised_to_the_caller
    @middleware.append { raise KeyError, "mine" }
    assert_equal "mine", assert_raises(KeyError) { @middleware.run({ topic: "t", payload: "" }) }.message
  end

  def test_steps_are_not_called_with_objects_that_are_no_messages
    @middleware.append { flunk "asked" }
    assert_equal ["text", nil, "text"], [@middleware.run("text"), @middleware.run(nil), @middleware.run_many("text")]
  end

  def test_a_step_must_respond_to_call
    assert_match(/respond to call/, assert_raises(ArgumentError) { @middleware.append("text") }.message)
    assert_raises(ArgumentError) { @middleware.prepend }
    assert_raises(ArgumentError) { @middleware.append(trail("a")) { nil } }
    assert_predicate @middleware, :empty?
  end

  def test_a_step_added_during_a_run_applies_from_the_next_run_on
    @middleware.append { |message| message.tap { @middleware.append(trail("x")) } }
    message = { topic: "t", payload: "" }
    assert_equal ["", "x"], Array.new(2) { @middleware.run(message)[:payload] }
  end

  def test_the_array_of_steps_is_a_copy
    @middleware.append(trail("a"))
    @middleware.to_a.clear
    refute_predicate @middleware, :empty?
  end

  def test_threads_that_add_steps_lose_none
    Array.new(4) { Thread.new { 200.times { @middleware.append(trail("a")) } } }.each(&:join)
    assert_equal 800, @middleware.to_a.size
  end
end

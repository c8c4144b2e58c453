# frozen_string_literal: true

require_relative "test_helper"

class MiddlewareTest < PenstockTest
  def setup
    super
    @middleware = Penstock::Middleware.new
  end

  def trail(name)
    ->(message) { message.merge(payload: message[:payload] + name) }
  end

  def test_steps_run_in_order_those_prepended_first
    @middleware.append(trail("b")).append(trail("c"))
    @middleware.prepend(trail("a"))
    @middleware.append { |message| message.merge(key: "k") }
    assert_equal({ topic: "t", payload: "abc", key: "k" }, @middleware.run({ topic: "t", payload: "" }))
    assert_equal 4, @middleware.to_a.size
  end

  def test_without_steps_a_message_and_an_array_are_handed_back_themselves
    message = { topic: "t", payload: "x" }
    messages = [message]
    assert_predicate @middleware, :empty?
    assert_same message, @middleware.run(message)
    assert_same messages, @middleware.run_many(messages)
  end

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

  def test_a_step_that_changes_its_hash_and_its_headers_leaves_the_callers_alone
    @middleware.append do |message|
      message[:headers]["trace"] = "1"
      message[:topic] = "other"
      message
    end
    message = { topic: "t", payload: "x", headers: { "a" => "b" }.freeze }.freeze
    assert_equal({ topic: "other", payload: "x", headers: { "a" => "b", "trace" => "1" } }, @middleware.run(message))
    assert_equal [{ topic: "t", payload: "x", headers: { "a" => "b" } }], [message]
  end

  def test_each_message_of_a_batch_passes_each_step_once
    seen = []
    @middleware.append { |message| message.tap { seen << message[:payload] } }
    messages = Array.new(3) { |i| { topic: "t", payload: i.to_s } }
    assert_equal messages, @middleware.run_many(messages)
    assert_equal %w[0 1 2], seen
  end

  class Forgetful
    def call(_message); end
  end

  def test_a_step_that_returns_no_hash_is_named
    @middleware.append(trail("a")).append(Forgetful.new)
    error = assert_raises(Penstock::MessageInvalidError) { @middleware.run({ topic: "t", payload: "" }) }
    assert_includes error.message, "step MiddlewareTest::Forgetful returned NilClass instead of a message Hash"
    message = { topic: "t", payload: "" }
    error = assert_raises(Penstock::MessageInvalidError) { @middleware.run_many([message, message]) }
    assert_includes error.message, "Message 0 of the batch: "
  end

  def test_a_block_that_returns_no_hash_is_named_by_its_place
    @middleware.append { 5 }
    error = assert_raises(Penstock::MessageInvalidError) { @middleware.run({ topic: "t", payload: "" }) }
    assert_match(/Proc at .*middleware_test\.rb:\d+ returned Integer/, error.message)
    assert_match(/middleware_test\.rb:\d+/, @middleware.inspect)
  end

  def test_what_a_step_raises_goes_to_the_caller
    @middleware.append { raise KeyError, "mine" }
    assert_equal "mine", assert_raises(KeyError) { @middleware.run({ topic: "t", payload: "" }) }.message
  end

  def test_what_is_no_message_passes_no_step
    @middleware.append { flunk "asked" }
    assert_equal ["text", nil, "text"], [@middleware.run("text"), @middleware.run(nil), @middleware.run_many("text")]
  end

  def test_only_what_can_be_called_is_a_step
    assert_match(/respond to call/, assert_raises(ArgumentError) { @middleware.append("text") }.message)
    assert_raises(ArgumentError) { @middleware.prepend }
    assert_raises(ArgumentError) { @middleware.append(trail("a")) { nil } }
    assert_predicate @middleware, :empty?
  end

  def test_a_step_that_is_added_during_a_run_counts_from_the_next_run_on
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

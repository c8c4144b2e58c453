# frozen_string_literal: true

require_relative "../test_helper"

# The guards against hanging: they report a hang, and wait longer on a slow machine.
class SlownessTest < PenstockTest
  # A machine that is as slow as that.
  def with_factor(factor)
    Slowness.singleton_class.class_eval do
      alias_method :measured_factor, :factor
      define_method(:factor) { factor }
    end
    yield
  ensure
    Slowness.singleton_class.class_eval do
      remove_method :factor
      alias_method :factor, :measured_factor
      remove_method :measured_factor
    end
  end

  def test_the_factor_is_at_least_1_and_has_an_upper_bound
    assert_includes 1..Slowness::MOST, Slowness.factor
  end

  def test_a_deadline_is_longer_on_a_slow_machine
    with_factor(1.0) { assert_predicate Slowness.deadline(0), :passed? }
    deadline = with_factor(1.0) { Slowness.deadline(0.001) }
    sleep 0.002
    with_factor(1.0) { assert_predicate deadline, :passed? }
    with_factor(100_000) { refute_predicate deadline, :passed? }
  end

  def test_what_ends_before_the_deadline_is_not_disturbed_and_leaves_no_thread
    before = Thread.list
    assert_equal :value, Slowness.within(60) { :value }
    assert_equal before, Thread.list
    with_factor(100_000) { assert_equal :value, Slowness.within(0.001) { sleep(0.01) && :value } }
  end

  def test_what_hangs_is_ended_again_and_again
    ended = 0
    error = assert_raises(Timeout::Error) do
      Slowness.within(0.01) do
        sleep
      rescue Slowness::Late
        (ended += 1) < 3 ? retry : raise
      end
    end
    assert_equal 3, ended
    assert_match(/longer than 0.01 s/, error.message)
    assert_match(/slowness_test.rb/, error.backtrace.first(3).join)
  end

  def test_join_returns_nil_for_a_thread_that_hangs
    hanging = Thread.new { sleep }
    assert_nil Slowness.join(hanging, 0.01)
    assert_same hanging, Slowness.join(hanging.kill, 60)
  end
end

# frozen_string_literal: true

require_relative "../test_helper"

# A mark that is ignored would run a test beside others, or not at all.
class MarksTest < PenstockTest
  # No line begins with `alone`, because test/run.rb would take it for a mark of this file.
  CLASS = <<~RUBY.freeze
    require "minitest"
    Minitest.seed = 1
    require "#{File.join(__dir__, "../support/marks")}"
    class Marked < Minitest::Test
      extend Marks
      slow(/waits/)
      self.alone def test_share = nil
      self.alone slow def test_cpu = nil
      thorough def test_long = nil
      def test_waits = nil
      def test_plain = nil
    end
  RUBY
  PRINTED = "puts Marked.runnable_methods.map { |name| name.delete_prefix('test_') }.sort.join(' ')"

  # @return [String] the tests that run
  def selected(program = CLASS + PRINTED, phase: nil, tests: nil)
    Limited.capture2e({ "PENSTOCK_PHASE" => phase, "PENSTOCK_TESTS" => tests }, RbConfig.ruby, "-e", program).first.chomp
  end

  def test_each_test_runs_in_one_phase
    assert_equal "cpu long plain share waits", selected
    assert_equal "long plain waits", selected(phase: "together")
    assert_equal "cpu share", selected(phase: "alone")
  end

  def test_the_gate_leaves_out_thorough_tests
    assert_equal "cpu plain share waits", selected(tests: "gate")
  end

  def test_quick_runs_leave_out_slow_tests_in_each_phase
    assert_equal "plain share", selected(tests: "quick")
    assert_equal "plain", selected(phase: "together", tests: "quick")
    assert_equal "share", selected(phase: "alone", tests: "quick")
  end

  def test_a_mark_without_a_test_and_an_unknown_phase_raise
    wrong = "#{CLASS}Marked.alone(:test_gone)\n#{PRINTED}"
    assert_match(/no test is called :test_gone, which is marked as alone/, selected(wrong))
    assert_match(/PENSTOCK_PHASE is together or alone, not none/, selected(phase: "none"))
  end
end

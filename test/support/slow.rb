# frozen_string_literal: true

# Tests that wait for real timeouts, or start many programs. `rake` leaves them out, so that it ends within 90 s; bin/test, and
# a test file that runs by itself, run them.
#
#   slow def test_close_waits_for_its_timeout
#   slow(/under_async/)    # the tests whose names match
#   slow                   # every test of the class
module Slow
  LEFT_OUT = ENV["PENSTOCK_TESTS"] == "quick"

  # @param names [Symbol, Regexp]
  # @return [void]
  def slow(names = /./)
    (@slow_tests ||= []) << (names.is_a?(Symbol) ? names.name : names)
  end

  # Minitest's: the tests to run.
  def runnable_methods
    return super unless LEFT_OUT && @slow_tests

    left_out = @slow_tests.to_h { |slow| [slow, super.grep(slow)] }
    left_out.each { |slow, found| raise "no test is called #{slow.inspect}, which is marked as slow" if found.empty? }
    super - left_out.values.flatten
  end
end

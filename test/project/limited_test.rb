# frozen_string_literal: true

require_relative "../test_helper"
require "tempfile"

class LimitedTest < PenstockTest
  thorough slow def test_a_hanging_program_is_ended_and_the_error_has_its_output_and_backtraces
    program = 'Thread.new { Thread.current.name = "idler"; sleep }; puts "begun"; $stdout.flush; def hang = sleep; hang'
    error = assert_raises(Limited::TooLong) { Limited.capture3(RbConfig.ruby, "-e", program, seconds: 5) }
    assert_match(/\Astill ran after \d+\.\d s.*^idler  \w+.*^begun.*Segmentation.*Ruby level backtrace.*hang/m, error.message)
  end

  thorough slow def test_a_program_that_ignores_the_signal_is_killed
    assert_raises(Limited::TooLong) { Limited.capture2e("sh", "-c", "trap '' SEGV; exec sleep 1000", seconds: 0.5) }
  end

  slow def test_a_tests_own_time_limit_ends_its_program_too
    pid = nil
    assert_raises(Timeout::Error) do
      Timeout.timeout(3) { Limited.capture2e("sh", "-c", "echo $$ >#{(pid = Tempfile.new).path}; exec sleep 1000") }
    end
    assert_raises(Errno::ESRCH) { Process.kill(0, Integer(pid.read)) }
  end

  thorough slow def test_a_background_process_that_keeps_the_pipe_open_does_not_delay_the_output
    output, status = Limited.capture2e("sh", "-c", "sleep 15 & echo out; exit 3")
    assert_equal ["out\n", 3], [output, status.exitstatus]
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/ffi_defect"

# A short version of rake test:ffi.
class FfiDefectTest < PenstockTest
  def broken(kind, processes, seconds) = FfiDefect.loop(kind, processes, seconds).select(&:broken).map(&:line)

  def test_a_hash_stored_without_a_write_barrier_is_freed_and_replaced_by_another_object
    lines = []
    20.times do
      lines.concat(broken("unprotected", 1, 2))
      break if lines.size >= 3
    end
    assert_operator lines.size, :>=, 3, "no process saw it"
    lines.each { |line| assert_match(/undefined method .default' for .*String|another object|\[BUG\]|signal|Error/, line) }
  end

  def test_a_hash_stored_with_a_write_barrier_is_kept = assert_empty(broken("protected", 1, 1))

  def test_producers_handles_reports_and_messages_survive_the_same_usage
    assert_empty broken("penstock", 2, 1)
  end

  def test_the_example_reports_a_missing_ffi_or_its_findings
    example = File.expand_path("../../examples/ffi_loop.rb", __dir__)
    without, status = Limited.capture2e({ "GEM_PATH" => "/nowhere", "GEM_HOME" => "/nowhere" }, RbConfig.ruby, "--disable-gems",
                                        example, "1", "1")
    if without.include?("not installed")
      assert_equal [2, "ffi is not installed: gem install ffi -v VERSION\n"], [status.exitstatus, without]
    else
      assert_match(/^ffi [\d.]+: \d of 1 processes saw another object$/, without)
    end
  end
end

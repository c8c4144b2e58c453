# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/reader"
require_relative "fork_and_exit"

# Runs each way to end once. `rake test:fork_and_exit` runs it 500 times.
class ForkAndExitTest < PenstockTest
  ForkAndExit::WAYS.each_key do |way|
    # defect 11
    define_method("test_a_program_that_#{way.tr(" ", "_")}_exits_cleanly_and_loses_no_confirmed_message") do
      skip "no /proc here" unless File.directory?("/proc/self/task")
      output = StringIO.new
      assert ForkAndExit.new(cluster.bootstrap_servers, runs: 1, beside: 1, only: /\A#{way}\z/, out: output).call, output.string
      assert_match(/\A1 runs, 1 ways/, output.string.delete_prefix("fork_and_exit: "))
    end
  end
end

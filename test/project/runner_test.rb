# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../runner"
require "tmpdir"

# How the test runner treats files that pass, fail, fail now and then, and crash. Each file is a small program with minitest.
class RunnerTest < PenstockTest
  def setup
    super
    @folder = Dir.mktmpdir
    @flaky = Runner::Flaky.new(File.join(@folder, "flaky"))
    @strict = ENV.delete("PENSTOCK_STRICT")
  end

  def teardown
    ENV["PENSTOCK_STRICT"] = @strict
    FileUtils.rm_rf(@folder)
    super
  end

  def test_a_file_that_passes_and_one_that_fails_three_times
    assert_equal [true, "1 passed, 0 failed, 0 skipped"], outcome(file("assert true"))
    failing = file("tried; flunk 'always'")
    assert_equal [false, "0 passed, 1 failed, 0 skipped"], outcome(failing)
    assert_equal 3, tries
    assert_match(/^broken:\n.*\n +SmallTest#test_small.*\n +always/, @output)
  end

  def test_a_file_that_fails_once_is_flaky_and_four_such_files_fail_the_judgement
    outcomes = Array.new(4) { |i| [outcome(file("flunk 'now and then' if tried(#{i}) == 1")), judgement] }
    assert_equal([[true, "1 passed, 0 failed, 0 skipped"]] * 4, outcomes.map(&:first))
    assert_equal([true, true, true, false], outcomes.map { |_, (judged, _)| judged })
    assert_match(/^4 flaky.*attempt 2 passed\n +SmallTest#test_small.*now and then.*more than 3 files/m, outcomes.last.last.last)
    ENV["PENSTOCK_STRICT"] = "1"
    FileUtils.rm(Dir[File.join(@folder, "flaky/*")].drop(2))
    refute judgement.first
  end

  def test_a_crash_and_a_lost_message_fail_the_run_although_they_would_pass_when_tried_again
    [
      "Process.kill(:SEGV, Process.pid); sleep", "system(Gem.ruby, '-e', 'Process.kill(:ABRT, $$); sleep'); flunk $?.to_s",
      "flunk 'LOST OR REPEATED: message 7'", "flunk '==1==ERROR: AddressSanitizer: heap-use-after-free'"
    ].each_with_index do |finding, i|
      refute outcome(file("(#{finding}) if tried(#{i}) == 1")).first, "finding #{i}"
      assert_equal 1, tries(i)
    end
    known = "SIGABRT: rd_kafka_broker_destroy_final: Assertion `thrd_is_current(rkb->rkb_thread)' failed"
    assert outcome(file("flunk #{known.dump} if tried(8) == 1")).first
    assert outcome(file("flunk 'still ran after 3 s ... [BUG] Segmentation fault' if tried(9) == 1")).first
  end

  def test_a_process_that_ends_early_has_failed_although_it_exits_with_success
    refute outcome(file("exit!(0)")).first
  end

  def test_a_message_that_is_lost_when_the_file_is_tried_again_fails_the_run
    refute outcome(file("count = tried; flunk 'at first' if count == 1; flunk 'LOST OR REPEATED: message 7' if count == 2")).first
    assert_equal 2, tries
  end

  def test_tests_that_are_marked_as_alone_run_after_the_others_and_alone
    write = "File.write(#{log.dump}, \"\#{name} \", mode: 'a')"
    beside = "class SmallTest\n  def self.alone(name) = name\n" \
             "  alone def test_alone = (#{write} if ENV['PENSTOCK_PHASE'] == 'alone')\nend\n"
    assert outcome(file("#{write} if ENV['PENSTOCK_PHASE'] == 'together'", more: beside), file(write)).first
    assert_match(/\A(test_small )+test_alone \z/, File.read(log))
  end

  private

  def log = File.join(@folder, "log")

  # @return [String] the path of a test file with one test; `tried` counts its runs
  def file(body, more: "")
    path = File.join(@folder, "small_#{rand(2**32)}_test.rb")
    File.write(path, <<~RUBY)
      require "minitest/autorun"
      class SmallTest < Minitest::Test
        def tried(which = 0)
          File.write("#{@folder}/tries-\#{which}", "x", mode: "a")
          File.size("#{@folder}/tries-\#{which}")
        end

        def test_small
          #{body}
        end
      end
      #{more}
    RUBY
    path
  end

  def tries(which = 0) = File.size(File.join(@folder, "tries-#{which}"))

  # @return [Array(Boolean, String)] whether the run passed, and its last line
  def outcome(*files)
    durations = Runner::Durations.new(File.join(@folder, "durations.tsv"))
    passed = nil
    @output, = capture_io { passed = Runner.new(files.map { |path| [path] }, jobs: 2, most: 2, durations:, flaky: @flaky).call }
    [passed, @output.lines.last.chomp]
  end

  # @return [Array(Boolean, String)]
  def judgement
    judged = nil
    output, = capture_io { judged = @flaky.judge }
    [judged, output]
  end
end

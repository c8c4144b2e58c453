# frozen_string_literal: true

require_relative "test_helper"
require "fileutils"

# The native core without Ruby, under the address sanitizer: test/c/core_storm.c.
class CoreTest < PenstockTest
  ROOT = File.expand_path("..", __dir__)
  PROGRAM = File.join(ROOT, "tmp", "core_storm-#{RUBY_VERSION}")

  def build
    FileUtils.mkdir_p(File.dirname(PROGRAM))
    sources = Dir[File.join(ROOT, "ext/penstock/core/*.c"), File.join(__dir__, "c/core_storm.c")]
    flags = `pkg-config --cflags --libs rdkafka`.split
    output, status = Open3.capture2e(
      "cc", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address", "-pthread",
      "-I", File.join(ROOT, "ext/penstock/core"), *sources, "-o", PROGRAM, *flags
    )
    assert_predicate status, :success?, output
  end

  def built?
    sources = Dir[File.join(ROOT, "{ext/penstock/core,test/c}/*")]
    File.exist?(PROGRAM) && File.mtime(PROGRAM) > sources.map { |file| File.mtime(file) }.max
  end

  def storm(*arguments)
    build unless built?
    output, status = Open3.capture2e({ "ASAN_OPTIONS" => "detect_leaks=1" }, PROGRAM, *arguments.map(&:to_s))
    assert_predicate status, :success?, output[-3_000..] || output
    batches, missed, clients = output.match(/^batches (\d+) missed (\d+) clients (\d+)$/).captures.map(&:to_i)
    assert_equal [0, 0], [missed, clients]
    assert_operator batches, :>, 100
  end

  # A client that was cut short and became ready again was pushed twice, and the poller walked in a circle.
  def test_clients_that_are_cut_short_after_every_event_get_all_their_verdicts
    storm(0, 4, 16, 5, 0, 0, 0)
  end

  def test_clients_that_come_and_go_leave_nothing_behind
    storm(100_000, 4, 8, 5, 1, 0, 0)
  end

  def test_every_event_and_label_of_clients_that_come_and_go_comes_out_once
    storm(100_000, 4, 8, 5, 1, 0, 1)
  end

  def test_a_poller_that_is_drained_by_others_while_its_thread_comes_and_goes_loses_nothing
    storm(0, 4, 8, 5, 0, 1, 0)
    storm(100_000, 4, 8, 5, 1, 1, 1)
  end
end

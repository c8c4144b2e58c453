# frozen_string_literal: true

require_relative "../test_helper"
require "fileutils"

# Forks while a thread holds each lock of the core, and while a thread serves an event or a callback: test/c/fork_locks.c.
class ForkLocksTest < PenstockTest
  ROOT = File.expand_path("../..", __dir__)
  PROGRAM = File.join(ROOT, "tmp", "fork_locks-#{RUBY_VERSION}")

  def build(*macros)
    FileUtils.mkdir_p(File.dirname(PROGRAM))
    sources = Dir[File.join(ROOT, "ext/penstock/core/**/*.c"), File.join(__dir__, "../c/fork_locks.c")]
    flags = `pkg-config --cflags --libs rdkafka`.split
    output, status = Limited.capture2e(
      "cc", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", *macros,
      "-include", File.join(__dir__, "../c/held.h"), "-I", File.join(ROOT, "ext/penstock/core"), *sources, "-o", PROGRAM, *flags
    )
    assert_predicate status, :success?, output
  end

  # @return [Array<String>] the locks that DESIGN.md lists
  def locks
    text = File.read(File.join(ROOT, "DESIGN.md"))[/^## Locks\n(.*?)^## /m, 1] if File.exist?(File.join(ROOT, "DESIGN.md"))
    [*text.to_s.scan(/`(\w+\.(?:lock|turn))`/).flatten, "events.lock", "slot.lock"].uniq
  end

  # A child may hang at a random place, because a librdkafka thread held a lock of the C library or of OpenSSL (decision 0014).
  # A lock of Penstock hangs a child at the same place every time. So a run with one hung child is repeated, and no place may
  # hang twice.
  def forked
    hung = []
    3.times do
      output, status = Limited.capture2e(PROGRAM, "1")
      return output if status.success? || !output.match?(/^children \d+ hung 1 wrong 0 /)

      hung += output.scan(/^([\w.]+ \w+): status/).flatten
      assert_equal hung.uniq, hung, "hung twice at a place\n#{output[-3_000..] || output}"
    end
    flunk "a child hung in each of three runs: #{hung.join(", ")}"
  end

  # defect 8
  def test_children_forked_while_any_lock_is_held_work_and_exit_cleanly
    build
    check(forked)
  end

  # Includes the locks that replace a futex.
  def test_children_forked_without_futex_and_eventfd_exit_cleanly
    build("-DPENSTOCK_PORTABLE")
    output = forked
    assert_match(/^sleepers\.lock ps_word_sleep$/, output)
    assert_match(/^sleepers\.lock ps_word_wake$/, output)
    check(output)
  end

  private

  def check(output)
    children, hung, wrong, = output.match(/^children (\d+) hung (\d+) wrong (\d+) unmet (\d+)$/)&.captures&.map(&:to_i)
    assert_equal [0, 0], [hung, wrong], output[-3_000..] || output
    assert_operator children, :>, 60
    held = output.scan(/^([\w.]+) \w+$/).flatten.uniq
    assert_empty locks - held, "locks that were not held at any fork"
    assert_empty %w[event result write getaddrinfo] - held, "places that no thread reached at a fork"
  end
end

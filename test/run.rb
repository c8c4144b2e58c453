# frozen_string_literal: true

require "etc"
require "optparse"
require "rbconfig"
require_relative "support/limited"

# Runs test files, each in a process of its own, several at a time, because tests mostly wait. Prints a line for each file, the
# reasons in brief below a file that failed, and the whole output of the failed files at the end.
class Run
  Result = Struct.new(:files, :output, :passed, :seconds) do
    def counts = output[/^\d+ runs, .*$/] || "did not run to its end"

    def to_s
      format("%<state>s %<seconds>6.1f s  %<files>s: %<counts>s", state: passed ? "passed" : "FAILED", seconds:, counts:,
                                                                  files: files.join(" "))
    end

    # @return [Array<String>] the place of each failure and the first lines of its message; without any, the last lines
    def why
      failures = output.scan(/^ +\d+\) (?:Failure|Error):\n(.*(?:\n.+){0,4})/).flatten
      failures = [output[/^.*\[BUG\](?:.*\n){10}/] || output.lines.last(10).join] if failures.empty?
      failures.map { |failure| failure.gsub(/^/, "    ") }
    end
  end

  LONGEST = 1_200 # seconds for one process
  # Started first, in this order, so that none of them is still running alone at the end.
  LONG = %w[proofs/hostile_broker proofs/core integration/broker_failures conformance consumer fork integration/security
            producer_recovery proofs/gc close exit integration/producer_transaction integration/consumer interrupt rejection
            ractor fiber_timeout transaction_native watch unnoticed unreachable poller producer_transaction].freeze
  ROOT = File.expand_path("..", __dir__)
  # Without plugins of minitest: where railties is installed, its own would print failures in another form than #why reads.
  COMMAND = [{ "MT_NO_PLUGINS" => "1" }, RbConfig.ruby, "-w", "-Ilib", "-Itest",
             "-e", "ARGV.each { |file| require File.expand_path(file) }"].freeze

  # @param parts [Array<Array<String>>] the files of each process
  def initialize(parts, jobs)
    parts = parts.sort_by.with_index { |files, i| [LONG.index(name(files.first)) || LONG.size, i] }
    @parts = Thread::Queue.new.tap { |queue| parts.each { |part| queue << part } }.close
    @jobs = jobs
    @lock = Mutex.new
  end

  # @return [Boolean] whether all have passed
  def call
    start = now
    failed = Array.new(@jobs) { Thread.new { work } }.flat_map(&:value)
    puts format("%.0f s, and %.0f s of CPU time", now - start, Process.times.then { |times| times.cutime + times.cstime })
    failed.each { |result| puts "", "---- #{result}", result.output }
    failed.empty?
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # @return [String] as in LONG
  def name(file) = file.delete_prefix("test/").delete_suffix("_test.rb")

  def work
    results = []
    while (files = @parts.pop)
      results << run(files)
      @lock.synchronize { report(results.last) }
    end
    results.reject(&:passed)
  end

  def report(result)
    puts result
    puts result.why unless result.passed
  end

  def run(files)
    start = now
    output, passed = output_of(files)
    Result.new(files, output, passed, now - start)
  end

  def output_of(files)
    output, status = Limited.capture2e(*COMMAND, *files, chdir: ROOT, seconds: LONGEST)
    [output, status.success?]
  rescue Limited::TooLong => e
    [e.message, false]
  end
end

jobs = 3 * Etc.nprocessors # they mostly wait
OptionParser.new do |options|
  options.banner = "usage: ruby test/run.rb [--jobs N] [FILE... or FILE,FILE,...]  (files with commas between share a process)"
  options.on("--jobs N", Integer, "how many processes run at a time (#{jobs})") { |number| jobs = number }
end.parse!

$stdout.sync = true
files = ARGV.empty? ? Dir.glob("test/{,integration/}*_test.rb", base: Run::ROOT).sort : ARGV
exit Run.new(files.map { |part| part.split(",") }, jobs).call

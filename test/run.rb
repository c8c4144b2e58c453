# frozen_string_literal: true

require "etc"
require "optparse"
require "rbconfig"
require_relative "support/limited"

# Runs test files, each in a process of its own and some beside each other, as most of their time is waiting. A line for each,
# below one that failed why, in brief; what it has printed, at the end.
class Run
  Result = Struct.new(:files, :output, :passed, :seconds) do
    def counts = output[/^\d+ runs, .*$/] || "did not run to its end"

    def to_s
      format("%<verdict>s %<seconds>6.1f s  %<files>s: %<counts>s", verdict: passed ? "passed" : "FAILED", seconds:, counts:,
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
  ROOT = File.expand_path("..", __dir__)
  COMMAND = [RbConfig.ruby, "-w", "-Ilib", "-Itest", "-e", "ARGV.each { |file| require File.expand_path(file) }"].freeze

  # @param parts [Array<Array<String>>] the files of each process, started in this order
  def initialize(parts, jobs)
    @parts = Thread::Queue.new.tap { |queue| parts.each { |part| queue << part } }.close
    @jobs = jobs
    @lock = Mutex.new
  end

  # @return [Boolean] whether all have passed
  def call
    failed = Array.new(@jobs) { Thread.new { work } }.flat_map(&:value)
    failed.each { |result| puts "", "---- #{result}", result.output }
    failed.empty?
  end

  private

  def work
    results = []
    while (files = @parts.pop)
      results << run(files)
      @lock.synchronize { tell(results.last) }
    end
    results.reject(&:passed)
  end

  def tell(result)
    puts result
    puts result.why unless result.passed
  end

  def run(files)
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    output, passed = output_of(files)
    Result.new(files, output, passed, Process.clock_gettime(Process::CLOCK_MONOTONIC) - start)
  end

  def output_of(files)
    output, status = Limited.capture2e(*COMMAND, *files, chdir: ROOT, seconds: LONGEST)
    [output, status.success?]
  rescue Limited::TooLong => e
    [e.message, false]
  end
end

jobs = Etc.nprocessors + 1
OptionParser.new do |options|
  options.banner = "usage: ruby test/run.rb [--jobs N] [FILE... or FILE,FILE,...]  (files with commas between share a process)"
  options.on("--jobs N", Integer, "so many processes at once (#{jobs})") { |number| jobs = number }
end.parse!

$stdout.sync = true
files = ARGV.empty? ? Dir.glob("test/**/*_test.rb", base: Run::ROOT).sort : ARGV
# Those that start Kafkas of their own take longest.
files = files.sort_by.with_index { |file, i| [file.include?("broker_failures") ? 0 : 1, file.include?("integration") ? 0 : 1, i] }
exit Run.new(files.map { |part| part.split(",") }, jobs).call

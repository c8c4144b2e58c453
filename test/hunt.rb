# frozen_string_literal: true

require "etc"
require "optparse"
require_relative "runner"

# Runs a test file again and again, to find out how often it fails and how: see bin/test --help.
class Hunt
  # @param arguments [Array<String>] for minitest, such as "-n", "test_name"
  def initialize(file, arguments, times:, load:)
    @file = file
    @arguments = arguments
    @times = times
    @load = load
    @tests = 0
    @failed = Hash.new { |all, key| all[key] = [] }
  end

  # @return [Boolean] whether tests ran, and none ever failed
  def call
    loads = Array.new(@load ? Etc.nprocessors : 0) { spawn(RbConfig.ruby, "-e", "loop {}") }
    seconds = Array.new(@times) { |i| attempt(i + 1) }
    print_result(seconds)
    @failed.empty? && @tests.positive?
  ensure
    loads&.each do |pid|
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
  end

  private

  def attempt(number)
    attempt = Runner::Attempt.run([@file], arguments: @arguments)
    @tests += attempt.counts.fetch("runs", 0)
    note(number, attempt) unless attempt.passed?
    puts format("%<number>3d  %<attempt>s%<grave>s", number:, attempt:, grave: attempt.grave && "  -- #{attempt.grave}")
    attempt.seconds
  end

  # Failures of the same test at the same lines are the same way to fail.
  def note(number, attempt)
    attempt.failures.each { |text| @failed[text[/\A.*/] + text.scan(/\w+\.rb:\d+/).first(3).join(" ")] << [number, text] }
  end

  def print_result(seconds)
    attempts = @failed.values.flatten(1).map(&:first).uniq
    puts "", format("%<file>s%<load>s: %<failed>d of %<times>d runs failed, %<least>.1f to %<most>.1f s",
                    file: @file, load: @load ? " beside busy cores" : "", failed: attempts.size, times: @times,
                    least: seconds.min, most: seconds.max)
    puts "no test ran: is the name right?" if @tests.zero?
    @failed.values.sort_by { |found| -found.size }.each do |found|
      puts "", "#{found.size} times (run #{found.map(&:first).join(", ")}):", found.first.last.gsub(/^/, "    ")
    end
  end
end

times = 20
load = false
arguments = []
parser = OptionParser.new do |options|
  options.banner = "usage: ruby test/hunt.rb FILE [-n NAME] [--times N] [--load]"
  options.on("-n NAME", "only the tests of that name, or /part of a name/") { |name| arguments.push("-n", name) }
  options.on("--times N", Integer, "how often (#{times})") { |number| times = number }
  options.on("--load", "keep every core busy meanwhile") { load = true }
end
files = parser.parse(ARGV)
abort parser.banner unless files.one?
abort "there is no file #{files.first}" unless File.file?(File.expand_path(files.first, Runner::Attempt::ROOT))
$stdout.sync = true
exit Hunt.new(files.first, arguments, times:, load:).call

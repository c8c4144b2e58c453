# frozen_string_literal: true

require "optparse"
require_relative "runner"

flaky = Runner::Flaky.new
options = { flaky: }
judged = kafka = true
OptionParser.new do |parser|
  parser.banner = "usage: ruby test/run.rb [options] [FILE... or FILE,FILE,...]  (files with commas between share a process)"
  parser.on("--jobs N", Integer, "how many processes run at a time (#{Runner::JOBS}, more while processors are idle)") do |number|
    options.update(jobs: number, most: number)
  end
  parser.on("--no-kafka", "of all tests, leave out test/integration") { kafka = false }
  parser.on("--gate", "leave out tests marked `thorough`") { ENV["PENSTOCK_TESTS"] = "gate" }
  parser.on("--quick", "the same, and those marked `slow`, and test/integration; short files share a process") do
    ENV["PENSTOCK_TESTS"] = "quick"
    options[:most] ||= Runner::MOST_QUICK
  end
  parser.on("--once", "do not try failed files again") { options[:tries] = 1 }
  parser.on("--unjudged", "leave the judgement on flaky files to a later --judge") { judged = false }
  parser.on("--judge", "only list the flaky files of earlier runs; fail if there are too many") { exit flaky.judge }
end.parse!

$stdout.sync = true
root = Runner::Attempt::ROOT
flaky.forget if judged
kafka = false if ENV["PENSTOCK_TESTS"] == "quick"
all = Dir.glob("test/**/*_test.rb", base: root).grep_v(kafka ? %r{^test/proofs/} : %r{^test/(proofs|integration)/})
parts = (ARGV.empty? ? all.sort : ARGV).map { |part| part.split(",") }
abort "no test file is given between two commas" if parts.any?(&:empty?)
durations = Runner::Durations.new
parts = durations.shared(parts.flatten) if ARGV.empty? && ENV["PENSTOCK_TESTS"] == "quick"
passed = Runner.new(parts, durations:, **options).call
exit((!judged || flaky.judge) && passed)

# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require_relative "../../support/limited"

# A defect that ffi had in its struct layouts, repeated in many processes that a supervisor watches: see test/ext/layout_churn.
#
#   ruby test/proofs/support/ffi_defect.rb [PROCESSES [SECONDS]]
module FfiDefect
  ROOT = File.expand_path("../../..", __dir__)
  SOURCE = File.join(ROOT, "test/ext/layout_churn")
  BUILT = File.join(ROOT, "tmp/layout_churn", RbConfig::CONFIG["ruby_version"])
  CRASHES = %w[SEGV ABRT BUS ILL].map { |name| Signal.list.fetch(name) }.freeze

  # @!attribute line
  # @return [String] its last line of output, or how it crashed
  Outcome = Struct.new(:broken, :line)

  # @return [String] the folder of the test-only extension
  def self.build
    FileUtils.mkdir_p(BUILT)
    File.open(File.join(BUILT, "lock"), "w") do |lock| # tests run in several processes
      lock.flock(File::LOCK_EX)
      [[RbConfig.ruby, File.join(SOURCE, "extconf.rb")], ["make"]].each do |command|
        output, status = Limited.capture2e(*command, chdir: BUILT)
        raise "#{command.last}: #{output}" unless status.success?
      end
    end
    BUILT
  end

  # @param kind ["unprotected", "protected", "penstock"]
  # @return [Outcome]
  def self.process(kind, seconds)
    command = [RbConfig.ruby, "-w", "-I", build, "-I", File.join(ROOT, "lib"), File.join(SOURCE, "churn.rb"), kind, seconds.to_s]
    output, errors, status = Limited.capture3(*command, seconds: (seconds * 20) + 60)
    line = output.b.lines(chomp: true).last.to_s # another object may print any bytes
    crash = CRASHES.find { |signal| [signal, 128 + signal].include?(status.termsig || status.exitstatus) }
    return Outcome.new(true, errors.b[/\[BUG\].*/] || "signal #{crash}") if crash
    return Outcome.new(false, line) if status.success?

    raise "#{kind}: #{status}: #{output}#{errors}" unless line.match?(/\A[\w:]+: /) # it could not even start

    Outcome.new(true, line)
  rescue Limited::TooLong => e
    Outcome.new(true, e.message.lines.first.chomp)
  end

  # @return [Array<Outcome>]
  def self.loop(kind, processes, seconds)
    Array.new(processes) do
      process(kind, seconds).tap { |outcome| yield outcome if block_given? }
    end
  end

  # @return [Boolean] whether all outcomes are as expected
  def self.report(processes, seconds)
    counts = %w[unprotected protected penstock].map do |kind|
      loop(kind, processes, seconds) { |outcome| puts "#{kind}: #{outcome.line}" }.count(&:broken)
    end
    puts format("ffi's defect: without a barrier: %2$d of %1$d processes saw another object; with one: %3$d of %1$d; " \
                "Penstock: %4$d of %1$d", processes, *counts)
    counts == [processes, 0, 0]
  end
end

exit FfiDefect.report(Integer(ARGV[0] || 20), Float(ARGV[1] || 3)) if $PROGRAM_NAME == __FILE__

# frozen_string_literal: true

require "rbconfig"
require_relative "../support/limited"

class Runner
  # One run of a test file (or of files that share a process), and what it shows.
  class Attempt
    ROOT = File.expand_path("../..", __dir__)
    LONGEST = Integer(ENV.fetch("PENSTOCK_FILE_TIMEOUT", "600")) # seconds for one process on a quiet machine
    # Without plugins of minitest: where railties is installed, its own would print failures in another form than is read here.
    ENVIRONMENT = { "MT_NO_PLUGINS" => "1" }.freeze
    COMMAND = [
      RbConfig.ruby, "-w", "-Ilib", "-Itest",
      "-e", "while (file = ARGV.shift) && file != '--'; require File.expand_path(file); end"
    ].freeze

    # Findings that no later success excuses, wherever the output of a failed attempt has them.
    LOSS = /LOST OR REPEATED: /
    SANITIZER = /(?:Address|Leak)Sanitizer|WARNING: ThreadSanitizer|: runtime error: /
    CRASH = /\[BUG\]|\bSIG(?:SEGV|ABRT|BUS|ILL|FPE)\b/
    # Crashes that are not Penstock's, with their reasons: they count as ordinary failures.
    KNOWN = {
      /rb_vm_each_stack_value|check_stack_for_moved/ => "Ruby 3.1 checks a stale word of a thread's stack at the end of a " \
                                                        "compaction (test/support/gc_level.rb)",
      /rd_kafka_broker_destroy_final: Assertion `thrd_is_current/ => "librdkafka ends a broker on another thread than the " \
                                                                     "broker's, if a client closes soon after its start (#3608)"
    }.freeze
    # Limited ends a program that hangs with SIGSEGV, so that Ruby reports where it was.
    HANG = /still ran after/

    # @return [Array<String>]
    attr_reader :files
    # @return [String]
    attr_reader :output
    # @return [Float]
    attr_reader :seconds

    # @param phase [String, nil] PENSTOCK_PHASE
    # @param arguments [Array<String>] for minitest
    def self.run(files, phase: nil, arguments: [])
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      environment = { **ENVIRONMENT, "PENSTOCK_PHASE" => phase } # nil: also a runner that a test has started runs all tests
      output, status =
        begin
          Limited.capture2e(environment, *COMMAND, *files, "--", *arguments, chdir: ROOT, seconds: LONGEST)
        rescue Limited::TooLong => e
          [e.message, nil]
        end
      new(files, phase, output, status, Process.clock_gettime(Process::CLOCK_MONOTONIC) - start)
    end

    # @param status [Process::Status, nil] nil if the process had to be ended
    def initialize(files, phase, output, status, seconds)
      @files = files
      @phase = phase
      @output = output.scrub
      @status = status
      @seconds = seconds
    end

    def again = self.class.run(@files, phase: @phase)

    # A process that ended early has not passed, whatever its status.
    def passed? = @status&.success? && @output.match?(/^\d+ runs, \d+ assertions, 0 failures, 0 errors/)

    # @return [String, nil] what was found that no retry excuses
    def grave
      return if passed?
      return "a lost or repeated message" if @output.match?(LOSS)
      return "a sanitizer's finding" if @output.match?(SANITIZER) && !@output.match?(HANG)

      "a crash" if crashed?
    end

    # @return [Array<String>] each failure's test, place and message; without any, the end of the output
    def failures
      found = @output.scan(/^ +\d+\) (?:Failure|Error):\n(.*?)(?=^ +\d+\) \w+:$|^\d+ runs, |\z)/m).flatten
      found.empty? ? [@output[/^.*\[BUG\](?:.*\n){10}/] || @output.lines.last(10).join] : found
    end

    # @return [Hash{String => Integer}] "runs", "failures", "errors", "skips"
    def counts = @output.scan(/(\d+) (runs|failures|errors|skips)\b/).to_h { |count, name| [name, count.to_i] }

    # @return [String] one line
    def to_s
      format("%<state>s %<seconds>6.1f s  %<files>s: %<counts>s", state: passed? ? "passed" : "FAILED", seconds: @seconds,
                                                                  files: @files.join(" "), counts: summary)
    end

    # @return [String] the first lines of each failure
    def brief(indent = "    ")
      failures.map { |text| text.lines.first(5).join.gsub(/^/, indent).chomp }.join("\n")
    end

    private

    def summary = @output[/^\d+ runs, .*$/] || "did not run to its end (#{@status || "it was ended after #{@seconds.round} s"})"

    def crashed?
      return false if @status.nil? # it hung, and Limited ended it
      return !known?(@output) if @status.signaled?

      failures.any? { |text| text.match?(CRASH) && !text.match?(HANG) && !known?(text) }
    end

    def known?(text) = KNOWN.any? { |pattern, _| text.match?(pattern) }
  end
end

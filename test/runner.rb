# frozen_string_literal: true

require "etc"

# Runs test files, each (or some that share one) in a process of its own:
#
# 1. all of them, some at a time: one more than there are processors. Tests mostly wait, so another one starts while a part of
#    the processors' time is unused, or while other programs use more of it than the tests
# 2. the tests that measure time (marked `alone`), with nothing beside them
# 3. the files that failed, with nothing beside them, up to twice
#
# A file that failed three times is broken, and so is one that crashed, in which a sanitizer found something, or that lost or
# repeated a message: its run fails. A file that passed in the end is flaky: see Flaky.
class Runner
end

require_relative "runner/attempt"
require_relative "runner/durations"
require_relative "runner/flaky"
require_relative "runner/processors"

class Runner
  TRIES = 3
  JOBS = Etc.nprocessors + 1
  MOST = Etc.nprocessors * 3 # processes
  MOST_QUICK = Etc.nprocessors * 5 # quick tests have long time limits and mostly wait
  IDLE = 0.15 # share of the processors' time
  FEW = 0.4   # the same, used by tests
  LOOK = 0.5 # seconds between looks at it

  # @param parts [Array<Array<String>>] the files of each process
  # @param jobs [Integer] how many processes run at once
  # @param most [Integer] how many while the processors are idle
  def initialize(parts, jobs: JOBS, most: [jobs, MOST].max, tries: TRIES, durations: Durations.new, flaky: Flaky.new)
    @parts = parts
    @jobs = jobs
    @most = most
    @tries = tries
    @durations = durations
    @flaky = flaky
    @counts = Hash.new(0)
    @lock = Mutex.new
  end

  # @return [Boolean] whether nothing is broken; flaky files are for Flaky#judge
  def call
    attempts = run_together + run_alone
    @durations.save
    broken = attempts.reject(&:passed?).filter_map { |attempt| retried(attempt) }
    broken.each { |attempt| puts "", "---- #{attempt}", attempt.output }
    puts "", "broken:", broken.map { |attempt| "#{attempt}\n#{attempt.brief}" } if broken.any?
    # The form of this line is what programs that read a CI's output know.
    puts format("%<passed>d passed, %<failed>d failed, %<skips>d skipped", @counts)
    broken.empty?
  end

  private

  def run_together
    queue = Thread::Queue.new
    @parts.sort_by { |files| -@durations.of(files) }.each { |files| queue << files }
    queue.close
    workers = Array.new(@jobs) { Thread.new { run_from(queue) } }
    processors = Processors.new
    until queue.empty? || @most == @jobs
      workers << Thread.new { run_from(queue) } if room?(processors.shares) && workers.count(&:alive?) < @most
      sleep LOOK
    end
    workers.flat_map(&:value)
  end

  def room?(shares) = shares && (shares.idle > IDLE || shares.tests < FEW)

  def run_from(queue)
    attempts = []
    while (files = queue.pop)
      attempts << run(files, "together").tap { |attempt| @durations.note(attempt) }
    end
    attempts
  end

  def run_alone = @parts.map { |files| files.select { |file| alone?(file) } }.reject(&:empty?).map { |files| run(files, "alone") }

  def alone?(file) = File.foreach(File.expand_path(file, Attempt::ROOT)).any?(/^\s*alone\b/)

  def run(files, phase)
    Attempt.run(files, phase:).tap { |attempt| @lock.synchronize { report(attempt, phase) } }
  end

  def report(attempt, phase)
    puts "#{attempt}#{" (alone)" if phase == "alone"}"
    puts attempt.brief unless attempt.passed?
    counts = attempt.counts
    failed = counts.fetch("failures", 0) + counts.fetch("errors", 0)
    @counts[:passed] += counts.fetch("runs", 0) - failed - counts.fetch("skips", 0)
    @counts[:skips] += counts.fetch("skips", 0)
    @counts[:failed] += attempt.passed? ? 0 : [failed, 1].max
  end

  # @return [Attempt, nil] nil if the file passes now
  def retried(first)
    attempts = [first]
    until attempts.last.passed? || attempts.size == @tries || attempts.last.grave
      puts "trying again alone: #{first.files.join(" ")}"
      attempts << attempts.last.again
      puts attempts.last
    end
    if (grave = attempts.last.grave)
      puts "#{grave}: not tried again"
    elsif attempts.last.passed?
      @flaky.keep(attempts[..-2])
      recount(first)
      return
    end
    attempts.last
  end

  # What passed in the end has not failed.
  def recount(first)
    failed = [first.counts.values_at("failures", "errors").compact.sum, 1].max
    @counts[:failed] -= failed
    @counts[:passed] += failed
  end
end

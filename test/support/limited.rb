# frozen_string_literal: true

require "open3"
require_relative "slowness"

# Runs other programs with a time limit, which grows with the slowness of the machine. A program that hangs is ended, and the
# error reports where. Open3 alone waits for ever, even when a test's own limit interrupts it.
module Limited
  LONGEST = 100 # seconds by default: less than a test's limit (PenstockTest::LONGEST)
  PATIENCE = 5 # seconds for the program to end, and for its output to arrive

  # The program had to be ended. The message has its threads' positions and its output. The end of the output, on stderr, is
  # Ruby's own report.
  class TooLong < StandardError; end

  # Like Open3's.
  # @return [Array(String, String, Process::Status)]
  def self.capture3(*command, seconds: LONGEST, **options)
    Open3.popen3(*command, rlimit_core: 0, **options) do |input, output, errors, process|
      input.close
      capture([output, errors], process, seconds)
    end
  end

  # @return [Array(String, Process::Status)] with stdout and stderr together
  def self.capture2e(*command, seconds: LONGEST, **options)
    Open3.popen2e(*command, rlimit_core: 0, **options) do |input, output, process|
      input.close
      capture([output], process, seconds)
    end
  end

  # @param process [Process::Waiter]
  # @return [String, nil] a description of the hang, if the program had to be ended
  def self.wait(process, seconds)
    deadline = Slowness.deadline(seconds)
    return if Slowness.join(process, seconds)

    "still ran after #{deadline}, its threads in\n#{threads(process.pid)}"
  ensure
    finish(process) if process.alive?
  end

  class << self
    private

    def capture(outputs, process, seconds)
      texts = outputs.map { +"" }
      readers = outputs.zip(texts).map { |io, text| reader(io, text) }
      trouble = wait(process, seconds)
      readers.each { |reader| reader.join(PATIENCE) } # a process that it started may keep the pipe open
      raise TooLong, [trouble, *texts].join("\n") if trouble

      [*texts.map(&:dup), process.value]
    end

    def reader(output, text)
      Thread.new do
        Thread.current.report_on_exception = false # the stream is closed when no thread waits for it any more
        output.each_line { |line| text << line }
      end
    end

    # Ruby, and a sanitizer, print their positions when they get this signal. Ruby prints nothing at SIGABRT.
    def finish(process)
      Process.kill(:SEGV, process.pid)
      process.join(PATIENCE) or Process.kill(:KILL, process.pid)
    rescue Errno::ESRCH
      nil # it has just ended by itself
    end

    # The name of each thread, and its system call: threads at the same address wait for the same lock.
    def threads(pid)
      Dir.glob("/proc/#{pid}/task/*").map do |task|
        %w[comm wchan syscall].map { |file| File.read(File.join(task, file)).chomp }.join("  ")
      rescue SystemCallError => e
        e.message
      end.join("\n")
    end
  end
end

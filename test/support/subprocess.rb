# frozen_string_literal: true

require "rbconfig"
require_relative "limited"

# Separate programs, for what a process does when it forks or ends.
module Subprocess
  LIBRARY = File.expand_path("../../lib", __dir__)
  LIBRARIES = [ENV.fetch("PENSTOCK_INSTRUMENTED", nil), LIBRARY].compact.freeze # see test/proofs/instrumented.rb

  INTERNAL = File.join(__dir__, "internal.rb")

  # Runs a Ruby program with Penstock loaded; `arguments` are its ARGV.
  # @return [Array(String, String, Process::Status)] its output on stdout and stderr, and its status
  def ruby(program, *arguments, seconds: 30)
    includes = LIBRARIES.flat_map { |path| ["-I", path] }
    command = [RbConfig.ruby, "-w", *includes, "-r", "penstock", "-r", INTERNAL, "-e", program, *arguments]
    Limited.capture3(*command, seconds:)
  end

  # Like `ruby`, but the program has to succeed.
  # @return [String] its output on stdout
  def ruby!(program, *arguments, **options)
    output, errors, status = ruby(program, *arguments, **options)
    assert status.success?, "#{status}: #{errors}"
    output
  end

  # Runs the block in a forked child and returns its result.
  def in_child(seconds = 20)
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      result = begin
        yield
      rescue Exception => e # rubocop:disable Lint/RescueException -- whatever it is, the parent has to see it
        "#{e.class}: #{e.message}\n#{e.backtrace.first(5).join("\n")}"
      end
      writer.write(Marshal.dump(result))
      writer.close
      exit!(0)
    end
    writer.close
    reaper = Process.detach(pid)
    trouble = Limited.wait(reaper, seconds) and flunk("the child #{trouble}")
    assert reaper.value.success?, "the child ended with #{reaper.value}"
    Marshal.load(reader.read) # rubocop:disable Security/MarshalLoad -- our own child
  ensure
    reader&.close
  end
end

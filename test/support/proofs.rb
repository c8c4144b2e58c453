# frozen_string_literal: true

require "open3"

# Runs long commands one after the other, even if some fail. Each has a header, its output, its time and its last line. A table
# comes at the end. Used by rake proofs.
class Proofs
  Result = Struct.new(:name, :passed, :seconds, :last) do
    def state = passed ? "passed" : "FAILED"
    def to_s = format("%<state>s %<seconds>8.1f s  %<name>-28s %<last>s", state:, seconds:, name:, last:)
  end

  # @param commands [Hash{String => Array<String>}] by name
  # @param output [IO]
  def initialize(commands, output = $stdout)
    @commands = commands
    @output = output
  end

  # @param only [Array<String>] parts of names; empty: all
  # @return [Boolean] whether all of them succeeded
  # @raise [ArgumentError] if no name has one of the parts
  def run(only = [])
    results = chosen(only).map { |name, command| prove(name, command) }
    @output.puts("", "==== proofs", results)
    results.all?(&:passed)
  end

  private

  def chosen(only)
    unknown = only.reject { |part| @commands.keys.any? { |name| name.include?(part) } }
    raise ArgumentError, "No proof has #{unknown.join(", ")} in its name. There are #{@commands.keys.join(", ")}." if unknown.any?

    only.empty? ? @commands : @commands.select { |name, _| only.any? { |part| name.include?(part) } }
  end

  def prove(name, command)
    @output.puts("", "==== #{name}: #{command.join(" ")}")
    start = now
    last, passed = stream(command)
    Result.new(name, passed, now - start, last).tap { |result| @output.puts("---- #{result}") }
  end

  # @return [Array(String, Boolean)] its last line that is not empty, and whether it succeeded
  def stream(command)
    last = ""
    Open3.popen2e(*command) do |input, output, process|
      input.close
      output.each_line(chomp: true) do |line|
        @output.puts(line)
        last = line unless line.strip.empty?
      end
      [last, process.value.success?]
    end
  rescue SystemCallError => e
    [e.message, false]
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

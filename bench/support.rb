# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require "rbconfig"

# What the scenarios share: a cluster in a process of its own, the C baseline, rounds taken in turn, and their table.
module Bench
  ROOT = File.expand_path("..", __dir__)
  # The same for both sides, idempotence as Penstock has it by default; the rest are librdkafka's defaults.
  SETTINGS = { "socket.nagle.disable" => true, "enable.idempotence" => true, "log_level" => 3 }.freeze

  module_function

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def median(values)
    sorted = values.sort
    middle = sorted.size / 2
    sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
  end

  # An embedded cluster in a process of its own, so that its work is the same burden to both sides.
  def with_embedded_cluster
    program = "$stdout.sync = true; puts Penstock::EmbeddedCluster.new(brokers: 1).bootstrap_servers; $stdin.read"
    command = [RbConfig.ruby, "-I", File.join(ROOT, "lib"), "-r", "penstock", "-e", program]
    Open3.popen2(*command) { |_input, output, _process| yield output.gets.chomp }
  end

  def progress(text)
    $stderr.print "\r\e[K#{text}" if $stderr.tty?
  end

  # @return [Numeric] what `percent` of the values do not exceed
  def percentile(values, percent) = values.sort[((values.size - 1) * percent / 100.0).ceil]

  # @return [Numeric] the number with no more than so many digits that count
  def significant(number, digits)
    return number if number.is_a?(Integer) || number.zero?

    number.round(digits - 1 - Math.log10(number.abs).floor)
  end

  # @return [String] bench/NAME.c, compiled when it changed
  def program(name, *flags)
    source = File.join(__dir__, "#{name}.c")
    program = File.join(ROOT, "tmp", "bench", name)
    return program if File.exist?(program) && File.mtime(program) > File.mtime(source)

    FileUtils.mkdir_p(File.dirname(program))
    flags += `pkg-config --cflags --libs rdkafka`.split
    system("cc", "-O2", "-pthread", source, "-o", program, *flags) or abort "bench/#{name}.c does not compile"
    program
  end

  # bench/baseline.c, running rounds one by one when told to.
  class Baseline
    def initialize(scenario, servers, topic, producers:, messages:)
      settings = SETTINGS.flat_map { |name, value| ["--set", "#{name}=#{value}"] }
      settings.push("--producers", producers.to_s) if scenario == "batch"
      @input, @output, @process = Open3.popen2(Bench.program("baseline"), scenario, "--bootstrap", servers, "--topic", topic,
                                               "--messages", messages.to_s, *settings, "--stdin")
      abort "bench/baseline.c did not start" unless @output.gets&.chomp == "ready"
    end

    # @return [Float] seconds
    def round
      @input.puts
      @input.flush
      JSON.parse(@output.gets || abort("bench/baseline.c ended")).fetch("seconds")
    end

    def close
      @input.close
      @process.value
    end
  end

  # Runs two sides in turn, A B A B, and compares the medians of their rounds.
  # @return [Hash] the row of the table
  def compare(name, messages, rounds, baseline, penstock)
    seconds = { baseline: [], penstock: [] }
    rounds.times do |i|
      progress "#{name}: round #{i + 1} of #{rounds}"
      GC.start # what earlier rounds left behind is not this one's burden
      seconds[:baseline] << baseline.call
      GC.start
      seconds[:penstock] << penstock.call
    end
    progress ""
    rates = seconds.transform_values { |values| messages / median(values) }
    { name:, messages:, rounds:, baseline: rates[:baseline].round, penstock: rates[:penstock].round,
      ratio: (rates[:penstock] / rates[:baseline]).round(2),
      spread: seconds.transform_values { |values| values.minmax.map { |value| (messages / value).round }.reverse } }
  end
end

# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require "rbconfig"

# What all benchmarks share.
module Bench
  ROOT = File.expand_path("..", __dir__)
  # The same for all sides, set explicitly so that no client's own default decides. Only librdkafka has the last two.
  SETTINGS = { "acks" => "all", "enable.idempotence" => true, "linger.ms" => 5, "batch.size" => 1_000_000,
               "compression.type" => "none", "max.in.flight.requests.per.connection" => 5, "socket.nagle.disable" => true,
               "log_level" => 3 }.freeze

  module_function

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def median(values)
    sorted = values.sort
    middle = sorted.size / 2
    sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
  end

  # An embedded cluster in a separate process, so that its work burdens both sides equally.
  def with_embedded_cluster
    command = [RbConfig.ruby, "-I", File.join(ROOT, "lib"), "-r", "penstock", "-e", EMBEDDED_CLUSTER]
    Open3.popen2(*command) do |input, output, _process|
      @embedded = [input, output]
      yield output.gets.chomp
    end
  end

  # Makes each topic of its standard input, as "name partitions".
  EMBEDDED_CLUSTER = <<~RUBY
    $stdout.sync = true
    cluster = Penstock::EmbeddedCluster.new(brokers: 1)
    puts cluster.bootstrap_servers
    while (name, partitions = $stdin.gets&.split)
      cluster.create_topic(name, partitions: Integer(partitions))
      puts name
    end
  RUBY

  def create_topic(servers, name, partitions, embedded:)
    if embedded
      input, output = @embedded
      input.puts "#{name} #{partitions}"
      return output.gets
    end
    program = 'Penstock::Admin.new("bootstrap.servers": ARGV[0]).create_topic(ARGV[1], partitions: Integer(ARGV[2]))'
    created = system(RbConfig.ruby, "-I", File.join(ROOT, "lib"), "-r", "penstock", "-e", program, servers, name, partitions.to_s)
    created or abort "cannot create the topic #{name}"
  end

  def progress(text)
    $stderr.print "\r\e[K#{text}" if $stderr.tty?
  end

  # @return [Numeric] the value that `percent` of the values do not exceed
  def percentile(values, percent) = values.sort[((values.size - 1) * percent / 100.0).ceil]

  # @return [Numeric] the number rounded to that many significant digits
  def significant(number, digits)
    return number if number.is_a?(Integer) || number.zero?

    number.round(digits - 1 - Math.log10(number.abs).floor)
  end

  # @return [String] the compiled program of this C file, which is recompiled after a change
  def compile(source, *flags)
    program = File.join(ROOT, "tmp", "bench", File.basename(source, ".c"))
    return program if File.exist?(program) && File.mtime(program) > File.mtime(source)

    FileUtils.mkdir_p(File.dirname(program))
    flags += `pkg-config --cflags --libs rdkafka`.split
    unfinished = "#{program}.#{Process.pid}" # another process may start the program, or compile it too
    system("cc", "-O2", "-pthread", source, "-o", unfinished, *flags) or
      abort "#{source.delete_prefix("#{ROOT}/")} does not compile"
    File.rename(unfinished, program)
    program
  end
end

# frozen_string_literal: true

require "fileutils"
require_relative "limited"

# A C program of test/c, or of another folder, linked with the native core without Ruby, or with a part of the core that stands
# alone. It is built with gcc's sanitizers: "address", "thread", "undefined" or "address,undefined". It is in tmp/native, and
# rebuilt when a source is newer.
class NativeProgram
  ROOT = File.expand_path("../..", __dir__)
  OUTPUT = File.join(ROOT, "tmp", "native-#{RUBY_VERSION}") # several systems may share the tree
  FLAGS = %w[-std=gnu11 -g -O1 -Wall -Wextra -Werror -Wno-tsan -fno-omit-frame-pointer -pthread].freeze
  INCLUDES = %w[ext/penstock ext/penstock/core].flat_map { |directory| ["-I", File.join(ROOT, directory)] }.freeze
  ADDRESS = { "ASAN_OPTIONS" => "detect_leaks=1:detect_stack_use_after_return=1" }.freeze
  UNDEFINED = { "UBSAN_OPTIONS" => "print_stacktrace=1" }.freeze
  SANITIZERS = {
    "address" => [[], ADDRESS],
    # ThreadSanitizer supports only POSIX threads.
    "thread" => [%w[test/c/c11_threads.c], { "TSAN_OPTIONS" => "exitcode=0:history_size=4:second_deadlock_stack=1" }],
    "undefined" => [[], UNDEFINED],
    "address,undefined" => [[], { **ADDRESS, **UNDEFINED }]
  }.freeze
  Result = Struct.new(:output, :status, :reports) do
    # @return [Boolean] whether it succeeded without a report
    def passed? = status.success? && reports.empty?
  end

  class Failed < StandardError; end

  # @param source [String] of test/c without ".c", or a path
  # @param alone [String, nil] the sources that it needs, without librdkafka; nil: the whole core, with librdkafka
  # @param portable [Boolean] builds as on a system other than Linux: without futex and eventfd
  def initialize(source, sanitizer, alone: nil, portable: false)
    @sanitizer = sanitizer
    more, @env = SANITIZERS.fetch(sanitizer)
    core = Dir[File.join(ROOT, "ext/penstock", alone || "core/**/*.c")]
    @sources = core + [source.include?("/") ? source : "test/c/#{source}.c", *more].map { |file| File.join(ROOT, file) }
    @libraries = alone ? [] : `pkg-config --cflags --libs rdkafka`.split
    @macros = portable ? ["-DPENSTOCK_PORTABLE"] : []
    @program = File.join(OUTPUT, "#{File.basename(source, ".c")}-#{sanitizer}#{"-portable" if portable}")
  end

  # @param within [Numeric] seconds
  # @return [Result]
  def run(*arguments, within: Limited::LONGEST)
    build unless built?
    output, status = Limited.capture2e(@env, @program, *arguments.map(&:to_s), seconds: within)
    Result.new(output, status, @sanitizer == "thread" ? ThreadReports.new(output).ours : [])
  end

  private

  def build
    FileUtils.mkdir_p(OUTPUT)
    flags = ["-fsanitize=#{@sanitizer}", *(["-fno-sanitize-recover=all"] if @sanitizer.end_with?("undefined"))]
    command = ["cc", *FLAGS, *@macros, *flags, *INCLUDES, *@sources, "-o", @program, *@libraries]
    output, status = Limited.capture2e(*command)
    raise Failed, output unless status.success?
  end

  def built?
    headers = Dir[File.join(ROOT, "{ext/penstock/**,test/c,test/message_pack/c}/*.h")]
    File.exist?(@program) && File.mtime(@program) > (@sources + headers).map { |file| File.mtime(file) }.max
  end

  # ThreadSanitizer's reports. librdkafka is not instrumented, so ThreadSanitizer does not see its atomics and reports them as
  # races. A report counts as librdkafka's if librdkafka alone did everything that it blames.
  class ThreadReports
    # Frees a message after the core has copied it, and has released it. librdkafka counts references with its atomics.
    FREED = /\n  Write of size .*?\n    #0 free .*?\n    #1 \S+ \S+ \(librdkafka.*?\n  Previous read .*?ps_fetched_copy /m
    # Which thread started the threads, or allocated the memory; where one has slept.
    CONTEXT = /^  (?:Thread|Location|Mutex|As if synchronized via sleep)\b(?!.*acquired)/

    def initialize(output)
      @reports = output.scan(/^WARNING: ThreadSanitizer: .*?^SUMMARY: [^\n]*$/m)
    end

    # @return [Array<String>]
    def ours = @reports.reject { |report| librdkafkas?(report) }

    private

    def librdkafkas?(report)
      return true if report.match?(FREED)

      stacks = report.split(/^$\n/).flat_map { |part| part.split(/^(?=  \S)/) }.grep(/^    #0/).grep_v(CONTEXT)
      culprits = stacks.map { |stack| stack.scan(/^    #\d+ .*/).find { |frame| !frame.match?(/libtsan|c11_threads\.c/) } }
      culprits.any? && culprits.all? { |frame| frame&.include?("librdkafka") }
    end
  end
end

# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require_relative "../support/limited"

# Runs the test files one after the other under a memory checker: ruby test/proofs/instrumented.rb asan|valgrind [FILE...]
#
# asan: the extensions are built with -fsanitize=address into tmp/asan, and the sanitizer is preloaded. Leaks are not reported,
# because Ruby frees nothing when it exits. valgrind: the extensions are built for debugging, in tmp/valgrind. A block that is
# definitely lost counts if one of Penstock's functions is in its allocation's backtrace.
class Instrumented
  ROOT = File.expand_path("../..", __dir__)
  EXTENSIONS = { "penstock" => "ext/penstock", "message_pack" => "ext/penstock/message_pack" }.freeze
  # Test files that cannot run under the tool, and why.
  EXCLUDED = {
    "fork_test.rb" => "gcc 12's sanitizer leaves its allocator's lock held in a child that is forked while others allocate",
    "core_test.rb" => "builds and checks its own program",
    "message_pack_engine_test.rb" => "the same",
    "static_checks_test.rb" => "runs no code of the extension",
    "allocations_test.rb" => "preloads its own library"
  }.freeze
  LONGEST = 3_600 # seconds for one file
  # Tests that measure memory. The tool adds to it, and keeps it after it was freed.
  NOT_RUN = %w[
    test_finished_waits_leak_no_memory test_a_listener_that_falls_behind_costs_no_memory
    test_100_000_handles_without_a_waiting_thread_leak_no_memory
    test_a_kept_handle_keeps_only_its_own_chunk_of_a_large_batch
  ].freeze
  # Under valgrind, 20 to 50 times slower: the files that use each part of the extension and do not measure time.
  CHOSEN = %w[
    producer/message producer/delivery_handle errors/error config/config testing/embedded_cluster producer/bytes
    producer/tombstone instrumentation/tags
  ].freeze

  def self.for(tool) = { "asan" => Asan, "valgrind" => Valgrind }.fetch(tool)

  def initialize(files)
    @files = files.empty? ? default_files : files
    @directory = File.join(ROOT, "tmp", name)
  end

  # @return [Boolean]
  def call
    build
    failed = @files.reject { |file| run(file) }
    puts "#{title}: #{@files.size - failed.size} of #{@files.size} test files passed (there are #{all.size}), " \
         "#{@faults} faults in memory"
    failed.empty?
  end

  private

  def run(file)
    library = File.join(@directory, "lib")
    arguments = ["-w", "-I#{library}", "-Ilib", "-Itest", file, "-e", "/\\A(#{NOT_RUN.join("|")})\\z/"]
    output, status = Limited.capture2e({ "PENSTOCK_INSTRUMENTED" => library, **environment }, *command, *arguments,
                                       chdir: ROOT, seconds: LONGEST)
    counts = output[/^\d+ runs, .*$/] || "did not run to its end"
    found = faults(output)
    @faults = (@faults || 0) + found.size
    passed = status.success? && found.empty?
    puts "#{passed ? "passed" : "FAILED"} #{file}: #{counts}"
    puts why(output, found) unless passed
    passed
  end

  def why(output, found)
    lines = found + output.scan(/^ +\d+\) (?:Failure|Error):\n(?:.*\n){1,8}/)
    lines.empty? ? output.lines.last(5) : lines
  end

  def build
    FileUtils.rm_rf(@directory) # an earlier run may have used other flags
    FileUtils.mkdir_p(File.join(@directory, "lib/penstock"))
    EXTENSIONS.each { |name, sources| build_one("#{name}.#{RbConfig::CONFIG["DLEXT"]}", sources) }
  end

  def build_one(extension, sources)
    FileUtils.mkdir_p(folder = File.join(@directory, "build", extension))
    Dir.chdir(folder) do
      system(RbConfig.ruby, File.join(ROOT, sources, "extconf.rb"), "--enable-debug", out: File::NULL, exception: true)
      system("make", "-s", "CFLAGS=-fPIC -std=gnu11 -fvisibility=hidden #{optimisation}",
             "LDSHARED=#{RbConfig::CONFIG["LDSHARED"]} #{link}", out: File::NULL, exception: true)
      check_build(extension)
      FileUtils.cp(extension, File.join(@directory, "lib/penstock"))
    end
  end

  def check_build(_extension) = nil

  def all = Dir.glob("test/**/*_test.rb", base: ROOT).grep_v(%r{^test/integration/}).sort

  def environment = {}

  # The address sanitizer, without stacks: an exception of Ruby leaves functions in a way that the sanitizer does not see, so its
  # marks on their stack frames stay. core_test.rb checks the core's stacks. The sanitizer keeps freed memory for a while in
  # order to report later uses. The limit is below what the tests that look for leaks allow.
  class Asan < Instrumented
    OPTIONS = "detect_leaks=0:detect_stack_use_after_return=0:use_sigaltstack=0:allow_user_segv_handler=1:handle_segv=0:" \
              "abort_on_error=1:symbolize=1:quarantine_size_mb=64"

    def name = "asan"
    def title = "address sanitizer"
    def default_files = all.reject { |file| EXCLUDED.key?(File.basename(file)) }
    def optimisation = "-O1 -g -fsanitize=address --param asan-stack=0 -fno-omit-frame-pointer"
    def link = "-fsanitize=address"
    def command = [RbConfig.ruby]

    def environment
      { "LD_PRELOAD" => `gcc -print-file-name=libasan.so`.chomp.then { |path| File.realpath(path) }, "ASAN_OPTIONS" => OPTIONS,
        "PENSTOCK_TEST_TIMEOUT" => "300" }
    end

    def check_build(extension)
      `nm -D #{extension}`.include?("__asan_report") or raise "#{extension} was built without the sanitizer"
    end

    def faults(output) = output.scan(/^==\d+==ERROR: AddressSanitizer.*?(?=^==\d+==ABORTING|\z)/m)
  end

  # Memcheck.
  class Valgrind < Instrumented
    OURS = /\((?:#{Dir.glob("ext/penstock/**/*.c", base: ROOT).map { |file| File.basename(file) }.join("|")}):\d+\)/

    def name = "valgrind"
    def title = "valgrind"
    def default_files = CHOSEN.map { |name| "test/#{name}_test.rb" }
    def optimisation = "-O1 -g"
    def link = ""
    def environment = { "PENSTOCK_TEST_TIMEOUT" => "600" }

    def command
      ["valgrind", "--quiet", "--num-callers=25", "--leak-check=full", "--show-leak-kinds=definite",
       "--errors-for-leak-kinds=none", "--undef-value-errors=no",
       "--child-silent-after-fork=yes", # forked children report what they inherited as lost
       "--max-stackframe=8400000", "--suppressions=#{File.join(__dir__, "valgrind.supp")}",
       RbConfig.ruby]
    end

    # Invalid accesses, and lost blocks with one of Penstock's functions among the callers. Ruby frees what it allocated for
    # Penstock.
    def faults(output)
      blocks = output.gsub(/^==\d+== ?/, "").split(/^$\n/)
      blocks.grep(/\A(?:Invalid|Mismatched|\S.* (?:is|are) definitely lost|Source and destination overlap|Process terminating)/)
            .grep(OURS).grep_v(/ definitely lost .*\n +at .*\n +by .*libruby/)
    end
  end
end

exit Instrumented.for(ARGV.fetch(0)).new(ARGV.drop(1)).call

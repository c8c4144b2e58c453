# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "message_pack_engine"

# Coverage-guided fuzzing of MessagePack's engines with test/message_pack/c/fuzz.c, clang and its libFuzzer, under
# AddressSanitizer and UndefinedBehaviorSanitizer: ruby test/proofs/message_pack_fuzz.rb [SECONDS]
#
# It starts with the corpus. It ends with a corpus that covers no less and is as small as libFuzzer makes it. An input that
# reveals a problem stays in tmp/fuzz.
module MessagePackFuzz
  OUTPUT = File.join(NativeProgram::ROOT, "tmp/fuzz")
  PROGRAM = File.join(OUTPUT, "fuzz")
  FLAGS = %w[-std=gnu11 -g -O1 -Wall -Wextra -Werror -fno-omit-frame-pointer -Iext/penstock -DLIBFUZZER
             -fsanitize=address,undefined -fno-sanitize-recover=all].freeze
  LIMITS = %w[-timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=64 -max_len=512].freeze # seconds, memory and bytes of one input

  module_function

  def build
    system("bin/setup", "--fuzz", "--no-build", "--quiet", chdir: NativeProgram::ROOT) or exit 1
    FileUtils.mkdir_p(OUTPUT)
    engines = Dir["ext/penstock/#{MessagePackEngine::ENGINES}", base: NativeProgram::ROOT]
    objects = engines.map { |source| object(source, "-fsanitize=fuzzer-no-link") } # only the engines count as covered code
    run("clang", *FLAGS, "-fsanitize=fuzzer", *objects, object("test/message_pack/c/fuzz.c"), "-o", PROGRAM, within: 100)
  end

  def object(source, *flags)
    File.join(OUTPUT, File.basename(source, ".c")).concat(".o").tap do |object|
      run("clang", *FLAGS, *flags, "-c", source, "-o", object, within: 100)
    end
  end

  # @return [String]
  def run(*command, within:)
    output, status = Limited.capture2e(*command, chdir: NativeProgram::ROOT, seconds: within)
    return output if status.success?

    puts output[-20_000..] || output
    abort "fuzz: #{File.basename(command.first)} ended with #{status.exitstatus || status}: see above, and #{OUTPUT}"
  end

  def fuzz(seconds, found)
    run(PROGRAM, *LIMITS, "-max_total_time=#{seconds}", "-print_final_stats=1", "-artifact_prefix=#{OUTPUT}/",
        found, MessagePackEngine::CORPUS, within: seconds + 120)
  end

  # Replaces the corpus by those old and new inputs that cover something which no smaller input covers.
  def minimise(found)
    Dir.mktmpdir do |kept|
      run(PROGRAM, *LIMITS, "-set_cover_merge=1", kept, found, MessagePackEngine::CORPUS, within: 600)
      FileUtils.rm_f(MessagePackEngine.corpus)
      FileUtils.cp(Dir[File.join(kept, "*")], MessagePackEngine::CORPUS)
    end
  end

  def call(seconds)
    build
    Dir.mktmpdir do |found|
      output = fuzz(seconds, found)
      minimise(found)
      inputs = output[/number_of_executed_units: (\d+)/, 1]
      covered, features = output.scan(/ cov: (\d+) ft: (\d+)/).last
      puts "fuzz: #{inputs} inputs in #{seconds} s, #{covered} edges and #{features} features of the engines covered, " \
           "0 findings; #{kept}"
    end
  end

  def kept
    "#{MessagePackEngine.corpus.size} inputs, #{MessagePackEngine.corpus.sum { |file| File.size(file) }} bytes, kept"
  end
end

MessagePackFuzz.call(Integer(ARGV.fetch(0, "600"))) if $PROGRAM_NAME == __FILE__

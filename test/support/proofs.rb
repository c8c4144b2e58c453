# frozen_string_literal: true

require "open3"
require_relative "changed_paths"

# Runs long commands one after the other, even if some fail. Each has a header, its output, its time and its last line. A table
# comes at the end. Used by rake proofs.
#
#   ruby test/support/proofs.rb --changed-since REF
#
# prints the short forms of the proofs (test/proofs/*_test.rb) that the changes since a commit concern, one a line.
class Proofs
  # The tasks of rake proofs, without "test:". docs/evidence/safety.md has what each printed last.
  TASKS = %w[
    short_proofs mutations fuzz msgpack_engine asan tsan ubsan valgrind message_pack_storm message_pack_rounds
    message_pack_differential ractors fork_and_exit overload allocations gc gvl ffi hostile_broker
    admin_loops admin_scale consumer_storm consumer_threads consumer_closing consumer_backlog exactly_once_storm
  ].freeze

  # The short forms, without "test/proofs/" and "_test.rb".
  SHORT = Dir.glob("test/proofs/*_test.rb", base: ChangedPaths::ROOT).map { |file| File.basename(file, "_test.rb") }.sort.freeze

  # Forms of names: what each part of the code concerns.
  NATIVE = %w[mutations asan valgrind gc*].freeze
  CORE = %w[core tsan ubsan allocations fork_locks gvl hostile_broker].freeze
  CALLS = %w[allocations gvl hostile_broker].freeze
  CONSUMER = %w[consumer_* app_storm exactly_once_storm].freeze
  PRODUCER = %w[broker_failures overload fiber_soak ractors fork_and_exit exactly_once_storm ffi*].freeze
  ADMIN = %w[admin_loops admin_scale admin_brokers].freeze
  CODEC = %w[message_pack* msgpack_engine fuzz].freeze

  # Which proofs a path concerns. All rows that match count. Code of the library without a row concerns all proofs.
  CONCERNED = {
    "ext/penstock/core/consume/**/*" => [*NATIVE, *CORE, *CONSUMER],
    "ext/penstock/core/produce/**/*" => [*NATIVE, *CORE, *PRODUCER],
    "ext/penstock/core/admin/**/*" => [*NATIVE, *CORE, *ADMIN],
    "ext/penstock/message_pack/**/*" => [*NATIVE, *CODEC],
    "ext/penstock/shared/shared.h" => [*NATIVE, *CALLS, *CODEC],
    "ext/penstock/ruby/{consume*,poll_methods,batch,ledger_class}.c" => [*NATIVE, *CONSUMER, *CALLS],
    "ext/penstock/ruby/{produce*,message,handover,queue_space,delivery_handle,transaction_methods,shareable_producer}.c" =>
      [*NATIVE, *PRODUCER, *CALLS],
    "ext/penstock/ruby/admin_*.c" => [*NATIVE, *CALLS, *ADMIN],
    "lib/penstock/{consumer,consumer/**/*}.rb" => [*CONSUMER, *CALLS, "mutations", "gc*"],
    "lib/penstock/{producer,producer/**/*}.rb" => [*PRODUCER, *CALLS, "mutations", "gc*"],
    "lib/penstock/{admin,admin/**/*}.rb" => [*CALLS, *ADMIN, "mutations"],
    "lib/penstock/{app,app/**/*}.rb" => %w[app_storm consumer_storm mutations],
    "lib/penstock/{message_pack,message_pack/**/*}.rb" => [*CODEC, "mutations"],
    "lib/penstock/{errors,errors/**/*}.rb" => %w[mutations gc* hostile_broker],
    "lib/penstock/{instrumentation,instrumentation/**/*}.rb" => [*PRODUCER, "mutations", "gc*"],
    "lib/penstock/{cli,doctor}{.rb,/**/*.rb}" => %w[mutations],
    "lib/penstock/{config,testing}{.rb,/**/*.rb}" => %w[mutations gc_classes],
    "lib/penstock/version.rb" => [],
    "test/proofs/mutations/*" => %w[mutations],
    "test/ext/**/*" => %w[mutations ffi*],
    "test/c/core_*" => %w[core tsan ubsan],
    "test/message_pack/c/*" => %w[message_pack_engine msgpack_engine fuzz],
    "test/message_pack/corpus/*" => %w[message_pack_engine fuzz],
    "test/message_pack/support/*" => CODEC,
    "test/proofs/support/ractor_*" => %w[ractors]
  }.freeze
  LIBRARY = "{ext,lib}/**/*"

  class << self
    # @param paths [Array<String>] changed files, relative to the repository
    # @return [Array<String>] the names of the tasks that prove something of them
    def tasks(paths)
      tasks = TASKS & concerned(paths)
      short_forms(paths).empty? ? tasks : ["short_proofs", *tasks].uniq
    end

    # @return [Array<String>] the files of the short forms of such proofs
    def short_forms(paths) = (SHORT & concerned(paths)).map { |name| "test/proofs/#{name}_test.rb" }

    private

    def concerned(paths)
      forms = paths.flat_map { |path| forms_of(path) }.uniq
      (TASKS | SHORT).select { |name| forms.any? { |form| File.fnmatch(form, name) } }
    end

    def forms_of(path)
      rows = CONCERNED.select { |pattern, _| match?(pattern, path) }.values
      return ["*"] if rows.empty? && match?(LIBRARY, path)

      rows.flatten + using(path)
    end

    def match?(pattern, path) = File.fnmatch(pattern, path, File::FNM_PATHNAME | File::FNM_EXTGLOB)

    # @return [Array<String>] the proof that the file belongs to, and those whose programs name the file or its directory
    def using(path)
      directory, name = path.match(%r{\Atest/(proofs/support|proofs|support|c)/([^./]+)})&.captures
      return [] unless name

      named = directory.end_with?("support") ? %r{support/#{name}\b} : /"#{name}"/
      users = programs.select { |_, text| text.match?(named) }.keys
      directory == "proofs" ? [name.delete_suffix("_test"), *users] : users
    end

    # @return [Hash{String => String}] what runs each proof, by its name
    def programs
      @programs ||= Dir.glob("test/proofs/*.rb", base: ChangedPaths::ROOT).to_h do |file|
        [File.basename(file, ".rb").delete_suffix("_test"), File.read(File.join(ChangedPaths::ROOT, file))]
      end
    end
  end

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

if $PROGRAM_NAME == __FILE__
  abort "usage: ruby test/support/proofs.rb --changed-since REF" unless ARGV.size == 2 && ARGV.first == "--changed-since"
  begin
    puts Proofs.short_forms(ChangedPaths.since(ARGV.last))
  rescue ArgumentError => e
    abort e.message
  end
end

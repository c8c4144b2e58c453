# frozen_string_literal: true

require "fileutils"
require "optparse"
require "rbconfig"
require "tmpdir"
require_relative "../support/changed_paths"
require_relative "../support/limited"
require_relative "mutations/tags"

# Removes protections, one at a time, and checks that the named test fails without each.
#
#   ruby test/proofs/mutations.rb [--list] [--changed-since REF] [PART OF A NAME OR OF A TAG...]
#
# With --changed-since, only mutations of files that have changed since that commit.
# A mutation finds its line by a tag in the source: mutations/tags.rb. The mutations work on a copy of the tree, one after the
# other, and recompile what has changed. A mutation's test has to pass before the change, and to fail or crash after it. Races
# do not show in each run: `runs` is how often to try.
class Mutation
  ROOT = File.expand_path("../..", __dir__)
  COPIED = %w[ext lib test Rakefile penstock.gemspec rakelib exe].freeze
  SECONDS = 120 # for one run of a test: a test that hangs has failed

  @all = []

  class << self
    attr_reader :all

    # Defines the mutations that one test file shows. In the block, `without` defines one of them.
    # @param name [String] what their names begin with
    # @param shared [Hash] options that all of them have, such as :test
    def area(name, **shared, &block) = Area.new(name, shared).instance_exec(&block)

    # @return [Boolean] whether each mutation was found by its test
    def run(chosen)
      results = Dir.mktmpdir("penstock-mutation") do |path|
        tree = Tree.new(path)
        chosen.map { |mutation| mutation.run(tree).tap { |found, line| puts "#{found ? "found " : "MISSED"} #{line}" } }
      end
      found = results.count(&:first)
      puts "mutations: #{found} of #{chosen.size} protections, when removed, made their test fail"
      found == chosen.size
    end
  end

  # The mutations that one test file shows.
  Area = Struct.new(:name, :shared) do
    # By default, the tagged line is removed.
    # @param tag [Symbol]
    # @param protection [String] what the tagged line does
    # @param options [Hash] :by, code that replaces the line; :sub, a part of the line => its replacement; :before, code that
    #   is added before the line; :lines, how many lines, from the tagged one, are removed or replaced (1); :test, the test file;
    #   :only, the name of the test; :env, of the test, such as PENSTOCK_GC; :runs, how often the test may pass (1)
    def without(tag, protection, **options) = Mutation.all << Mutation.new(tag, "#{name}: #{protection}", **shared, **options)
  end

  attr_reader :tag, :name, :test

  def initialize(tag, name, test:, only:, env: {}, runs: 1, lines: 1, **change)
    @tag = tag
    @name = name
    @test = test
    @only = only
    @env = env
    @runs = runs
    @lines = lines
    @change = change
  end

  # @return [Array(Boolean, String)] whether the test failed, and a line about it
  def run(tree)
    test = [@test, @only, @env]
    return [false, "#{name}: #{@only} fails as it is\n#{tree.output}"] unless tree.passes_unchanged?(*test)

    failed_after = tree.with(mutated, at: file) { (1..@runs).find { !tree.passes?(*test) } }
    [!failed_after.nil?, "#{name}: #{@only} #{failed_after ? "fails (run #{failed_after})" : "passed #{@runs} times"}"]
  end

  # @return [String] what the command's arguments are compared with
  def label = "#{name} (#{tag})"

  # @return [String] the file with the protection
  def file = place.file

  # @return [String] the file without the protection
  def mutated = place.change(@lines) { |code| changed(code) }

  private

  def place = Tags.place(@tag)

  # @param code [String] the tagged lines without their indentation
  def changed(code)
    case @change
    in { by: } then by
    in { before: } then "#{before}\n#{code}"
    in { sub: }
      part, replacement = sub.first
      found = code.scan(part).size
      raise "#{name}: #{part.inspect} occurs #{found} times in #{code.inspect}" unless found == 1

      code.sub(part) { replacement }
    in {} then ""
    end
  end

  # The copy of the tree.
  class Tree
    attr_reader :output # of the latest test

    def initialize(path)
      @path = path
      @unchanged = {}
      COPIED.each { |part| FileUtils.cp_r(File.join(ROOT, part), path) if File.exist?(File.join(ROOT, part)) }
      FileUtils.rm_f(Dir[File.join(path, "lib/penstock/*.so")])
      compile
    end

    # Runs the block while the file has other content.
    def with(source, at:)
      file = File.join(@path, at)
      before = File.read(file)
      File.write(file, source)
      compile if at.start_with?("ext/")
      yield
    ensure
      File.write(file, before)
      compile if at.start_with?("ext/")
    end

    def passes_unchanged?(*test)
      @unchanged.fetch(test) { @unchanged[test] = passes?(*test) }
    end

    def passes?(file, only, env)
      command = [RbConfig.ruby, "-w", "-Ilib", "-Itest", file, "-n", only]
      @output, status = Limited.capture2e(env, *command, chdir: @path, seconds: SECONDS)
      raise "there is no #{only} in #{file}" if status.success? && @output.match?(/^0 runs/)

      status.success?
    rescue Limited::TooLong => e
      @output = e.message
      false
    end

    private

    def compile
      output, status = Limited.capture2e("rake", "compile", chdir: @path)
      raise "does not compile\n#{output}" unless status.success?
    end
  end
end

Dir[File.join(__dir__, "mutations", "*.rb")].sort.each { |file| require file }

if $PROGRAM_NAME == __FILE__
  list = changed = nil
  parts = OptionParser.new do |options|
    options.on("--list") { list = true }
    options.on("--changed-since REF") { |ref| changed = ChangedPaths.since(ref) }
  end.parse(ARGV)
  $stdout.sync = true
  chosen = Mutation.all.select { |mutation| parts.empty? || parts.any? { |part| mutation.label.include?(part) } }
  abort "no mutation has #{parts.join(" or ")} in its name or its tag" if chosen.empty?
  chosen = chosen.select { |mutation| changed.include?(mutation.file) } if changed
  if list then puts chosen.map(&:label)
  else
    exit Mutation.run(chosen)
  end
end

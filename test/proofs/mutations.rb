# frozen_string_literal: true

require "fileutils"
require "optparse"
require "rbconfig"
require "tmpdir"
require_relative "../support/limited"
require_relative "../support/rotation"

# Removes protections, one at a time, and checks that the named test fails without each.
#
#   ruby test/proofs/mutations.rb [--list] [--some N] [PART OF A NAME...]
#
# With --some, N of them, chosen by the commit's time. The mutations work on a copy of the tree, one after the other, and
# recompile what has changed. A mutation's test has to pass before the change, and to fail or crash after it. Races do not show in
# each run: `runs` is how often to try.
class Mutation
  ROOT = File.expand_path("../..", __dir__)
  COPIED = %w[ext lib test Rakefile penstock.gemspec rakelib exe].freeze
  SECONDS = 120 # for one run of a test: a test that hangs has failed

  @all = []

  class << self
    attr_reader :all

    # @param name [String] the protection, with the name that docs/evidence/safety.md uses
    # @param file [String] the file with the protection
    # @param from [String] the text that is removed: the file has it once, however it is formatted
    # @param to [String] the replacement
    # @param test [String] the test file
    # @param only [String] the name of the test
    # @param env [Hash{String => String}] for the test, such as PENSTOCK_GC
    # @param runs [Integer] how often the test may pass without the protection
    def define(name, **options) = @all << new(name, **options)

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

  attr_reader :name

  def initialize(name, file:, from:, test:, only:, to: "", env: {}, runs: 1)
    @name = name
    @file = file
    @from = from
    @to = to
    @test = test
    @only = only
    @env = env
    @runs = runs
  end

  # @return [Array(Boolean, String)] whether the test failed, and a line about it
  def run(tree)
    test = [@test, @only, @env]
    return [false, "#{name}: #{@only} fails as it is\n#{tree.output}"] unless tree.passes_unchanged?(*test)

    failed_after = tree.with(mutated, at: @file) { (1..@runs).find { !tree.passes?(*test) } }
    [!failed_after.nil?, "#{name}: #{@only} #{failed_after ? "fails (run #{failed_after})" : "passed #{@runs} times"}"]
  end

  # @return [String] the file without the protection
  def mutated
    source = File.read(File.join(ROOT, @file))
    found = source.scan(pattern).size
    raise "#{name}: the text to remove occurs #{found} times in #{@file}" unless found == 1

    source.sub(pattern) { @to }
  end

  # @return [Regexp] `from`, with any indentation and any line breaks: formatting does not hide a protection
  def pattern
    indented = @from.match?(/\A[ \t]{2,}/) ? "^\\s+" : ""
    text = indented.empty? ? @from : @from.lstrip
    /#{indented}#{text.split(/(\s+)/).map { |part| part.match?(/\A\s/) ? "\\s+" : Regexp.escape(part) }.join}/
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
  list = some = nil
  names = OptionParser.new do |options|
    options.on("--list") { list = true }
    options.on("--some N", Integer) { |number| some = number }
  end.parse(ARGV)
  chosen = Mutation.all.select { |mutation| names.empty? || names.any? { |part| mutation.name.include?(part) } }
  chosen = chosen.sample(some, random: Random.new(Rotation.number)) if some
  if list then puts chosen.map(&:name)
  else
    exit Mutation.run(chosen)
  end
end

# frozen_string_literal: true

require "fileutils"
require "json"

class Runner
  # Test files that failed and then passed: a folder with the output of their failed attempts, and the judgement on all of them.
  # Several runs (bin/test makes one for each Ruby) may write to one folder.
  class Flaky
    FOLDER = File.join(Attempt::ROOT, "tmp/flaky")
    PERMITTED = 3 # files

    def self.strict? = ENV["PENSTOCK_STRICT"] == "1"

    def initialize(folder = FOLDER)
      @folder = folder
    end

    # Earlier runs do not count any more.
    def forget = FileUtils.rm_rf(@folder)

    # @param failed [Array<Attempt>] of one file, before it passed
    def keep(failed)
      FileUtils.mkdir_p(@folder)
      name = "ruby-#{RUBY_VERSION}-#{failed.first.files.join(" ").gsub(/\W+/, "-")}"
      File.write(File.join(@folder, "#{name}.log"), failed.map(&:output).join("\n==== another attempt\n"))
      entry = { file: failed.first.files.join(" "), ruby: RUBY_VERSION, attempts: failed.size + 1, brief: failed.first.brief }
      File.write(File.join(@folder, "#{name}.json"), JSON.generate(entry))
    end

    # Prints the list.
    # @return [Boolean] whether there are few enough of them
    def judge
      found = Dir[File.join(@folder, "**/*.json")].sort.map { |path| JSON.parse(File.read(path)) }
      return true if found.empty?

      puts "", "#{found.size} flaky (failed, and passed when tried again alone; output in #{relative}):"
      found.each do |entry|
        puts "  #{entry["file"]} on Ruby #{entry["ruby"]}, attempt #{entry["attempts"]} passed", entry["brief"]
      end
      return true if found.size <= permitted

      puts self.class.strict? ? "PENSTOCK_STRICT=1: flaky files fail the run" : "more than #{PERMITTED} files: this fails the run"
      false
    end

    private

    def permitted = self.class.strict? ? 0 : PERMITTED

    def relative = @folder.delete_prefix("#{Attempt::ROOT}/")
  end
end

# frozen_string_literal: true

require "fileutils"

class Runner
  # How long each test file took when it passed last on this machine: the longest ones are started first, and short ones share a
  # process. A file that is not known yet counts by its size.
  class Durations
    BYTES_PER_SECOND = 1_500
    SHARED = 6 # seconds for the files of a process that several share

    def initialize(path = self.class.path)
      @path = path
      @seconds = read
    end

    # One file for each Ruby and for each choice of tests, as they differ.
    def self.path
      cache = ENV.fetch("XDG_CACHE_HOME") { File.expand_path("~/.cache") }
      File.join(cache, "penstock/durations", "#{RUBY_VERSION}-#{ENV.fetch("PENSTOCK_TESTS", "all")}.tsv")
    end

    # @param files [Array<String>] that share a process
    def of(files)
      files.sum { |file| @seconds[file] || (File.size(File.expand_path(file, Attempt::ROOT)) / BYTES_PER_SECOND.to_f) }
    end

    # @param attempt [Attempt] files that shared its process have shared its time as they were expected to
    def note(attempt)
      return unless attempt.passed?

      expected = of(attempt.files)
      attempt.files.each { |file| @seconds[file] = (attempt.seconds * of([file]) / expected).round(2) }
    end

    # A process takes a third of a second to start and to end, which is more than many files need.
    #
    # @param files [Array<String>]
    # @return [Array<Array<String>>] the same; short ones of a folder together
    def shared(files)
      files.group_by { |file| File.dirname(file) }.values.flat_map do |folder|
        folder.sort_by { |file| -of([file]) }.each_with_object([]) do |file, parts|
          part = parts.find { |others| of([*others, file]) <= SHARED }
          part ? part << file : parts << [file]
        end
      end
    end

    # Keeps them for the next run. A cache that cannot be written costs only time.
    def save
      FileUtils.mkdir_p(File.dirname(@path))
      File.write("#{@path}.#{Process.pid}", @seconds.map { |file, seconds| "#{file}\t#{seconds}\n" }.join)
      File.rename("#{@path}.#{Process.pid}", @path)
    rescue SystemCallError => e
      warn "durations are not kept: #{e.message}"
    end

    private

    def read
      File.readlines(@path, chomp: true).to_h { |line| line.split("\t").then { |file, seconds| [file, Float(seconds)] } }
    rescue SystemCallError, ArgumentError, TypeError
      {}
    end
  end
end

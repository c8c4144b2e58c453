# frozen_string_literal: true

require "fileutils"

class Runner
  # How long each test file took when it passed last on this machine: the longest ones are started first. A file that is not
  # known yet counts by its size.
  class Durations
    BYTES_PER_SECOND = 1_500

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
    def of(files) = files.sum { |file| @seconds[file] || (File.size(File.expand_path(file, Attempt::ROOT)) / BYTES_PER_SECOND) }

    def note(attempt)
      @seconds[attempt.files.first] = attempt.seconds.round(1) if attempt.passed? && attempt.files.one?
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

# frozen_string_literal: true

require_relative "limited"

# Programs in which calls of librdkafka are slow: see test/c/slow_calls.c.
module SlowCalls
  ROOT = File.expand_path("../..", __dir__)
  SOURCE = File.join(ROOT, "test/c/slow_calls.c")
  SHIM = File.join(ROOT, "tmp", "slow_calls-#{RUBY_VERSION}.so")

  # @return [String] the shim to preload
  def self.shim
    return SHIM if File.exist?(SHIM) && File.mtime(SHIM) > File.mtime(SOURCE)

    FileUtils.mkdir_p(File.dirname(SHIM))
    flags = `pkg-config --cflags rdkafka`.split
    output, status = Limited.capture2e("cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", SOURCE,
                                       *flags, "-o", built = "#{SHIM}.#{Process.pid}", "-ldl")
    raise output unless status.success?

    File.rename(built, SHIM) # at once: another test may be loading it
    SHIM
  end

  # Runs the program with slow calls. It has to succeed.
  # @return [String] its output on stdout
  def slow!(program, *arguments, seconds: 60, **calls)
    before = ENV.to_h
    calls.each { |name, value| ENV["SLOW_#{name.upcase}"] = value.to_s }
    ENV["MALLOC_MMAP_THRESHOLD_"] = "100000" # freed memory is returned to the system
    ENV["LD_PRELOAD"] = [before["LD_PRELOAD"], SlowCalls.shim].compact.join(":")
    ruby!(program, *arguments, seconds:)
  ensure
    ENV.replace(before)
  end
end

# frozen_string_literal: true

require "etc"
require "open3"
require "rbconfig"

module Penstock
  module Doctor
    # Ruby, the C library, its allocator, and the limits of the process.
    # @api private
    class Machine
      ALLOCATORS = { "jemalloc" => /jemalloc/, "tcmalloc" => /tcmalloc/, "mimalloc" => /mimalloc/ }.freeze
      # The resources of a client of a cluster, measured: 2 threads and 1 for each broker; 2 descriptors and 3 for each broker.
      THREADS = "a client takes 2 threads, and 1 for each broker"
      FILES = "a client takes 2, and 3 for each broker"
      FEW_FILES = 128
      FEW_THREADS = 64
      private_constant :ALLOCATORS, :THREADS, :FILES, :FEW_FILES, :FEW_THREADS

      # @param objects [SharedObjects]
      # @param open_files [Array(Integer, Integer)] soft and hard limit
      # @param threads [Array<Array(Integer, Integer, String)>] limit, number in use (nil: unknown), and owner of each
      def initialize(objects, open_files: Process.getrlimit(:NOFILE), threads: self.class.thread_limits)
        @objects = objects
        @open_files = open_files
        @threads = threads
      end

      # @return [Array<Fact>]
      def facts = [ruby, libc, allocator, files, threads]

      # @return [Array<Array(Integer, Integer, String)>]
      def self.thread_limits
        limits = [[Process.getrlimit(:NPROC).first, nil, "of the user"]]
        Dir["/sys/fs/cgroup{#{cgroups.join(",")}}/pids.max"].each do |path|
          limit, used = [path, path.sub(/max\z/, "current")].map { |file| Integer(File.read(file), exception: false) }
          limits << [limit, used, "of the control group"]
        end
        limits.reject { |limit, _| limit.nil? || limit == Process::RLIM_INFINITY }
      rescue SystemCallError
        limits
      end

      # In a container its own is the top.
      def self.cgroups
        own = File.readable?("/proc/self/cgroup") ? File.readlines("/proc/self/cgroup", chomp: true).grep(/\A0::/).first : nil
        ["", own.to_s.delete_prefix("0::").chomp("/")].uniq
      end
      private_class_method :cgroups

      private

      def ruby
        Fact.ok("ruby", "#{RUBY_ENGINE == "ruby" ? "CRuby" : RUBY_ENGINE} #{RUBY_VERSION}p#{RUBY_PATCHLEVEL}, #{RUBY_PLATFORM}")
      end

      def libc
        Fact.ok("libc", glibc || musl || RbConfig::CONFIG["host_os"])
      end

      def glibc
        Etc.confstr(Etc::CS_GNU_LIBC_VERSION) if defined?(Etc::CS_GNU_LIBC_VERSION)
      rescue SystemCallError
        nil # another C library
      end

      # musl's loader prints its version if it is given nothing to load.
      def musl
        loader = @objects.named(/\Ald-musl/).first or return
        text, = Open3.capture2e(loader)
        "musl #{text[/Version (\S+)/, 1]}".strip
      end

      def allocator
        name, = ALLOCATORS.find { |_, pattern| @objects.named(pattern).any? || RbConfig::CONFIG["MAINLIBS"].to_s.match?(pattern) }
        return Fact.ok("allocator", name) if name
        return Fact.ok("allocator", "malloc of the C library") unless glibc

        arenas = ENV.fetch("MALLOC_ARENA_MAX", nil)
        return Fact.ok("allocator", "malloc of glibc, MALLOC_ARENA_MAX=#{arenas}") if arenas

        Fact.ok("allocator", "malloc of glibc; MALLOC_ARENA_MAX is not set: up to #{8 * Etc.nprocessors} arenas for threads")
      end

      def files
        soft, hard = @open_files
        return Fact.ok("open files", "no limit; #{FILES}") if soft == Process::RLIM_INFINITY

        used = Dir.exist?("/proc/self/fd") ? Dir.children("/proc/self/fd").size : nil
        text = "#{soft} at most#{", #{used} in use" if used}; #{FILES}"
        return Fact.ok("open files", text) if soft - used.to_i >= FEW_FILES

        Fact.problem("open files", text, "Raise the limit (ulimit -n, LimitNOFILE=; here up to #{hard}).")
      end

      def threads
        limit, used, whose = @threads.min_by { |most, taken, _| most - taken.to_i }
        return Fact.ok("threads", "no limit; #{THREADS}") unless limit

        text = "#{limit} at most (#{whose})#{", #{used} in use" if used}; #{THREADS}"
        return Fact.ok("threads", text) if limit - used.to_i >= FEW_THREADS

        Fact.problem("threads", text, "Raise the limit (ulimit -u, TasksMax=, or the container's pids limit).")
      end
    end
  end
end

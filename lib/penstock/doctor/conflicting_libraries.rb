# frozen_string_literal: true

module Penstock
  module Doctor
    # Known conflicts with Penstock: gems of the bundle and the process, and other loaded libraries.
    # @api private
    class ConflictingLibraries
      FFI_MENDED = "1.17"
      OWN_LIBRDKAFKA = %w[rdkafka karafka-rdkafka].freeze
      OWN_ZSTD = %w[zstd-ruby extzstd].freeze
      # The lines of a lock file's "specs:", without their dependencies, which are indented further.
      LOCKED = /\A {4}(\S+) \(([^)-]+)(?:-[^)]*)?\)\z/
      private_constant :FFI_MENDED, :OWN_LIBRDKAFKA, :OWN_ZSTD, :LOCKED

      # @param objects [SharedObjects]
      # @param directory [String] where to look for a lock file if Bundler does not know one
      # @param loaded [Hash{String => String}] gems of this process, and their versions
      def initialize(objects, directory: Dir.pwd, loaded: Gem.loaded_specs.transform_values { |spec| spec.version.to_s })
        @objects = objects
        @directory = directory
        @loaded = loaded
      end

      # @return [Array<Fact>]
      def facts
        [*ffi, *gems_with_librdkafka, loaded_librdkafkas, *gems_with_zstd, loaded_zstds] # M:doctor_bundled_librdkafka
      end

      private

      # ---- gems ----

      # @return [Hash{Array(String, String) => Array<String>}] name and version, and where they were found
      def gems
        @gems ||= { "in this process" => @loaded.to_a, lock_name => locked }.each_with_object({}) do |(place, found), all|
          found.each { |gem| (all[gem] ||= []) << place }
        end
      end

      def find(*names) = gems.select { |(name, _), _| names.include?(name) }

      def lock_name = lock_file ? "in #{File.basename(lock_file)}" : "in a lock file"

      def locked = lock_file ? File.readlines(lock_file, chomp: true).filter_map { |line| line.match(LOCKED)&.captures } : []

      def lock_file
        @lock_file ||= lock_files.find { |path| File.file?(path) }
      end

      def lock_files
        return [Bundler.default_lockfile.to_s] if defined?(Bundler) && Bundler.respond_to?(:default_lockfile) && gemfile?

        %w[Gemfile.lock gems.locked].map { |name| File.join(@directory, name) }
      end

      def gemfile? = ENV.key?("BUNDLE_GEMFILE")

      def ffi
        found = find("ffi")
        return [Fact.ok("ffi", "neither loaded nor in a bundle here")] if found.empty?

        found.map do |(_, version), places|
          text = "#{version}, #{places.join(" and ")}"
          next Fact.ok("ffi", text) if Gem::Version.new(version).release >= Gem::Version.new(FFI_MENDED) # M:doctor_ffi_version

          Fact.problem("ffi", "#{text}: versions below #{FFI_MENDED} may free the field Hash of a struct's layout in use, " \
                              "which shows as \"undefined method 'default' for String\" or a crash",
                       "Update it: bundle update ffi.")
        end
      end

      def gems_with_librdkafka
        find(*OWN_LIBRDKAFKA).map do |(name, version), places|
          Fact.problem(name, "#{version}, #{places.join(" and ")}: it brings a librdkafka of its own beside the one of Penstock",
                       "Do not load both in one process: take it out of the Gemfile, or out of the group that is loaded here.")
        end
      end

      def gems_with_zstd
        find(*OWN_ZSTD).map do |(name, version), places|
          Fact.note(name, "#{version}, #{places.join(" and ")}: it brings a zstd of its own; load it and look at \"zstd loaded\"")
        end
      end

      # ---- the process ----

      def loaded_librdkafkas
        paths = @objects.defining("rd_kafka_new") # M:doctor_second_librdkafka
        return Fact.ok("librdkafka loaded", paths.empty? ? "not to be seen here" : "once: #{paths.first}") if paths.size < 2

        Fact.problem("librdkafka loaded", "#{paths.size} times: #{paths.join(", ")}",
                     "Load one only: calls meant for one may end up in the other, which has other structs.")
      end

      def loaded_zstds
        paths = @objects.defining("ZSTD_decompress")
        return Fact.ok("zstd loaded", paths.empty? ? "none to be seen" : "once: #{paths.first}") if paths.size < 2

        Fact.problem("zstd loaded", "#{paths.size} times: #{paths.join(", ")}, each exporting the same symbols",
                     "Keep only one, the system's libzstd: a library loaded globally, such as by LD_PRELOAD, answers for " \
                     "the other, and compressing crashes or spoils data.")
      end
    end
  end
end

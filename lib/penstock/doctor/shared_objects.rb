# frozen_string_literal: true

module Penstock
  module Doctor
    # The shared objects of a process, from its map, and the functions that they define. None without /proc.
    # @api private
    class SharedObjects
      # The functions that a file exports, if it is a 64-bit little-endian ELF file.
      class Elf
        MAGIC = "\x7fELF\x02\x01".b.freeze
        DYNSYM = 11
        SECTION = "LLQQQQLLQQ"
        SECTION_SIZE = 64
        SYMBOL_SIZE = 24
        private_constant :MAGIC, :DYNSYM, :SECTION, :SECTION_SIZE, :SYMBOL_SIZE

        # @param path [String]
        def initialize(path)
          @path = path
        end

        # @return [Boolean] false also for other files
        def defines?(name)
          File.open(@path, "rb") { |file| defined_in?(file, name) }
        rescue SystemCallError
          false # gone, or not readable
        end

        private

        def defined_in?(file, name)
          header = file.read(64)
          return false unless header&.start_with?(MAGIC) && header.size == 64

          sections = sections(file, header)
          symbols = sections.find { |section| section[1] == DYNSYM }
          return false unless symbols

          names = part(file, sections[symbols[6]])
          at = names.index("\0#{name}\0")
          return false unless at

          part(file, symbols).unpack("LCCSQQ" * (symbols[5] / SYMBOL_SIZE)).each_slice(6).any? do |symbol|
            # M:doctor_imports_only
            symbol[0] == at + 1 && symbol[3] != 0 # 0: only wanted
          end
        end

        def sections(file, header)
          offset = header.unpack1("@40Q")
          count = header.unpack1("@60S")
          file.seek(offset)
          file.read(count * SECTION_SIZE).to_s.unpack(SECTION * count).each_slice(10).to_a
        end

        def part(file, section)
          file.seek(section[4])
          file.read(section[5]).to_s
        end
      end

      # @return [Array<String>]
      attr_reader :paths

      # @return [SharedObjects] of this process
      def self.of_process(map = "/proc/self/maps")
        new(File.exist?(map) ? File.readlines(map, chomp: true) : [])
      end

      # @param lines [Array<String>] of a process's map
      def initialize(lines)
        paths = lines.filter_map { |line| line[%r{ (/.*?)( \(deleted\))?\z}, 1] }.uniq
        @paths = paths.grep(/\.so(\.|\z)|ld-musl/).uniq { |path| File.exist?(path) ? File.realpath(path) : path }
      end

      # @param pattern [Regexp] of a file's name
      # @return [Array<String>]
      def named(pattern) = paths.select { |path| File.basename(path).match?(pattern) }

      # @return [Array<String>] those that export the function
      def defining(function) = paths.select { |path| Elf.new(path).defines?(function) }
    end
  end
end

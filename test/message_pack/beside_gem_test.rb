# frozen_string_literal: true

require_relative "../test_helper"

# Both libraries loaded together, each time in a separate process, because the gem adds methods to Ruby's classes.
class MessagePackBesideGemTest < PenstockTest
  PROGRAM = File.expand_path("support/beside_gem.rb", __dir__)
  NOT_INSTALLED = 3

  [%w[msgpack penstock], %w[penstock msgpack], %w[msgpack penstock/message_pack/core_ext],
   %w[penstock/message_pack/core_ext msgpack]].each do |files|
    define_method("test_either_librarys_to_msgpack_writes_to_either_librarys_packer_with_#{files.join("_then_").tr("/", "_")}") do
      includes = LIBRARIES.flat_map { |path| ["-I", path] }
      output, errors, status = Limited.capture3(RbConfig.ruby, *includes, PROGRAM, *files)
      skip errors.lines.last.chomp if status.exitstatus == NOT_INSTALLED
      assert status.success?, "#{output}#{errors}"
      assert_match(/: 326 cases, 0 differ\Z/, output)
    end
  end
end

# frozen_string_literal: true

require_relative "../test_helper"

# Compares random values with the gem "msgpack", in a separate process because the gem adds methods to Ruby's classes.
class MessagePackGemTest < PenstockTest
  ROUNDS = ENV.fetch("MESSAGE_PACK_ROUNDS", GCLevel.slow? ? "200" : "20000")
  PROGRAM = File.expand_path("support/rounds.rb", __dir__)
  NOT_INSTALLED = 3

  slow def test_random_values_are_written_and_read_as_by_the_gem
    includes = LIBRARIES.flat_map { |path| ["-I", path] }
    output, errors, status = Limited.capture3(RbConfig.ruby, *includes, PROGRAM, ROUNDS, *ENV.fetch("MESSAGE_PACK_SEED", nil))
    skip errors.lines.last.chomp if status.exitstatus == NOT_INSTALLED
    assert status.success?, "#{output}#{errors}"
    assert_match(/\Amessage_pack rounds: #{ROUNDS} random values .* 0 differ; seed \d+/, output.lines.last)
  end
end

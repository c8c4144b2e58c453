# frozen_string_literal: true

require_relative "../test_helper"

# Compares how Penstock, the gem "msgpack" and Python's msgpack read documents. It runs in a separate process, because the gem
# adds methods to Ruby's classes. `rake test:message_pack_differential` reads a million documents.
class MessagePackDifferentialTest < PenstockTest
  DOCUMENTS = GCLevel.slow? ? "200" : "8000"
  PROGRAM = File.expand_path("../message_pack/support/differential.rb", __dir__)
  NOT_INSTALLED = 3

  def test_whole_and_split_documents_are_read_as_by_the_gem_and_python
    output, errors, status = differential
    output, errors, status = differential({ "MESSAGE_PACK_READERS" => "gem" }) if status.exitstatus == NOT_INSTALLED
    skip errors.lines.last.chomp if status.exitstatus == NOT_INSTALLED
    assert status.success?, "#{output}#{errors}"
    assert_match(/\Amessage_pack differential: #{DOCUMENTS} documents .* 0 findings; seed \d+/, output.lines.last)
  end

  private

  def differential(environment = {})
    includes = LIBRARIES.flat_map { |path| ["-I", path] }
    Limited.capture3(environment, RbConfig.ruby, *includes, PROGRAM, DOCUMENTS, *ENV.fetch("MESSAGE_PACK_SEED", nil))
  end
end

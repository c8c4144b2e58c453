# frozen_string_literal: true

require_relative "../test_helper"
require_relative "message_pack_engine"

# The engines of Penstock::MessagePack without Ruby, under sanitizers. Longer: rake test:msgpack_engine, test:fuzz.
class MessagePackEngineTest < PenstockTest
  def assert_passed(result)
    assert_predicate result, :passed?, result.output[-3_000..] || result.output
  end

  def test_written_values_are_read_back_and_arbitrary_bytes_are_handled_safely
    result = MessagePackEngine.parts(1)
    assert_passed result
    assert_equal MessagePackEngine::PARTS, result.output.scan(/^([a-z]+) [1-9]\d*$/).flatten
  end

  def test_the_fuzzers_corpus_is_handled_safely
    result = MessagePackEngine.replay
    assert_passed result
    assert_includes result.output, "inputs #{MessagePackEngine.corpus.size} "
  end

  def test_the_corpus_exists_and_is_small
    assert_includes 100..300, MessagePackEngine.corpus.size
    assert_operator MessagePackEngine.corpus.sum { |file| File.size(file) }, :<=, 100_000
  end
end

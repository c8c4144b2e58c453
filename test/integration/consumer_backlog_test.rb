# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../proofs/support/consumer_backlog"

# The memory of a consumer with a backlog, in a process of its own. `rake test:consumer_backlog` is the long form, with 1 GB.
class ConsumerBacklogTest < PenstockTest
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }
  MEMORY = 24 << 20

  thorough def test_a_stalled_reader_stays_within_its_memory_and_released_batches_return_theirs
    backlog = ConsumerBacklog.new(SERVERS, 60).produce
    sizes = backlog.read(MEMORY)
    assert_operator sizes.stalled, :<, MEMORY * 1.2, sizes.to_s
    assert_operator sizes.stalled, :>, MEMORY * 0.2, sizes.to_s
    bytes = sizes.held * ConsumerBacklog::SIZE
    assert_operator sizes.most, :<, (MEMORY * 1.2) + (bytes * 1.5), sizes.to_s
    assert_operator sizes.released, :>, bytes * 0.9, sizes.to_s
    assert_equal backlog.total, sizes.read
  end
end

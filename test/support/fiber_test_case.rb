# frozen_string_literal: true

require_relative "fiber_schedulers"

# For tests of fibers that wait for something that never happens.
class FiberTestCase < PenstockTest
  include FiberSchedulers

  MESSAGE = { topic: "test", payload: "x" }.freeze

  def setup
    super
    @stuck = []
  end

  def teardown
    GCLevel.stop
    @stuck.each { |producer| producer.close(timeout: 0) }
    super
  end

  def stuck_producer(...) = unreachable_producer(...).tap { |made| @stuck << made }
end

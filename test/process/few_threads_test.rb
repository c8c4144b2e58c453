# frozen_string_literal: true

require "json"
require_relative "../test_helper"
require_relative "../support/crowd"

# What a process runs does not grow with its clients. test/integration/few_threads_test.rb has the same with logins, in the gate.
class FewThreadsTest < PenstockTest
  include FreshCluster
  include Crowd

  thorough def test_threads_of_many_busy_clients
    few, many =
      [[10, 10], [100, 50]].map { |counts| crowd(*counts, servers: cluster.bootstrap_servers, topic: topic) }
    assert_few_threads(few, many)
  end
end

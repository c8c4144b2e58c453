# frozen_string_literal: true

require_relative "../test_helper"

class ConnectionPoolTest < PenstockTest
  def setup
    super
    needs_connection_pool
    @made = []
    @pools = []
  end

  def teardown
    @pools&.each { |pool| pool.shutdown(timeout: 5) }
    Penstock::ConnectionPool.shutdown(timeout: 5)
    super
  end

  # Each producer's id is its index.
  def configure(servers: cluster.bootstrap_servers, **kafka)
    lambda do |config, index|
      @made << index
      config.id = "p#{index}"
      config.kafka = { "bootstrap.servers": servers, "linger.ms": 0, **kafka }
    end
  end

  def pool(size: 2, timeout: 5, **kafka)
    Penstock::ConnectionPool.new(size:, timeout:, &configure(**kafka)).tap { |made| @pools << made }
  end

  # A thread that borrows a producer until the test calls give_back.
  class Borrower
    attr_reader :producer

    def initialize(pool)
      lent = Thread::Queue.new
      @done = Thread::Queue.new
      @thread = Thread.new do
        pool.with do |producer|
          lent << producer
          @done.pop
        end
      end
      @producer = lent.pop
    end

    def give_back
      @done << :done
      @thread.join
    end
  end

  def id(pool) = pool.with(&:id)

  # ---- lending ----

  def test_with_lends_a_producer_to_the_block_and_returns_the_blocks_value
    topic = topic(partitions: 1)
    pool = self.pool
    assert_equal [0, 1], Array.new(2) { pool.with { |producer| producer.produce_sync(topic:, payload: "x").offset } }
    assert_equal [1], @made
  end

  # behaviour: connection pool
  def test_producers_are_created_on_demand_and_numbered_from_one
    pool = self.pool(size: 3)
    assert_equal [[], { size: 3, available: 3 }], [@made, pool.stats]
    borrowers = Array.new(3) { Borrower.new(pool) }
    assert_equal [%w[p1 p2 p3], { size: 3, available: 0 }], [borrowers.map { _1.producer.id }, pool.stats]
    borrowers.each(&:give_back)
    assert_equal [[1, 2, 3], 3, 3], [@made, pool.available, pool.size]
    assert_kind_of ::ConnectionPool, pool.pool
  end

  def test_a_thread_that_has_a_producer_gets_the_same_again
    pool = self.pool
    pool.with { |outer| pool.with { |inner| assert_same outer, inner } }
    assert_equal [1], @made
  end

  def test_a_fiber_gets_a_producer_of_its_own
    pool = self.pool
    ids = pool.with { |outer| [outer.id, Fiber.new { id(pool) }.resume] }
    assert_equal %w[p1 p2], ids
  end

  def test_a_waiting_thread_gets_the_producer_that_is_returned
    pool = self.pool(size: 1)
    borrower = Borrower.new(pool)
    waiting = Thread.new { id(pool) }
    eventually { waiting.status == "sleep" }
    borrower.give_back
    assert_equal "p1", waiting.value
  end

  # behaviour: connection pool
  def test_a_thread_that_waits_too_long_gets_an_error
    pool = self.pool(size: 1, timeout: 0.02)
    borrower = Borrower.new(pool)
    assert_raises(::ConnectionPool::TimeoutError) { pool.with { flunk "lent" } }
    borrower.give_back
    assert_equal "p1", id(pool)
  end

  def test_a_producer_returns_to_the_pool_if_the_block_raises
    pool = self.pool(size: 1, timeout: 0.02)
    assert_raises(KeyError) { pool.with { raise KeyError } }
    catch(:out) { pool.with { throw :out } }
    assert_raises(StopIteration) { pool.with { raise StopIteration } }
    assert_equal({ size: 1, available: 1 }, pool.stats)
  end

  def test_a_waiting_thread_can_be_interrupted_at_once
    pool = self.pool(size: 1, timeout: 300.0)
    borrower = Borrower.new(pool)
    waiting = Thread.new { assert_raises(KeyError) { pool.with { flunk "lent" } } }
    eventually { waiting.status == "sleep" }
    waiting.raise(KeyError)
    assert Slowness.join(waiting, 20), "the thread is still waiting"
    borrower.give_back
    assert_equal({ size: 1, available: 1 }, pool.stats)
  end

  def test_an_interrupted_block_returns_its_producer
    pool = self.pool(size: 1, timeout: 0.02)
    5.times { assert_raises(Timeout::Error) { Timeout.timeout(0.01) { pool.with { sleep } } } }
    assert_equal({ size: 1, available: 1 }, pool.stats)
  end

  # @return [Array(ConnectionPool, String, EmbeddedCluster)] of transactional producers, and a topic
  def transactional_pool
    own = own_cluster
    topic = topic(partitions: 1, on: own)
    pool = Penstock::ConnectionPool.new(size: 2) do |config, index|
      kafka = { "transactional.id": "#{topic}-#{index}", log_level: 0 }
      configure(servers: own.bootstrap_servers, **kafka).call(config, index)
      config.logger = Logger.new(nil)
    end
    @pools << pool
    [pool, topic, own]
  end

  # Breaks the producer that the pool lends.
  # @return [Producer]
  def break_one(pool)
    pool.with do |lent|
      yield lent
      pool.with { |again| assert_same lent, again }
      lent
    end
  end

  def test_a_producer_that_can_do_nothing_more_is_replaced_by_one_with_its_number
    pool, topic, own = transactional_pool
    fence = lambda do |lent|
      own.inject_errors(:end_txn, :producer_fenced)
      assert_raises(Penstock::ProducerFencedError) { lent.transaction { lent.produce_async(topic:, payload: "") } }
    end
    fail_for_good = ->(lent) { lent.client.test_fatal_error(:out_of_order_sequence_number, "for a test") }
    [fence, fail_for_good, :close.to_proc].each do |way|
      broken = break_one(pool, &way)
      pool.with { |lent| refute_same broken, lent }
      assert_predicate broken, :closed?
      2.times { assert_predicate pool.transaction { |lent| lent.produce_async(topic:, payload: "") }, :delivered? }
    end
    assert_equal [1], @made.uniq
    last = pool.with(&:itself)
    pool.shutdown
    assert_predicate last, :closed?
  end

  def test_the_buffer_of_a_replaced_producer_goes_to_its_successor
    pool, topic, = transactional_pool
    break_one(pool) do |lent|
      lent.buffer(topic:, payload: "kept")
      lent.client.test_fatal_error(:fenced, "for a test")
    end
    assert_equal(["kept"], pool.with { |lent| lent.messages.map { |message| message[:payload] } })
    assert_equal([true], pool.with { |lent| lent.flush_sync.map(&:delivered?) })
  end

  def test_many_threads_share_few_producers
    topic = topic(partitions: 1)
    pool = self.pool(size: 2)
    threads = Array.new(8) do
      Thread.new { Array.new(5) { pool.with { |producer| producer.produce_sync(topic:, payload: "").offset } } }
    end
    assert_equal (0...40).to_a, threads.flat_map(&:value).sort
    assert_equal [], @made - [1, 2]
  end

  # behaviour: connection pool
  def test_transaction_runs_the_block_in_a_transaction_of_a_producer
    pool = self.pool
    calls = []
    pool.with do |producer|
      producer.define_singleton_method(:transaction) do |&block|
        calls << :begun
        block.call.tap { calls << :ended }
      end
    end
    value = pool.transaction do |producer|
      calls << producer.id
      5
    end
    assert_equal [5, [:begun, "p1", :ended]], [value, calls]
  end

  def test_the_number_of_a_producer_that_cannot_be_created_is_free_again
    wrong = true
    pool = Penstock::ConnectionPool.new(size: 1, timeout: 0.02) do |config, index|
      config.id = "p#{index}"
      config.kafka = wrong ? {} : { "bootstrap.servers": "127.0.0.1:1" }
    end
    @pools << pool
    2.times { assert_raises(Penstock::ConfigurationInvalidError) { id(pool) } }
    wrong = false
    assert_equal "p1", id(pool)
  end

  # ---- reload and shutdown ----

  # behaviour: connection pool
  def test_reload_closes_the_producers_and_creates_new_ones
    pool = self.pool(size: 2)
    before = pool.with(&:itself).tap(&:queue_size)
    assert_instance_of Penstock::CloseReport, pool.reload
    assert_predicate before, :closed?
    after = pool.with(&:itself)
    refute_same before, after
    assert_equal "p1", after.id
  end

  def test_a_producer_in_use_outlives_a_reload_and_keeps_its_number
    topic = topic(partitions: 1)
    pool = self.pool(size: 1, timeout: 0.1)
    borrower = Borrower.new(pool)
    pool.reload
    refute_predicate borrower.producer, :closed?
    assert_equal "p2", id(pool)
    assert_equal 0, borrower.producer.produce_sync(topic:, payload: "").offset
    borrower.give_back
    assert_predicate borrower.producer, :closed?
    pool.reload
    assert_equal "p1", id(pool)
  end

  def test_a_new_producer_gets_the_lowest_free_number
    pool = self.pool(size: 2)
    borrowers = Array.new(2) { Borrower.new(pool) }
    borrowers[0].give_back
    pool.reload
    assert_equal %w[p1 p2], [id(pool), borrowers[1].producer.id]
    borrowers[1].give_back
  end

  def test_a_thread_that_waits_during_a_reload_gets_a_new_producer
    pool = self.pool(size: 1)
    borrower = Borrower.new(pool)
    waiting = Thread.new { id(pool) }
    eventually { waiting.status == "sleep" }
    pool.reload
    assert_equal "p2", waiting.value
    borrower.give_back
  end

  def test_shutdown_closes_unused_producers_at_once_and_lent_ones_when_they_are_returned
    pool = self.pool(size: 2)
    borrowers = Array.new(2) { Borrower.new(pool) }
    borrowers[0].give_back
    pool.shutdown
    assert_equal [true, false], (borrowers.map { |borrower| borrower.producer.closed? })
    borrowers[1].give_back
    assert_predicate borrowers[1].producer, :closed?
  end

  def test_after_shutdown_no_producer_is_lent
    pool = self.pool
    id(pool)
    pool.shutdown
    [-> { pool.with { flunk "lent" } }, -> { pool.reload }, -> { pool.transaction { flunk "lent" } }].each do |call|
      assert_includes assert_raises(Penstock::ProducerClosedError, &call).message, "pool was shut down"
    end
    assert_equal [{ size: 2, available: 0 }, 0], [pool.stats, pool.shutdown.delivered]
    assert_includes pool.inspect, "shut down"
  end

  def test_a_thread_that_waits_during_a_shutdown_gets_an_error
    pool = self.pool(size: 1)
    borrower = Borrower.new(pool)
    waiting = Thread.new { assert_raises(Penstock::ProducerClosedError) { pool.with { flunk "lent" } } }
    eventually { waiting.status == "sleep" }
    pool.shutdown
    assert_instance_of Penstock::ProducerClosedError, waiting.value
    borrower.give_back
  end

  def test_an_error_of_a_pool_within_the_block_is_raised_unchanged
    inner = ::ConnectionPool.new(size: 1) { Object.new }.tap { |made| made.shutdown { nil } }
    calls = 0
    pool = self.pool
    assert_raises(::ConnectionPool::PoolShuttingDownError) { pool.with { (calls += 1) && inner.with { nil } } }
    pool.pool.shutdown(&:close)
    assert_raises(::ConnectionPool::PoolShuttingDownError) { pool.with { nil } }
    assert_equal 1, calls
  end

  slow def test_shutdown_closes_all_producers_at_once_and_reports_their_messages
    pool = self.pool(size: 4, servers: "127.0.0.1:1", log_level: 0)
    borrowers = Array.new(4) { Borrower.new(pool) }
    borrowers.each { |borrower| borrower.producer.produce_async(topic: "t", payload: "") }
    borrowers.each(&:give_back)
    report = nil
    assert_took(9, seconds_of { report = pool.shutdown(timeout: 3) })
    assert_equal [0, 4, 0], [report.delivered, report.purged, report.pending]
  end

  # ---- the pool of the process ----

  # behaviour: connection pool
  def test_the_module_methods_use_the_pool_of_the_process
    assert_equal [false, nil], [Penstock::ConnectionPool.active?, Penstock::ConnectionPool.default_pool]
    made = Penstock::ConnectionPool.setup(size: 3, &configure)
    assert_equal [true, made], [Penstock::ConnectionPool.active?, Penstock::ConnectionPool.default_pool]
    assert_equal ["p1", { size: 3, available: 3 }], [Penstock::ConnectionPool.with(&:id), Penstock::ConnectionPool.stats]
    assert_equal 0, Penstock::ConnectionPool.reload.purged
    Penstock::ConnectionPool.with do |producer|
      producer.define_singleton_method(:transaction) { |&block| block.call }
    end
    assert_equal("p1", Penstock::ConnectionPool.transaction(&:id))
    Penstock::ConnectionPool.close
    refute_predicate Penstock::ConnectionPool, :active?
    assert_raises(Penstock::ProducerClosedError) { made.with { nil } }
    assert_nil Penstock::ConnectionPool.shutdown
  end

  # behaviour: connection pool
  def test_without_setup_the_error_names_the_method_to_call
    pool = Penstock::ConnectionPool
    [-> { pool.with { nil } }, -> { pool.transaction { nil } }, -> { pool.stats }, -> { pool.reload }].each do |call|
      assert_includes assert_raises(Penstock::PoolNotConfiguredError, &call).message, "Call ConnectionPool.setup first"
    end
  end

  def test_setup_shuts_the_previous_pool_down
    former = Penstock::ConnectionPool.setup(&configure)
    producer = former.with(&:itself)
    assert_equal 5, former.size
    Penstock::ConnectionPool.setup(size: 1, &configure)
    assert_equal [true, { size: 1, available: 1 }], [producer.closed?, Penstock::ConnectionPool.stats]
  end

  def test_a_pool_requires_a_block_and_a_valid_size_and_timeout
    assert_raises(ArgumentError) { Penstock::ConnectionPool.new }
    [{ size: 0 }, { size: "5" }, { timeout: -1 }, { timeout: nil }].each do |wrong|
      assert_raises(ArgumentError) { Penstock::ConnectionPool.new(**wrong) { nil } }
    end
  end

  # ---- forks, and without the gem ----

  def test_a_fork_child_begins_with_an_empty_pool
    pool = self.pool(size: 1, timeout: 1)
    topic = topic(partitions: 1)
    pool.with { |producer| producer.produce_sync(topic:, payload: "parent") }
    borrower = Borrower.new(pool) # its thread does not exist in the child
    in_child = in_child do
      available = pool.available
      offset = pool.with { |producer| producer.produce_sync(topic:, payload: "child").offset }
      report = pool.shutdown(timeout: 5)
      [available, offset, @made, report.to_a]
    end
    assert_equal [1, 1, [1, 1], [0] * 6], in_child
    refute_predicate borrower.producer, :closed?
    borrower.give_back
    assert_equal 2, pool.with { |producer| producer.produce_sync(topic:, payload: "parent").offset }
  end

  def test_a_fork_child_that_shuts_the_pool_down_does_not_touch_the_parents_producers
    pool = self.pool(size: 1)
    topic = topic(partitions: 1)
    pool.with { |producer| producer.produce_sync(topic:, payload: "") }
    assert_equal([0] * 6, in_child { pool.shutdown.to_a })
    assert_equal 1, pool.with { |producer| producer.produce_sync(topic:, payload: "").offset }
  end

  # behaviour: connection pool
  def test_without_the_gem_the_error_names_the_gem
    assert_equal <<~TEXT, ruby!(<<~PROGRAM)
      Penstock::ConnectionPool requires the connection_pool gem: add gem "connection_pool" to the Gemfile
    TEXT
      def require(name) = name == "connection_pool" ? raise(LoadError.new("no").tap { |e| e.define_singleton_method(:path) { name } }) : super
      begin
        Penstock::ConnectionPool.setup { }
      rescue LoadError => e
        puts e.message
      end
    PROGRAM
  end
end

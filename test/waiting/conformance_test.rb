# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/blocking_calls"
require_relative "../support/documented_methods"
require_relative "../support/fiber_schedulers"
require_relative "../support/gvl_share"
require_relative "../support/valid_arguments"

# The rules for every call that waits. support/blocking_calls.rb lists these calls.
class ConformanceTest < PenstockTest
  slow
  # In the gate, each call is tried under one scheduler. A variant calls its producer. Requests of the admin client share one
  # function in C and one in Ruby, so one of each kind stands for all: a request, one to a coordinator, a question on a thread of
  # its own, several in turn.
  thorough(/_under_async\z|_ends_at_its_deadline_in_a_trap\z|_ended_by_(raise|timeout)_/)
  thorough(/mark_as_consumed_leaves_the_gvl|consumer_close_(ends|leaves_the_gvl)|_on_a_consumer_that_is_member\z/) # seconds each
  thorough(/\Atest_variant_(?!produce_sync_|transaction_)/)
  thorough(/\Atest_admin_(?!create_topic_|alter_group_offsets_|lag_|plan_)/)
  alone(/leaves_the_gvl_to_other_threads/)

  include BlockingCalls::Stuck
  include FiberSchedulers

  class Interrupted < StandardError; end

  # All times are those of a quiet machine: see `attempts`.
  SOON = GCLevel.slow? ? 5 : 0.1 # seconds from an interrupt to the call's end
  INSTANTLY = GCLevel.slow? ? 5 : 0.5 # seconds; a call that waits for a cluster takes longer
  LONG = GCLevel.slow? ? 20 : 1.5 # seconds that a call lasts unless it is interrupted
  SHORT = 0.3
  SLACK = GCLevel.slow? ? 5 : 0.2 # seconds added to a deadline, because other programs run
  COUNTING = 0.2 # seconds
  SHARE = GCLevel.slow? ? 0.1 : 0.7 # minimum share of its time that a counting thread gets while another thread waits
  CLOSING = 1 # seconds that close may exceed 110 % of its deadline, as documented

  # Runs last. A closed client whose call was stuck may continue natively for seconds, and only this test waits for that.
  LAST = "test_every_stuck_client_is_released_in_the_end"

  def self.runnable_methods = super.partition { |name| name != LAST }.flatten

  def teardown
    GCLevel.stop
    unstick
    super
  end

  def wait_for_the_end_of_what_is_closing = nil

  define_method(LAST) do
    eventually(30, -> { "left: #{left_open}" }) { Internal::ProducerClient.open_count.zero? && native_threads.empty? }
    assert_empty Thread.list.filter_map(&:name).grep(/penstock/)
  end

  BlockingCalls::ALL.each do |call|
    if call.brief
      define_method("test_#{call.slug}_yields_to_other_fibers") do
        with_scheduler(:plain) do |fibers|
          on = stuck(call.stuck, LONG)
          before = fibers.scheduler.given_way
          100.times { call.run(on, LONG) if fibers.scheduler.given_way == before } # the answer may come at once
          assert_operator fibers.scheduler.given_way, :>, before
        end
      end

      define_method("test_#{call.slug}_handles_an_interrupt_that_is_pending_during_a_blocking_call") do
        on = stuck(call.stuck, LONG)
        assert_raises(Interrupted) do
          Thread.handle_interrupt(Interrupted => :on_blocking) do
            Thread.new(Thread.current) { |waiting| waiting.raise(Interrupted) }.join(0) # a longer join would block
            Thread.pass until Thread.pending_interrupt?
            call.run(on, LONG)
          end
        end
      end

      define_method("test_#{call.slug}_works_in_a_trap") do
        on = stuck(call.stuck, LONG)
        assert_equal :returned, in_trap { call.run(on, LONG) && :returned }
      end
      next
    end

    FiberSchedulers::KINDS.each do |kind|
      # behaviour: A fiber scheduler's other fibers go on while produce_sync waits
      define_method("test_#{call.slug}_yields_to_other_fibers_and_is_cancelled_under_#{kind}") do
        soon { |scale| elapsed_until_cancelled(call, kind, LONG * scale) }
      end
    end

    define_method("test_#{call.slug}_leaves_the_gvl_to_other_threads_and_can_be_interrupted") do
      share = nil
      soon do |scale|
        elapsed, share = elapsed_until_interrupted(call, LONG * scale)
        [elapsed, share > SHARE]
      end
      assert_operator share, :>, SHARE
    end

    define_method("test_#{call.slug}_ends_at_its_deadline") { assert_ends(call) { |on| call.run(on, SHORT) } } if call.ends

    define_method("test_#{call.slug}_#{call.trap ? "raises" : "ends_at_its_deadline"}_in_a_trap") do
      next assert_raises_in_trap(call) if call.trap
      next assert_ends(call) { |on| in_trap { call.run(on, SHORT) } } if call.ends

      on = stuck(call.stuck, SHORT)
      in_trap { assert_interruptible(call, on) }
    end
  end

  # Ways to end a thread inside a call. Each returns the seconds until the call has ended.
  WAYS = {
    kill: ->(test, on, call) { test.ended(on, call, &:kill) },
    raise: ->(test, on, call) { test.ended(on, call) { |thread| thread.raise(Interrupted) } },
    timeout: lambda do |test, on, call|
      test.ended(on, ->(same) { Timeout.timeout(0.06) { call.call(same) } }) { |_| nil } # Timeout throws and raises nothing
    end
  }.freeze

  ENDED = BlockingCalls::ALL.reject(&:brief).then do |all|
    halves = all.each_with_index.partition { |_, place| place.even? }.map { |half| half.map(&:first) }
    { kill: all, raise: halves[0], timeout: halves[1] }
  end

  # One test for many calls: closing takes a second, and this closes all objects at once.
  WAYS.each do |way, ending|
    # defect 19
    define_method("test_after_a_call_ended_by_#{way}_its_object_can_be_used_and_closed") do
      owners = ENDED.fetch(way).flat_map do |call|
        on = nil
        soon { |scale| ending.call(self, on = stuck(call.stuck, LONG * scale), ->(same) { call.run(same, LONG * scale) }) }
        owners_of(on).map { |owner| [call.name, owner] }
      end
      closing = owners.map { |name, owner| Thread.new { [name, problem_with(owner)] } }
      assert_empty closing.map(&:value).select(&:last)
    end
  end

  # @yieldparam thread [Thread] the thread inside the call, which the block ends
  def ended(on, call)
    thread = quiet_thread { call.call(on) }
    sleep 0.06
    yield thread
    elapsed = seconds_of { sleep 0.001 until !thread.alive? || left?(on) }
    assert_raises_or_ends(thread)
    assert_kind_of String, on.inspect
    elapsed
  end

  def assert_raises_or_ends(thread)
    assert Slowness.join(thread, LONG * 5), "the thread did not end"
    assert_nil thread.value, "the call ended before it was killed" # the value of a killed thread is nil
  rescue Interrupted, Timeout::Error, Penstock::EarlyTransactionExitNotAllowedError
    nil
  end

  # @return [Array] the objects used by the call that can be closed
  def owners_of(on)
    case on
    when Marking then [on.producer, on.consumer]
    when Penstock::Producer::Variant then [on.producer]
    when Penstock::ConsumerSet then on.consumers
    when Penstock::DeliveryHandle then @stuck_producers.last(1)
    else [on]
    end
  end

  REPORTS = [Penstock::CloseReport, Penstock::ConsumerCloseReport, TrueClass].freeze

  # @return [String, nil]
  def problem_with(owner)
    return "inspect" unless owner.inspect.include?(owner.id)

    report = nil
    elapsed = seconds_of { report = owner.close(timeout: 3) } # a question of an admin client takes up to 2
    return "close returned #{report.inspect}" unless REPORTS.include?(report.class)

    longest = GCLevel.slow? ? 20 : 6
    return "close took #{elapsed} s" if elapsed > longest && elapsed > longest * Slowness.factor

    "not closed" unless owner.closed?
  end

  # defect 18, 19, C33
  def test_every_method_documented_as_blocking_is_listed
    assert_equal DocumentedMethods.blocking.sort, BlockingCalls::LISTED.map(&:name).sort
  end

  SASL = { "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b" }.freeze

  { "Producer" => %i[dead full sasl_producer], "Consumer" => %i[reader member sasl_consumer], "ConsumerSet" => %i[set],
    "DeliveryHandle" => %i[handle], "Admin" => %i[admin sasl_admin] }.each do |type, kinds|
    kinds.each do |kind|
      # defect 18
      define_method("test_no_undocumented_method_blocks_on_a_#{type.downcase}_that_is_#{kind}") do
        on = stuck(kind, LONG)
        DocumentedMethods.instant(type).each do |name|
          elapsed = seconds_of { outcome { ValidArguments.call(on, name[/#(.+)/, 1]) { nil } } }
          assert_operator elapsed, :<, INSTANTLY * Slowness.factor, name if elapsed >= INSTANTLY
        end
      end
    end
  end

  def test_the_check_finds_what_the_comments_say
    found = DocumentedMethods.blocking_in(<<~RUBY, "Thing")
      # Blocks: like {#other}.
      def one = 1
      # Blocks: never.
      def two = 2

      # @!method three(timeout)
      #   Waits. Blocks like {#one}.
      # @!method three?

      # Blocks: no, except at first.
      def self.four = 4
      # Undocumented.
      def five = 5
    RUBY
    assert_equal %w[Thing#one Thing#three Thing.four], found
  end

  private

  SLOWEST = 10 # times as slow as a quiet machine

  # Makes up to three attempts, because the machine may be busy. If one fails, the next allows for the slowness of the machine.
  # @yieldparam scale [Float] all times are multiplied by this
  # @yieldreturn [Boolean] whether the attempt succeeded
  def attempts
    scale = 1
    3.times do
      return if yield scale

      unstick
      scale = Slowness.factor.clamp(1, SLOWEST)
    end
  end

  # @yieldreturn [Float, Array(Float, Boolean)] the seconds, and whether all else is as it has to be
  def soon
    elapsed = limit = nil
    attempts do |scale|
      elapsed, good = yield scale
      elapsed < (limit = SOON * scale) && good != false
    end
    assert_operator elapsed, :<, limit
  end

  # Clients that log in with a password.
  def stuck_sasl_producer(seconds) = stuck_dead(seconds, **SASL)
  def stuck_sasl_admin(_) = stuck_admin(0, **SASL)
  def stuck_sasl_consumer(_) = stuck_consumer(unanswering, **SASL).assign("test" => { 0 => 0 })

  def elapsed_until_cancelled(call, kind, long)
    with_scheduler(kind) do |fibers|
      on = stuck(call.stuck, long)
      strand = fibers.start { call.run(on, long) }
      10.times { sleep 0.005 } # this fiber continues meanwhile
      refute_predicate strand, :done?, strand.error&.full_message
      seconds_of do
        fibers.cancel(strand)
        sleep 0.001 until strand.done? || left?(on)
      end
    end
  end

  # `rake test:gvl` measures longer and requires a larger share.
  # @return [Array(Float, Float)] seconds until the call ended, and the share of its time that this thread got before
  def elapsed_until_interrupted(call, long)
    on = stuck(call.stuck, long)
    elapsed = nil
    share = GVLShare.beside(call, on, long, COUNTING) do |thread|
      assert_predicate thread, :alive?
      elapsed = seconds_of do
        thread.raise(Interrupted)
        sleep 0.001 until !thread.alive? || left?(on)
      end
      assert_raises(Interrupted) { Slowness.join(thread, long * 5) }
    end
    [elapsed, share]
  end

  def left?(marking) = marking.is_a?(Marking) && marking.left

  def assert_ends(call)
    slack = SLACK + (call.name.match?(/close|disconnect/) ? CLOSING : 0)
    elapsed = limit = nil
    attempts do |scale|
      on = stuck(call.stuck, SHORT)
      elapsed = seconds_of { assert_kind_of call.ends, outcome { yield on } }
      elapsed < (limit = (SHORT * 1.1) + (slack * scale))
    end
    assert_includes (SHORT - 0.01)..limit, elapsed
  end

  def outcome
    yield
  rescue Penstock::Error => e
    e
  end

  def assert_raises_in_trap(call)
    on = stuck(call.stuck, SHORT)
    elapsed = nil
    error = assert_raises(call.trap) { in_trap { elapsed = seconds_of { call.run(on, SHORT) } } }
    assert_nil elapsed
    assert_match(/not possible in a signal trap/, error.message)
  end

  # A call without a deadline can at least be interrupted in a trap.
  def assert_interruptible(call, waiting)
    main = Thread.current
    waker = Thread.new do
      sleep 0.1
      main.raise(Interrupted)
    end
    elapsed = seconds_of { assert_raises(Interrupted) { call.run(waiting, SHORT) } }
    assert_operator elapsed, :>=, 0.09
    assert_operator elapsed, :<, Slowness.factor if elapsed >= 1
  ensure
    waker.join
  end
end

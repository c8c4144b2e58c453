# frozen_string_literal: true

require_relative "../test_helper"

# What can be marked and committed, compared with a model, however it is rewound, sought and marked by several owners.
class LedgerTest < PenstockTest
  OPERATIONS = 20
  ROUNDS = 1_500

  # One copy of a message that somebody has got.
  Copy = Struct.new(:message, :again, :came, :done, :owner, :cut) do
    def offset = message.offset
    def holds? = !again && !came
  end

  # Remembers all copies, and what becomes of each.
  class Model
    attr_reader :copies, :ledger, :next_offset

    def initialize
      @ledger = Internal::Ledger.new
      @ledger.assigned
      @copies = []
      @next_offset = 0
    end

    def hand_out(count, owner)
      offsets = @next_offset...(@next_offset + count)
      @copies.each { |copy| copy.came = true if copy.again && offsets.cover?(copy.offset) }
      given = offsets.map { |offset| Penstock::Message.new(topic: "t", partition: 0, offset:) }
      @ledger.hand_out(given, [], owner, nil).each { |message| @copies << Copy.new(message, false, false, false, owner) }
      @next_offset = offsets.end
    end

    def seek(offset)
      @ledger.seek("t", 0, offset)
      @copies.each do |copy|
        copy.again = copy.cut = true if copy.offset >= offset
        copy.again = false if !copy.came && copy.offset.between?(@next_offset, offset - 1)
      end
      @next_offset = offset
    end

    def mark(copy)
      marked = @ledger.mark(copy.message)
      of_owner = @copies.select { |other| other.holds? && other.owner == copy.owner && other.offset <= copy.offset }
      of_owner.each { |other| other.done = true } if marked && copy.holds?
      marked
    end

    def finish(owner)
      @ledger.finish(owner)
      @copies.each { |copy| copy.done = true if copy.owner == owner && copy.holds? }
    end

    # The first offset on which somebody still works. What was to come again, and was skipped, counts no more.
    def first_open = @copies.select { |copy| copy.holds? && !copy.done && !copy.cut }.map(&:offset).min
    def committed = @ledger.processed.dig(0, 2)
  end

  def setup
    super
    @seed = Integer(ENV.fetch("PENSTOCK_LEDGER_SEED", Random.new_seed % 1_000_000))
    @random = Random.new(@seed)
  end

  def act(model)
    case @random.rand(8)
    when 0..2 then model.hand_out(1 + @random.rand(6), 1 + @random.rand(3))
    when 3, 4 then model.seek(@random.rand(30))
    when 5 then model.finish(1 + @random.rand(3))
    else mark(model)
    end
  end

  def mark(model)
    copy = model.copies.sample(random: @random) or return
    marked = model.mark(copy)
    assert_equal copy.holds?, marked, "seed #{@seed}: the mark of #{copy}" unless copy.came
  end

  def test_a_message_can_be_marked_if_and_only_if_it_does_not_come_again
    ROUNDS.times do
      model = Model.new
      OPERATIONS.times { act(model) }
      model.copies.each do |copy|
        holds = model.ledger.holds("t", 0, copy.offset, epoch_of(copy))
        assert_equal copy.holds?, holds, "seed #{@seed}: #{copy}"
      end
    end
  end

  def test_nothing_is_committed_on_which_somebody_works
    ROUNDS.times do
      model = Model.new
      OPERATIONS.times do
        act(model)
        committed = model.committed or next
        first = model.first_open or next
        assert_operator committed, :<=, first, "seed #{@seed}"
      end
    end
  end

  # In KB.
  def memory
    GC.start
    File.read("/proc/self/statm").split[1].to_i * 4
  end

  slow def test_what_a_thread_still_works_on_does_not_make_the_rest_grow
    ledger = Model.new.ledger
    first, *others = Array.new(50_001) { |offset| Penstock::Message.new(topic: "t", partition: 0, offset:) }
    ledger.hand_out([first], [], 2, nil)
    others.shift(1_000).each { |message| poll(ledger, message) }
    before = memory
    others.each { |message| poll(ledger, message) }
    assert_operator memory - before, :<, 3_000
    assert_nil ledger.processed.dig(0, 2)
  end

  # The topic was deleted and created, or the log was truncated.
  def test_what_was_polled_before_the_log_began_anew_cannot_be_marked
    model = Model.new
    model.hand_out(10, 1)
    model.finish(1)
    model.hand_out(5, 1)
    old = model.copies.dup
    given = Array.new(20) { |offset| Penstock::Message.new(topic: "t", partition: 0, offset:) }
    fresh = model.ledger.hand_out(given, [], 2, nil)
    assert_equal [false] * 15, old.map { |copy| model.ledger.mark(copy.message) }
    assert_equal 0, model.committed
    assert model.ledger.mark(fresh.last)
    assert_equal 20, model.committed
  end

  def poll(ledger, message)
    ledger.finish(1)
    ledger.hand_out([message], [], 1, nil)
  end

  def epoch_of(copy) = Internal::ConsumerClient.epoch_of(copy.message)
end

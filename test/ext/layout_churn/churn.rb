# frozen_string_literal: true

# One process of the loop in test/proofs/support/ffi_defect.rb: ruby churn.rb KIND SECONDS. The seconds are CPU time.
# KIND is one of
#
#   unprotected, protected   struct layouts of this folder's extension, whose field Hash is stored without or with a write barrier
#   penstock                 the same usage of Penstock's own objects: producers, handles, reports and consumed messages
#
# Four threads fill and drop objects, and check each object some time after they have filled it. The program starts no
# collection: Ruby decides when to collect. If an object is not the one that was stored, the process prints a line and exits with
# status 1, or a signal ends it.
class Churn
  THREADS = 4
  KEPT = 500
  GARBAGE = "g" * 100 # a String of the same size as the object that it may replace: an empty Hash, in Ruby 3.1 and later

  def initialize(seconds)
    @until = now + seconds
    @rounds = Array.new(THREADS, 0)
  end

  # @return [Integer] number of rounds of all threads
  def run
    threads = Array.new(THREADS) { |i| Thread.new { churn(i) } }
    threads.each { |thread| thread.report_on_exception = false }.each(&:join)
    @rounds.sum
  end

  private

  # CPU time, so that the amount of work does not depend on the load of the machine.
  def now = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

  def churn(thread)
    kept = Array.new(KEPT) { |i| make(thread, i) }
    strings = Array.new(20_000)
    until now > @until
      i = rand(KEPT)
      check(kept[i])
      kept[i] = again(kept[i], thread, i)
      30.times { strings[rand(strings.size)] = GARBAGE.dup << "." }
      @rounds[thread] += 1
    end
  end

  # @return [Object] the object that replaces `kept`
  def again(_kept, thread, index) = make(thread, index)

  def expect(expected, found)
    raise "another object: #{found.inspect} instead of #{expected.inspect}" unless expected == found
  end
end

class LayoutChurning < Churn
  NAMES = %i[id size data next].freeze

  def initialize(seconds, barrier)
    super(seconds)
    @barrier = barrier
  end

  private

  def make(*) = LayoutChurn::Layout.new.tap { |layout| layout.define(NAMES, @barrier) }

  # One in ten layouts is new. The others are old by now and get new fields.
  def again(kept, *) = rand(10).zero? ? make : kept.tap { kept.define(NAMES, @barrier) }

  # Reading a Hash that is freed and not yet replaced would crash Ruby, so such a layout is checked later.
  def check(layout)
    NAMES.each_with_index { |name, i| expect(i * 8, layout[name]) } unless layout.state == :freed
  end
end

# Half of the threads consume, half produce.
class PenstockChurning < Churn
  Sent = Struct.new(:handle, :report, :label, :error)
  MESSAGES = 5_000

  def initialize(seconds)
    super
    @cluster = Penstock::EmbeddedCluster.new
    @cluster.create_topic("read", partitions: 1)
    @cluster.create_topic("written", partitions: THREADS)
    @producers = Array.new(THREADS) { producer }
    @producers.first.produce_many_sync(Array.new(MESSAGES) do |i|
      { topic: "read", payload: "payload #{i}", key: "key #{i}", partition: 0, headers: { "n" => i.to_s, "two" => %w[a b] } }
    end)
    @readers = Array.new(THREADS) { reader }
  end

  def run = super.tap { [*@producers, *@readers, @cluster].each(&:close) }

  private

  def producer
    Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": @cluster.bootstrap_servers } }
  end

  def reader
    Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": @cluster.bootstrap_servers } }
  end

  def make(thread, index) = thread.even? ? messages(thread) : sent(thread, index)

  # The next messages of the topic. At its end, reading starts again from the beginning.
  def messages(thread)
    found = @readers[thread].poll_batch(max: 50, timeout: 0)
    return found unless found.empty?

    @readers[thread].assign("read" => { 0 => :beginning })
    found = @readers[thread].poll_batch(max: 50, timeout: 1) while found.empty?
    found
  end

  def sent(thread, index)
    renew(thread) if rand(2_000).zero?
    label = "label #{thread} #{index} #{rand(1_000_000)}"
    handle = @producers[thread].produce_async(topic: +"written", payload: "x", partition: thread, label: label.dup)
    report = handle.wait if rand(50).zero?
    Sent.new(handle, report, label, nil)
  end

  def renew(thread)
    @producers[thread].close
    @producers[thread] = producer
  end

  def check(kept)
    return kept.each { |message| check_message(message) } if kept.is_a?(Penstock::Batch)

    kept.report ||= kept.handle.report
    [kept.handle, kept.report].compact.each { |one| expect([kept.label, "written"], [one.label, one.topic]) }
  end

  def check_message(message)
    number = message.offset.to_s
    expect(["read", "key #{number}", "payload #{number}", { "n" => number, "two" => %w[a b] }],
           [message.topic, message.key, message.payload, message.headers])
  end
end

if $PROGRAM_NAME == __FILE__
  $stdout.sync = true
  kind, seconds = ARGV
  begin
    rounds =
      case kind
      when "penstock"
        require "penstock"
        PenstockChurning.new(Float(seconds)).run
      else
        require "layout_churn"
        LayoutChurning.new(Float(seconds), kind == "protected").run
      end
    puts "#{rounds} rounds, #{GC.stat(:minor_gc_count)} minor and #{GC.stat(:major_gc_count)} major collections"
  rescue StandardError => e
    puts "#{e.class}: #{e.message.lines.first}"[0, 200]
    exit!(1) # the heap is corrupt, so at_exit code must not run
  end
end

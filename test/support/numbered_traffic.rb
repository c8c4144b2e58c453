# frozen_string_literal: true

# Threads that send numbered messages on one producer in every way it has, as fast as they are allowed to, and remember
# the verdict on each.
#
# A stream is what one thread sends to one partition, which it names itself or leaves to a key. Its messages are numbered
# from 0, and their payload is "thread/stream/number".
class NumberedTraffic
  # What a message of each stream has besides its topic and payload.
  STREAMS = [
    { partition: 0 }, { partition: 1 }, { partition: 2 }, { partition: 3 },
    { key: "a" }, { key: "b" }, { key: "c" }, { partition_key: "d" }, { partition_key: "e" }
  ].freeze
  # Messages that go with one call, in turn; :each: one by one.
  WAYS = [[:sync, 1], [:many, 400], [:each, 200], [:many, 30], [:each, 100], [:many, 2_500], [:each, 100]].freeze

  # `status` as DeliveryReport's; partition and offset of those that are delivered, the error of those that are not.
  Verdict = Struct.new(:payload, :status, :delivered, :partition, :offset, :error)

  def initialize(producer, topic, threads:)
    @producer = producer
    @topic = topic
    @lock = Mutex.new
    @changed = ConditionVariable.new
    @allowed = @begun = @taken = 0
    @no_more = false
    @error = nil
    @verdicts = []
    @threads = Array.new(threads) { |number| Thread.new { work(number) } }
    @threads.each { |thread| thread.report_on_exception = false }
  end

  # So many more may be sent.
  def allow(messages)
    @lock.synchronize do
      @allowed += messages
      @changed.broadcast
    end
  end

  # Waits until librdkafka has taken all that may be sent but so many.
  def await(but: 0)
    @lock.synchronize do
      @changed.wait(@lock) until @taken >= @allowed - but || @error
      raise @error if @error
    end
  end

  # @return [Integer] messages that may be sent and that librdkafka has not taken
  def held_up = @lock.synchronize { @allowed - @taken }

  # Lets the threads end, and waits for every message's verdict.
  # @return [Array<Verdict>]
  def finish
    @lock.synchronize do
      @no_more = true
      @changed.broadcast
    end
    @threads.each(&:join)
    @verdicts
  end

  # For when the test has failed.
  def stop = @threads.each(&:kill).each { |thread| thread.join rescue nil } # rubocop:disable Style/RescueModifier

  private

  # @return [Integer] how many of these messages the calling thread may send now; 0: it ends
  def begin_some(wanted)
    @lock.synchronize do
      @changed.wait(@lock) until @begun < @allowed || @no_more
      count = [wanted, @allowed - @begun].min
      @begun += count
      count
    end
  end

  def took(count)
    @lock.synchronize do
      @taken += count
      @changed.broadcast
    end
  end

  def work(number)
    sent = 0
    handles = []
    verdicts = []
    WAYS.rotate(number).cycle do |way, wanted|
      count = begin_some(wanted)
      break if count.zero?

      send_some(way, Array.new(count) { |i| message(number, sent + i) }, handles, verdicts)
      sent += count
      took(count)
    end
    verdicts.concat(verdicts_of(handles))
    @lock.synchronize { @verdicts.concat(verdicts) }
  rescue Exception => e # rubocop:disable Lint/RescueException -- whatever it is, the test has to see it
    @lock.synchronize do
      @error ||= e
      @changed.broadcast
    end
    raise
  end

  def message(thread, number)
    number, stream = number.divmod(STREAMS.size)
    payload = "#{thread}/#{stream}/#{number}"
    { topic: @topic, payload:, label: payload, **STREAMS[stream] }
  end

  def send_some(way, messages, handles, verdicts)
    case way
    when :sync then messages.each { |message| verdicts << send_and_wait(message) }
    when :each then messages.each { |message| handles << @producer.produce_async(message) }
    when :many then send_many(messages, handles)
    end
  end

  def send_and_wait(message)
    report = @producer.produce_sync(message)
    Verdict.new(message[:payload], report.status, true, report.partition, report.offset)
  rescue Penstock::DeliveryError => e
    Verdict.new(message[:payload], e.retriable? ? :not_persisted : :possibly_persisted, false, nil, nil, e.message)
  end

  # What was not taken, because a fatal error came in between, is sent again, as a program would.
  def send_many(messages, handles)
    handles.concat(@producer.produce_many_async(messages))
  rescue Penstock::ProduceManyError => e
    raise unless e.fatal?

    handles.concat(e.dispatched)
    messages = messages.drop(e.dispatched.size)
    retry
  end

  def verdicts_of(handles)
    raise "messages without a verdict" if Penstock::DeliveryHandle.await_all(handles, timeout: 60).nil?

    handles.map do |handle|
      report = handle.report
      Verdict.new(report.label, report.status, report.delivered?, report.partition, report.offset, report.error&.message)
    end
  end
end

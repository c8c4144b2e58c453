# frozen_string_literal: true

# Threads that send numbered messages on one producer in every way it has, as fast as allowed, and record each message's result.
#
# A stream is the messages of one thread to one partition, which the thread or a key chooses. Its messages are numbered from 0,
# and their payload is "thread/stream/number".
class NumberedTraffic
  # The attributes of each stream's messages besides topic and payload.
  STREAMS = [
    { partition: 0 }, { partition: 1 }, { partition: 2 }, { partition: 3 },
    { key: "a" }, { key: "b" }, { key: "c" }, { partition_key: "d" }, { partition_key: "e" }
  ].freeze
  # The number of messages that each call sends, in turn. :each sends them one by one.
  WAYS = [[:sync, 1], [:many, 400], [:each, 200], [:many, 30], [:each, 100], [:many, 2_500], [:each, 100]].freeze

  # `status` is the DeliveryReport's. Delivered messages have a partition and an offset, the others an error.
  Result = Struct.new(:payload, :status, :delivered, :partition, :offset, :error)

  def initialize(producer, topic, threads:)
    @producer = producer
    @topic = topic
    @lock = Mutex.new
    @changed = ConditionVariable.new
    @allowed = @begun = @accepted = 0
    @no_more = false
    @error = nil
    @results = []
    @threads = Array.new(threads) { |number| Thread.new { work(number) } }
    @threads.each { |thread| thread.report_on_exception = false }
  end

  # Allows that many more messages to be sent.
  def allow(messages)
    @lock.synchronize do
      @allowed += messages
      @changed.broadcast
    end
  end

  # Waits until librdkafka has accepted all allowed messages except `but`.
  def await(but: 0)
    @lock.synchronize do
      @changed.wait(@lock) until @accepted >= @allowed - but || @error
      raise @error if @error
    end
  end

  # @return [Integer] messages that may be sent and that librdkafka has not accepted
  def held_up = @lock.synchronize { @allowed - @accepted }

  # Makes the threads end, and waits for every message's result.
  # @return [Array<Result>]
  def finish
    @lock.synchronize do
      @no_more = true
      @changed.broadcast
    end
    @threads.each(&:join)
    @results
  end

  # For a failed test.
  def stop = @threads.each(&:kill).each { |thread| thread.join rescue nil } # rubocop:disable Style/RescueModifier

  private

  # @return [Integer] how many messages the calling thread may send now; at 0 it ends
  def begin_some(wanted)
    @lock.synchronize do
      @changed.wait(@lock) until @begun < @allowed || @no_more
      count = [wanted, @allowed - @begun].min
      @begun += count
      count
    end
  end

  def accepted(count)
    @lock.synchronize do
      @accepted += count
      @changed.broadcast
    end
  end

  def work(number)
    sent = 0
    handles = []
    results = []
    WAYS.rotate(number).cycle do |way, wanted|
      count = begin_some(wanted)
      break if count.zero?

      send_some(way, Array.new(count) { |i| message(number, sent + i) }, handles, results)
      sent += count
      accepted(count)
    end
    results.concat(results_of(handles))
    @lock.synchronize { @results.concat(results) }
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

  def send_some(way, messages, handles, results)
    case way
    when :sync then messages.each { |message| results << send_and_wait(message) }
    when :each then messages.each { |message| handles << @producer.produce_async(message) }
    when :many then send_many(messages, handles)
    end
  end

  def send_and_wait(message)
    report = @producer.produce_sync(message)
    Result.new(message[:payload], report.status, true, report.partition, report.offset)
  rescue Penstock::DeliveryError => e
    Result.new(message[:payload], e.retriable? ? :not_persisted : :possibly_persisted, false, nil, nil, e.message)
  end

  # Messages that were not accepted because of a fatal error are sent again, as a program would.
  def send_many(messages, handles)
    handles.concat(@producer.produce_many_async(messages))
  rescue Penstock::ProduceManyError => e
    raise unless e.fatal?

    handles.concat(e.dispatched)
    messages = messages.drop(e.dispatched.size)
    retry
  end

  def results_of(handles)
    raise "messages without a delivery result" if Penstock::DeliveryHandle.await_all(handles, timeout: 60).nil?

    handles.map do |handle|
      report = handle.report
      Result.new(report.label, report.status, report.delivered?, report.partition, report.offset, report.error&.message)
    end
  end
end

# frozen_string_literal: true

module Penstock
  # Sends messages to Kafka.
  #
  #     producer = Penstock::Producer.new do |config|
  #       config.kafka = { "bootstrap.servers": "localhost:9092" }
  #     end
  #     producer.produce_sync(topic: "events", payload: "hello")  # => DeliveryReport
  #     producer.close
  #
  # A message is a Hash with Symbol keys:
  # - `topic` (String or Symbol, required)
  # - `payload` (String, or nil for a tombstone; required)
  # - `key` (String): also decides the partition, as the `partitioner` setting says
  # - `partition` (Integer): goes there; -1 or absent: the partitioner decides
  # - `partition_key` (String): decides the partition in place of `key`
  # - `timestamp` (Time, or Integer of ms since the epoch; absent or 0: now)
  # - `headers` (Hash of String to String or Array of Strings)
  # - `label` (anything): handed back in the handle and the report, not sent
  #
  # Strings are sent as their bytes, whatever their encoding, and are copied before the call returns.
  #
  # Making a producer checks its configuration and connects nothing; the first use does. Any thread and fiber may use
  # a producer, any number at once. In a forked child it connects anew at its first use there, unless it was closed.
  # Every message that is taken gets exactly one verdict, also when the producer is closed, dropped or still open
  # when the process ends.
  class Producer
    # @return [Config] frozen
    attr_reader :config

    # @yieldparam config [Config]
    # @raise [ConfigurationInvalidError] naming the setting that is wrong
    def initialize
      @config = Config.new
      yield @config if block_given?
      @config.finish
      @client = build_client
    end

    # @return [String] the name given as `config.id`
    def id = config.id

    # Sends a message and waits for its verdict.
    #
    # Blocks: this thread, until the verdict or `config.max_wait_timeout`, without the GVL; interruptible at once.
    #
    # @param message [Hash] see {Producer}
    # @return [DeliveryReport] of a message that was delivered
    # @raise [MessageInvalidError] the message cannot be sent as it is; nothing was sent
    # @raise [QueueFullError] librdkafka's queue has no room; nothing was sent
    # @raise [DeliveryError] the verdict is a failure
    # @raise [WaitTimeoutError] no verdict in time; the message may still be delivered
    # @raise [ProducerClosedError] nothing was sent
    def produce_sync(message)
      @client.produce(message).wait(max_wait_timeout_ms: config.max_wait_timeout)
    end

    # Sends a message without waiting.
    #
    # Blocks: no, except at the first use, for the ms it takes to make the client's threads.
    #
    # @param message [Hash] see {Producer}
    # @return [DeliveryHandle]
    # @raise [MessageInvalidError, QueueFullError, ProducerClosedError] see {#produce_sync}; nothing was sent
    def produce_async(message)
      @client.produce(message)
    end

    # Sends messages and waits for all their verdicts. All are checked before the first is sent.
    #
    # Blocks: like {#produce_sync}, `config.max_wait_timeout` being for all together.
    #
    # @param messages [Array<Hash>] see {Producer}
    # @return [Array<DeliveryHandle>] one for each message, in order, each with its verdict: all were delivered
    # @raise [MessageInvalidError] one of them cannot be sent as it is; nothing was sent
    # @raise [ProduceManyError] at least one was not taken or not delivered; `dispatched` has the handles of those
    #   that were taken, and they have their verdicts
    # @raise [WaitTimeoutError] not all verdicts came in time
    def produce_many_sync(messages)
      handles, error, delivered = @client.produce_many(messages, config.max_wait_timeout)
      raise unfinished(handles) if delivered.nil? && handles.any?(&:pending?)

      error ||= handles.find(&:error)&.error unless delivered
      raise ProduceManyError.from(error, handles, messages.size) if error

      handles
    end

    # Sends messages without waiting. All are checked before the first is sent.
    #
    # Blocks: like {#produce_async}. The GVL is held while the messages are checked, about a tenth of a microsecond for
    # each, and released while they are handed to librdkafka.
    #
    # @param messages [Array<Hash>] see {Producer}
    # @return [Array<DeliveryHandle>] one for each message, in order
    # @raise [MessageInvalidError] one of them cannot be sent as it is; nothing was sent
    # @raise [ProduceManyError] librdkafka did not take all, such as when its queue is full; `dispatched` has the
    #   handles of those before the first that was not
    def produce_many_async(messages)
      handles, error = @client.produce_many(messages, false)
      raise ProduceManyError.from(error, handles, messages.size) if error

      handles
    end

    # Waits until no message is in flight any more, sending at once what `linger.ms` would hold back.
    #
    # Blocks: this thread, until then or until the timeout, without the GVL; interruptible at once.
    #
    # @param timeout [Numeric, nil] seconds; nil: without limit; default: `config.max_wait_timeout`
    # @return [true]
    # @raise [WaitTimeoutError] the time was up first; the messages stay on their way
    def flush(timeout: default_flush_timeout)
      return true if @client.flush(timeout && (timeout * 1000))

      raise @client.timeout_error("#{queue_size} messages have no verdict after #{timeout} s", nil)
    end

    # Refuses new messages, delivers those in flight, gives up (purges) what the time does not suffice for, and
    # frees everything. Every handle has its verdict afterwards. Closing again does nothing; closing from several
    # threads at once closes once, and all wait for it.
    #
    # Blocks: this thread, until then, at most a tenth longer than the timeout; interruptible at once, and closing
    # then goes on by itself. May be called from a signal trap, an `at_exit` block and a forked child.
    #
    # @param timeout [Numeric, nil] seconds to go on delivering; nil: without limit; default: `config.close_timeout`
    # @return [CloseReport] what became of the messages in flight
    def close(timeout: config.close_timeout / 1000.0)
      CloseReport.new(*@client.close(timeout && (timeout * 1000))).freeze
    end

    # @return [Boolean] whether {#close} was called; never blocks
    def closed? = %i[closing closed].include?(@client.state)

    # @return [Integer] messages that were taken and have no verdict yet; never blocks
    def queue_size = @client.queue_size

    alias queue_length queue_size

    # How many partitions a topic has. Remembered for 30 seconds. On clusters that create topics on demand, asking
    # creates the topic.
    #
    # Blocks: this thread, for a round trip if the answer is not known, without the GVL; interruptible at once.
    #
    # @param topic [String, Symbol]
    # @return [Integer] -1 if the cluster does not know the topic
    # @raise [Error] the cluster did not answer within 5 seconds
    def partition_count(topic)
      @client.partition_count(topic.is_a?(Symbol) ? topic.name : topic, 5_000, 30_000)
    end

    # Never blocks, never shows settings.
    def inspect = "#<#{self.class} #{id} #{@client.state}>"

    private

    def build_client
      Client.new(id, config.kafka, config.polling.poller || Poller.instance, config.logger, config.max_payload_size,
                 config.close_timeout, config.polling.fd.max_time, config.polling.fd.periodic_poll_interval)
    end

    def default_flush_timeout = config.max_wait_timeout && (config.max_wait_timeout / 1000.0)

    def unfinished(handles)
      pending = handles.select(&:pending?)
      text = "#{pending.size} of #{handles.size} messages have no verdict after #{config.max_wait_timeout} ms"
      @client.timeout_error(text, pending.first&.topic)
    end
  end
end

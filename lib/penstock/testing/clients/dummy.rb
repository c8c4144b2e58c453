# frozen_string_literal: true

module Penstock
  # Clients that send nothing, for tests and for programs that run without Kafka.
  module Clients
    # Replaces the connection to Kafka: accepts and checks messages like the real client, and reports at once that they were
    # delivered. No I/O, no threads, no messages are kept.
    #
    # Reports have offsets that count from 0 in each partition. A message without a partition goes to partition 0. Listeners
    # of "message.acknowledged" run on the thread that produces, before the call returns.
    #
    # Messages can be made to fail, with a code or an error object:
    #
    #     producer.client.fail_next(:msg_timed_out, times: 2)
    #     producer.client.script { |message| :topic_authorization_failed if message[:topic] == "secret" }
    #
    # A code has the same effect as in a real producer. For `:queue_full`, `:fatal` and `:state`, produce raises and does
    # not accept the message. The others become its delivery result: a {DeliveryError}, and an "error.occurred" of the type
    # "librdkafka.dispatch_error". Of the error objects, a {DeliveryError} or {ProducerFencedError} becomes the delivery
    # result; produce raises the others.
    #
    # Transactions are checked as in librdkafka: a transactional producer accepts messages only in a transaction, and after
    # a message failed the transaction can only be aborted.
    #
    # Any thread and fiber may use it, also in a fork child. Never blocks.
    class Dummy
      include AsJson

      # librdkafka's default
      MESSAGE_MAX_BYTES = 1_000_000
      private_constant :MESSAGE_MAX_BYTES

      # The value of `caller` in events.
      # @return [Object] this client, unless a producer set itself
      attr_writer :producer

      # @param config [Config]
      # @param monitor [Monitor]
      # @raise [ConfigurationInvalidError] when message.max.bytes is no Integer
      def initialize(config, monitor)
        settings = config.kafka.transform_keys(&:to_s)
        @id = config.id
        @monitor = monitor
        @limits = [config.max_payload_size, message_max_bytes(settings)].freeze
        @transactional = !settings["transactional.id"].to_s.empty?
        @idempotent = @transactional || %w[true t 1].include?(settings["enable.idempotence"].to_s.downcase)
        @failure = Failure.new(@id, settings["bootstrap.servers"]&.to_s)
        @producer = self
        @lock = Mutex.new
        @accepted = @failed = 0
        @connected = @closed = false # separate, so that nothing reopens a client that a signal trap closed
        @transaction = nil # :ready, :running, or the error because of which it can only be aborted
        forget
      end

      # ---- making messages fail ----

      # Makes the next messages fail, after earlier calls of this method, and before {#script} runs.
      # @param error [Symbol, Error] see {Dummy}
      # @param times [Integer] number of messages
      # @return [self]
      # @raise [ArgumentError] when an argument is invalid
      # @overload fail_next(error, times: 1)
      def fail_next(error, *more, times: 1, **wrong)
        Keywords.check("fail_next(:msg_timed_out, times: 1)", %i[times], more, wrong)
        Failure.checked(error)
        times.is_a?(Integer) && times >= 0 or raise ArgumentError, "times must be an Integer of at least 0, not #{times.inspect}"
        @lock.synchronize { times.times { @failures << error } }
        self
      end

      # Runs the block for each message from now on, in place of an earlier script; without a block, none runs. It runs on
      # the thread that produces. If it raises, the sending call raises its error and accepts no message.
      # @yieldparam message [Hash] as it would be sent
      # @yieldreturn [nil, Symbol, Error] nil: the message is delivered; otherwise see {Dummy}
      # @return [self]
      def script(&block)
        @lock.synchronize { @script = block }
        self
      end

      # Forgets failures and script; offsets begin at 0 again.
      # @return [self]
      def reset
        @lock.synchronize { forget }
        self
      end

      # ---- the methods of Penstock::Native::ProducerClient that the producer calls ----

      # @return [self]
      def connect
        raise_closed
        @connected = true
        self
      end

      # @return [Handle]
      def produce(message)
        connect
        topic = check(message, nil)
        handles, error = take([message], [topic])
        raise error if error

        handles.first
      end

      # @return [Array(Array<Handle>, Error, Boolean)] see produce_methods.c; the last two may be nil
      def produce_many(messages, timeout_ms, tally = nil)
        connect
        raise Failure.not_an_array(messages) unless messages.is_a?(Array)

        messages = messages.dup
        topics = messages.each_with_index.map { |message, index| check(message, index) }
        handles, error = take(messages, topics)
        tally[0] = handles.size if tally
        [handles, error, timeout_ms == false ? nil : error.nil? && Handle.await_all(handles)]
      end

      # @return [true]
      def flush(_timeout_ms = nil)
        raise_closed
        true
      end

      # Takes no lock, so that it may be called from a signal trap.
      # @return [Array<Integer>] see {CloseReport}: nothing is ever in flight
      def close(_timeout_ms = nil, _stop_ms = nil)
        @closed = true
        [0, 0, 0, 0, 0]
      end

      # It tells its monitor itself.
      def event_source=(_source); end

      # It logs in nowhere.
      def token_refresher=(_refresher); end

      # Called by the producer.
      def set_credentials(_username, _password); end

      # @return [Hash{Integer => Integer}] there are none
      def latencies = {}

      # Called by the producer.
      def begin_closing(_timeout_ms) = @closed = true

      # Called by the producer.
      def hurry(_timeout_ms); end

      # @return [Integer] 0: nothing is ever in flight
      def purge = 0

      # @return [Integer] 0: nothing is ever in flight
      def queue_size = 0

      # @return [Hash{Symbol => Integer}] accepted `messages`; `delivered` and `failed` ones
      def counters = { messages: @accepted, delivered: @accepted - @failed, failed: @failed }

      # @return [Integer] 1
      def partition_count(topic, _timeout_ms = nil, _max_age_ms = nil)
        connect
        check({ topic:, payload: nil }, nil)
        1
      end

      # @return [Array(nil, Integer, Array)] no cluster, no controller and no brokers, see {Native::ProducerClient}
      def brokers(_timeout_ms) = connect && [nil, -1, []]

      # @return [:configured, :open, :closed]
      def state
        return :closed if @closed

        @connected ? :open : :configured
      end

      # @return [WaitTimeoutError]
      def timeout_error(text, topic) = @failure.build(WaitTimeoutError, :timed_out, text, topic:)

      # @return [nil] there is none, whatever is made to fail
      def fatal_error = nil

      # @return [Error, nil] of the first message of the transaction that failed, while it can only be aborted
      def failed_message = (@transaction if @transaction.is_a?(Error))

      # @return [Boolean]
      def transactional? = @transactional

      # @return [Boolean]
      def idempotent? = @idempotent

      # Called by the producer.
      def init_transactions(_timeout_ms = nil)
        connect
        transaction_step("initialize transactions", nil, :ready)
      end

      # Called by the producer.
      def begin_transaction(_timeout_ms = nil)
        transaction_step("begin a transaction", :ready, :running) { transaction_begun }
      end

      # @raise [Error] abortable, if a message of the transaction failed
      def commit_transaction(_timeout_ms = nil)
        transaction_step("commit", :running, :ready) { transaction_ended(true) }
      end

      # Called by the producer.
      def abort_transaction(_timeout_ms = nil)
        transaction_step("abort", %i[running failed], :ready) { transaction_ended(false) }
      end

      # Called by the producer.
      def send_offsets_to_transaction(_offsets, _group, _timeout = nil) = transaction_step("commit offsets", :running, :running)

      # @return [String]
      def inspect = "#<#{self.class} #{state}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(state: state.to_s)

      private

      # For a subclass, with the lock held: a message was delivered, a transaction began or ended.
      def keep(message, topic); end
      def transaction_begun; end
      def transaction_ended(committed); end

      def forget
        @offsets = Hash.new(0) # the next one, by [topic, partition]
        @failures = []
        @script = nil
      end

      def message_max_bytes(settings)
        given = settings.fetch("message.max.bytes", MESSAGE_MAX_BYTES)
        Integer(given, exception: false) or
          raise ErrorFactory.build(ConfigurationInvalidError,
                                   "config.kafka: message.max.bytes must be an Integer: #{given.inspect}")
      end

      def raise_closed = @closed && raise(@failure.build(ProducerClosedError, nil, "the producer is closed"))

      def check(message, index) = Native::ProducerClient.check(message, index, *@limits)

      # @return [Array(Array<Handle>, Error)] one for each message that was taken, and why the next one was not
      def take(messages, topics)
        messages = messages.zip(topics)
        errors, rejection = decide(messages)
        handles = @lock.synchronize do
          messages.first(errors.size).zip(errors).map { |(message, topic), error| settle(message, topic, error) }
        end
        handles.each { |handle| publish(handle.report) } # without the lock: a listener may produce
        [handles, rejection]
      end

      # @return [Array(Array<DeliveryError, ProducerFencedError, nil>, Error)] delivery results, up to the first message
      #   that is not accepted
      def decide(messages)
        errors = []
        messages.each do |message, topic|
          wanted = wanted_for(message)
          error = wanted && @failure.of(wanted, topic, chosen_partition(message))
          return [errors, error] if error && !Failure.delivery_result?(error)

          errors << error
        end
        [errors, nil]
      end

      def wanted_for(message)
        return :state if transactional? && !in_transaction?

        failure, script = @lock.synchronize { [@failures.shift, @script] }
        wanted = failure || script&.call(message)
        wanted && Failure.checked(wanted)
      end

      def settle(message, topic, error)
        @transaction = error if error && @transaction == :running
        @accepted += 1
        @failed += 1 if error
        keep(message, topic) unless error
        Handle.new(error ? failed_report(message, topic, error) : delivered_report(message, topic))
      end

      def delivered_report(message, topic)
        partition = chosen_partition(message) || 0
        offset = @offsets[[topic, partition]]
        @offsets[[topic, partition]] += 1
        DeliveryReport.new(topic, partition, offset, timestamp(message), 0.0, :persisted, message[:label], nil)
      end

      def failed_report(message, topic, error)
        status = error.retriable? || ErrorFactory.permanent?(error.class, error.code) ? :not_persisted : :possibly_persisted
        DeliveryReport.new(topic, chosen_partition(message), nil, nil, nil, status, message[:label], error)
      end

      def chosen_partition(message)
        partition = message[:partition]
        partition if partition && partition >= 0
      end

      # Like librdkafka: ms, and none means now.
      def timestamp(message)
        given = message[:timestamp]
        given = (given.to_r * 1000).floor if given.is_a?(Time)
        given.nil? ? Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond) : given
      end

      def publish(report)
        event = report.error ? "error.occurred" : "message.acknowledged"
        return unless @monitor.listening?(event)

        payload = { producer_id: @id, topic: report.topic, partition: report.partition, offset: report.offset,
                    delivery_report: report, label: report.label, caller: @producer }
        payload = { type: "librdkafka.dispatch_error", error: report.error, **payload } if report.error
        @monitor.instrument(event, payload)
      end

      def in_transaction? = @transaction == :running || !failed_message.nil?

      def transaction_step(name, from, to)
        raise_closed
        raise transaction_error(name, :not_configured, "the producer has no transactional.id") unless transactional?

        @lock.synchronize do
          state = failed_message ? :failed : @transaction
          if state == :failed && from == :running
            raise transaction_error(name, :inconsistent, "a message of the transaction failed, so it has to be aborted",
                                    abortable: true)
          end
          unless Array(from || [nil, :ready]).include?(state)
            raise transaction_error(name, :state, "the transaction is #{state || "not initialized"}")
          end

          @transaction = to
          yield if block_given?
        end
        nil
      end

      def transaction_error(name, code, why, **traits)
        @failure.build(TransactionError, code, "cannot #{name}: #{why}", **traits)
      end
    end
  end
end

# frozen_string_literal: true

require_relative "native"
require_relative "producer/close_report"
require_relative "producer/delivery_report"
require_relative "producer/delivery_handle"
require_relative "producer/config"
require_relative "producer/middleware"
require_relative "producer/status"
require_relative "producer/connection"
require_relative "producer/send_context"
require_relative "producer/send_hooks"
require_relative "producer/resending"
require_relative "producer/tombstones"
require_relative "producer/serializer"
require_relative "producer/publishing"
require_relative "producer/metrics"
require_relative "producer/ractor_support"
require_relative "producer/buffering"
require_relative "producer/transactions"
require_relative "producer/transaction_lock"
require_relative "producer/variant"
require_relative "producer/variant_checks"
require_relative "producer/variants"
require_relative "producer/closing"
require_relative "producer/credentials"
require_relative "producer/idle_disconnector"
require_relative "producer/shareable_producer"

module Penstock # rubocop:disable Style/Documentation -- in lib/penstock.rb
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
  # - `payload` (String, or nil for a tombstone; required; with {Config#serializer} any object)
  # - `key` (String): also decides the partition, as the `partitioner` setting says
  # - `partition` (Integer): goes there; -1 or absent: the partitioner decides
  # - `partition_key` (String): decides the partition in place of `key`
  # - `timestamp` (Time, ActiveSupport::TimeWithZone, or Integer of ms since the epoch; absent or 0: now)
  # - `headers` (Hash of String to String or Array of Strings)
  # - `label` (anything): handed back in the handle and the report, not sent
  #
  # Strings are sent as their bytes, whatever their encoding, and are copied before the call returns.
  #
  # Making a producer checks its configuration and connects nothing; the first use does. Any thread and fiber may use
  # a producer, any number at once. In a forked child it connects anew at its first use there, unless it was closed;
  # what was in its buffer is the parent's to send.
  # A signal trap may close a producer, put messages into its buffer, purge it and ask it anything; and send with one that is
  # connected already, has no `transactional.id`, and really delivers. All else, such as {Buffering#flush_sync},
  # {Closing#disconnect}, {Transactions#transaction} and the first use, raises {SignalTrapError} there.
  #
  # What "blocks this thread" does so without the GVL; in a fiber with a scheduler it blocks the fiber only, and others go on
  # (docs/waiting.md). It is interrupted at once by what interrupts a sleep: Thread#raise, Timeout, Ctrl-C, stopping a task.
  #
  # A subclass whose initialize does not call super is refused with a TypeError when one is made.
  #
  # Every message that is taken gets exactly one verdict, also when the producer is closed, dropped or still open
  # when the process ends.
  class Producer
    extend RequiresSuper
    include Uncopyable
    include Publishing
    include SendHooks
    include Buffering
    include Transactions
    include Closing
    include VariantChecks
    include Variants
    include Metrics
    include RactorSupport
    include Credentials
    include AsJson

    private_constant :Connection, :TransactionLock, :IdleDisconnector, :VariantChecks, :Variants

    # @return [Config, nil] frozen; nil before {#setup}
    attr_reader :config
    # @return [Status] where it is in its life
    attr_reader :status
    # @return [Monitor] its events
    attr_reader :monitor
    # @return [Middleware] what each message goes through before it is checked and sent; `append` and `prepend` steps
    attr_reader :middleware
    # @return [Tags] anything the application wants to remember about it
    attr_reader :tags

    # All there are, kept alive by others only. Once there has been a second Ractor, ObjectSpace.each_object shows none.
    @all = ObjectSpace::WeakMap.new

    # (WeakMap#keys of Ruby 3.1 looks whether the value lives, and not the key.)
    # @return [Array<Producer>] those that the process still has
    # @api private
    def self.all = @all.values

    # Itself as the value: with true, Ruby 3.1 shows what is gone, and crashes.
    # @api private
    def self.remember(producer) = @all[producer] = producer

    # At the end of the process. A logger that does not return holds up nothing for longer than a second.
    # @api private
    def self.log_unsent
      unsent = all.select(&:buffer_left?)
      Thread.new { unsent.each(&:log_unsent) }.join(1) if unsent.any?
    end

    # Without a block, {#setup} configures it.
    # @yieldparam config [Config]
    # @raise [ConfigurationInvalidError] naming the setting that is wrong
    def initialize(&block)
      refuse_other_ractors
      @status = Status.new
      @tags = Tags.new
      @monitor = Monitor.new.tap { |monitor| monitor.producer = self }
      @events = nil
      @middleware = Middleware.new
      @hooks = [].freeze
      @adding_hooks = Mutex.new
      @sharing = Mutex.new
      @serializer = nil
      @direct = true # no transactions, no hooks and no serializer
      @transactional = @idempotent = @variants = false
      @connections = { {} => @connection = Connection.new(self) }
      @making_variants = Mutex.new
      @used_settings = ObjectSpace::WeakMap.new
      @transaction_lock = TransactionLock.new
      @flushing = TransactionLock.new("a flush")
      @forgetting = Mutex.new
      @closing_lock = Mutex.new
      @closer = @telling = nil
      @credentials = nil
      @handed_over = nil # in the running transaction, where somebody wants to know what is purged
      begin_buffer
      Producer.remember(self)
      tell_everybody("producer.created", nil)
      setup(&block) if block
    end

    # Configures a producer that was made without a block. Connects nothing.
    # @yieldparam config [Config]
    # @return [self]
    # @raise [ProducerAlreadyConfiguredError] for the second time
    # @raise [ConfigurationInvalidError] naming the setting that is wrong
    def setup
      raise ProducerClosedError, "the producer was closed before it was configured" if config.nil? && closed?
      raise ProducerAlreadyConfiguredError, "the producer is configured already [producer #{id}]" unless status.initial?

      config = Config.new
      yield config
      config.finish
      @monitor = config.monitor || @monitor
      @middleware = config.middleware || @middleware
      @config = config
      @events = Native::EventSource.new(self, config)
      @poller = config.polling.made_poller
      probe = build_client(config.kafka) # finds what is wrong with the settings
      @transactional = probe.transactional?
      @serializer = Serializer.new(config.serializer, id) if config.serializer
      @direct = false if @transactional || @serializer
      @idempotent = probe.idempotent?
      @events.refresh
      status.configured!
      tell_everybody("producer.configured", id, config:)
      self
    end

    # @return [String, nil] the name given as `config.id`; nil before {#setup}
    def id = config&.id

    # @return [Poller, nil] who serves it; nil before {#setup}
    attr_reader :poller

    # @return [Boolean] whether librdkafka removes the duplicates that sending again makes (enable.idempotence)
    def idempotent? = @idempotent

    # The librdkafka client, connected at need. For `config.client_class` and tests.
    # @return [Native::Client]
    # @raise [ProducerNotConfiguredError, ProducerClosedError]
    def client
      check_usable
      current_connection.use
    end

    # The producer with other settings; see {Variant}. To be made once for each combination of settings, and kept.
    #
    # Blocks: no; where there are many, it closes the idle clients of those that were dropped, which takes a moment.
    #
    # @param max_wait_timeout [Integer, nil] ms, instead of the producer's
    # @param topic_config [Hash] librdkafka's topic settings, such as `{ acks: 1 }`, see {Variant::TOPIC_SETTINGS}
    # @return [Variant]
    # @raise [VariantInvalidError] a setting is unknown, has a wrong value, or does not go together with the producer's; or there
    #   are {Variant::MOST} variants with different topic settings already
    def with(max_wait_timeout: config&.max_wait_timeout, topic_config: {})
      check_usable
      SignalTrap.refuse("making a variant")
      make_variant(max_wait_timeout, check_variant(max_wait_timeout, topic_config))
    end
    alias variant with

    # @return [Variant] what the current fiber's messages go through
    # @raise [ProducerNotConfiguredError]
    def current_variant
      check_usable unless config
      Thread.current[variant_key] || Variant.new(self, max_wait_timeout: config.max_wait_timeout, topic_config: {}.freeze)
    end

    # Runs the block with the variant as {#current_variant}.
    # @api private
    def as(variant)
      before = Thread.current[variant_key]
      Thread.current[variant_key] = variant
      yield
    ensure
      Thread.current[variant_key] = before
    end

    # Waits until no message is in flight any more, sending at once what `linger.ms` would hold back. What is in the
    # buffer stays there.
    #
    # Blocks: this thread, until then or until the timeout, without the GVL; interruptible at once.
    #
    # @param timeout [Numeric, nil] seconds, as a Float if it is more than an hour; nil: without limit; default:
    #   `config.max_wait_timeout`
    # @return [true]
    # @raise [WaitTimeoutError] the time was up first; the messages stay on their way
    # @raise [RefusedError, BrokersUnreachableError] messages failed for that meanwhile; nothing is in flight any more
    # @raise [ArgumentError] the timeout is none; or an Integer above an hour, which looks like milliseconds
    def flush(timeout: default_flush_timeout)
      check_usable
      timeout = Seconds.of(timeout)
      deadline = timeout && (now + timeout)
      @connections.each_value.flat_map(&:clients).each do |client|
        next if flushed?(client, deadline && [(deadline - now) * 1000, 0].max)

        raise client.timeout_error("no verdict after #{timeout} s for #{Text.count(queue_size, "message")}", nil)
      end
      true
    end

    # Drops what is in the buffer and in flight: messages that no broker has get the verdict purge_queue and are not
    # sent, those on their way to one get purge_inflight and may be in the topic. The producer goes on.
    #
    # Blocks: for the fraction of a ms that librdkafka's threads take to let go of the messages, without the GVL; while one
    # of them is looking up its broker's name, for a second at most, and what is produced until that is done may be dropped
    # as well. Yields to fibers; a signal trap may call it.
    # @return [Integer] messages that were in flight
    def purge
      check_usable
      forget_inherited_buffer
      dropped = []
      timed("buffer.purged", messages: dropped) { dropped.concat(take_buffer) }
      clients.sum { |client| unless_given_up(0) { client.purge } }
    end

    # @return [Integer] messages that were taken and have no verdict yet, without the buffer's; never blocks
    def queue_size = status.initial? ? 0 : @connections.each_value.sum(&:queue_size)

    alias queue_length queue_size

    # How many partitions a topic has. Remembered for 30 seconds, so a topic that grows or is made again is seen then;
    # that there is no such topic is not remembered. On clusters that create topics on demand, asking creates the topic.
    #
    # Keys go by the number that librdkafka knows, which asks every `topic.metadata.refresh.interval.ms`, 5 minutes, and
    # learns it from this method too. A partition that is named may be used as soon as it is there. What is on its way to
    # a partition that has gone gets the verdict unknown_partition, and can be sent again.
    #
    # Blocks: this thread, for a round trip if the answer is not known, without the GVL; interruptible at once.
    #
    # @param topic [String, Symbol]
    # @return [Integer] -1 if the cluster does not know the topic
    # @raise [Error] the cluster did not answer within 5 seconds
    def partition_count(topic)
      asked = client
      asked.partition_count(topic.is_a?(Symbol) ? topic.name : topic, 5_000, 30_000)
    rescue ProducerClosedError
      retry unless asked.nil? || current_connection.client.equal?(asked) # a disconnect came in between
      raise
    end

    # Never blocks, never shows settings.
    # @return [String]
    def inspect = "#<#{[self.class, id && Text.printable(id), status].compact.join(" ")}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(id:, status: status.to_s)

    # @return [Native::Client] or what stands in for it
    # @api private
    def build_client(kafka)
      stand_in = config.deliver ? config.client_class : Clients::Dummy
      return stand_in.new(config, monitor).tap { |client| client.producer = self } if stand_in

      Native::Client.new(id, kafka, poller, config.logger, *config.native_settings).tap do |client|
        client.event_source = @events
        client.token_refresher = Native::TokenRefresher.new(self, :producer_id) if config.oauth.token_provider_listener
      end
    end

    # @return [Integer] messages that its clients have taken so far
    # @api private
    def accepted_count = clients.sum { |client| client.counters[0] }

    # @raise [ProducerNotConfiguredError, ProducerClosedError] it takes nothing
    # @api private
    def check_usable
      return if @status.active?
      raise ProducerNotConfiguredError, "the producer has no configuration yet: call setup" if @status.initial?

      raise ProducerClosedError.new("the producer is closed [producer #{id}]", producer_id: id)
    end

    # What has a transactional.id stays known as the parent's, to be refused.
    # @api private
    def leave_to_parent
      @connections.each_value(&:leave_to_parent) unless @transactional
    end

    # @api private
    def connected
      status.connected!
      look_after_statistics
      IdleDisconnector.watch(self, config.idle_disconnect_timeout) if config.idle_disconnect_timeout.positive?
      instrument("poller.producer_registered") { {} }
      instrument("producer.connected") { { caller: self } }
    end

    # Tells listeners, and builds what they are told only if there are any.
    # @api private
    def instrument(event)
      return if @monitor.silent? || !@monitor.listening?(event)

      tell(event, { producer_id: id, **yield })
    end

    private

    # @see RequiresSuper
    def initialized? = !@status.nil?

    def timed(event, payload = {}, &block)
      return block_given? ? yield : nil unless @monitor.listening?(event)

      tell(event, { producer_id: id, **payload }, &block)
    end

    def current_connection
      return @connection unless @variants

      variant = Thread.current[variant_key]
      variant ? @connections.fetch(variant.topic_config) : @connection
    end

    def max_wait_timeout
      variant = @variants && Thread.current[variant_key]
      variant ? variant.max_wait_timeout : config&.max_wait_timeout
    end

    def variant_key = @variant_key ||= :"penstock_variant_#{object_id}"

    def clients = @connections.values.filter_map(&:client)

    def default_flush_timeout = config&.max_wait_timeout && (config.max_wait_timeout / 1000.0)

    # A client that was given up meanwhile delivers what it has: closing it again waits for that.
    def flushed?(client, timeout_ms)
      client.flush(timeout_ms)
    rescue ProducerClosedError
      check_usable
      client.close(timeout_ms)[3].zero?
    end

    def unless_given_up(otherwise)
      yield
    rescue ProducerClosedError
      check_usable
      otherwise
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  private_constant :Resending, :Tombstones, :Serializer
end

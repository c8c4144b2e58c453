# frozen_string_literal: true

module Penstock # rubocop:disable Style/Documentation -- in lib/penstock.rb
  # Publishes the events of a producer or consumer to subscribers.
  #
  #     monitor.subscribe("message.acknowledged") { |event| puts event[:offset] }
  #     monitor.subscribe(listener) # its methods on_message_acknowledged, on_error_occurred and so on
  #
  # Listeners run one after the other, in the order of their subscriptions. Events of a call, such as
  # "message.produced_sync", run listeners on the calling thread. Other events run them on Penstock's event threads, in
  # order for each producer: "message.acknowledged", "statistics.emitted", and the "error.occurred" of librdkafka. There a
  # listener that is slow, never ends, or ends its thread delays only the events of its own producer; see docs/events.md.
  #
  # A listener that raises affects neither other listeners nor the caller. Its error is published as "error.occurred" of the
  # type "listener.error" (or "callbacks.delivery.error", "callbacks.statistics.error", "callbacks.error.error"), or printed
  # as a warning on stderr if that event has no other subscriber. In an event of a call, only exceptions for the thread
  # reach the caller: those that are no StandardError, ScriptError or SystemStackError, such as Interrupt and SystemExit.
  #
  # {Penstock.monitor} gets the events of every monitor, after the monitor's own listeners.
  #
  # Any thread and fiber may use it, and subscribe while others publish: an event goes to the listeners that were subscribed
  # when it happened. Never blocks, apart from the listeners themselves. A signal trap may call {#instrument} and
  # {#listening?}.
  class Monitor
    extend RequiresSuper
    include AsJson

    # The names of all events.
    EVENTS = %w[
      producer.connected producer.closing producer.closed producer.disconnecting producer.disconnected
      producer.reload producer.reloaded
      message.produced_sync message.produced_async messages.produced_sync messages.produced_async
      message.acknowledged message.purged message.buffered messages.buffered
      buffer.flushed_sync buffer.flushed_async buffer.purged
      transaction.started transaction.committed transaction.aborted transaction.finished transaction.marked_as_consumed
      statistics.emitted oauthbearer.token_refresh
      poller.producer_registered poller.producer_unregistered
      producer.created producer.configured
      connection_pool.created connection_pool.setup connection_pool.shutdown connection_pool.reload connection_pool.reloaded
      consumer.connected consumer.closing consumer.closed consumer.caught_up messages.polled messages.rewound
      rebalance.partitions_assigned rebalance.partitions_revoked rebalance.held_back partition.stuck partition.reset
      offsets.committed offsets.commit_failed
      app.running app.quieting app.quiet app.stopping app.stopped app.stalled app.metrics
      consumer.consumed consumer.revoked consumer.shutdown filtering.throttled
      consumer.consuming.retry consumer.consuming.pause consumer.consuming.seek client.pause client.resume
      dead_letter_queue.dispatched retry_topic.dispatched message.skipped partition.blocked work.abandoned
      offsets.map_ignored offsets.map_shortened
      listener.slow error.occurred
    ].freeze

    # The method of a listener that an event calls.
    METHODS = EVENTS.to_h { |event| [event, :"on_#{event.tr(".", "_")}"] }.freeze

    NO_LISTENERS = EVENTS.to_h { |event| [event, [].freeze] }.freeze

    # Events of the native core, which must know whether they have subscribers.
    NATIVE = %w[message.acknowledged error.occurred statistics.emitted messages.polled offsets.committed offsets.commit_failed
                rebalance.partitions_assigned rebalance.partitions_revoked rebalance.held_back consumer.caught_up
                partition.reset messages.rewound].freeze
    # Events of a call: while one has a subscriber, other Ractors cannot produce.
    PER_CALL = %w[message.produced_sync message.produced_async messages.produced_sync messages.produced_async].freeze
    # Events whose subscriptions producers and consumers must know.
    WATCHED = [*NATIVE, *PER_CALL].freeze # M:per_call_listeners_watched
    private_constant :METHODS, :NO_LISTENERS, :NATIVE, :WATCHED

    # @param above [Monitor, nil] a monitor that gets the same events; default {Penstock.monitor}
    # @overload initialize(above: Penstock.monitor)
    def initialize(*more, above: Penstock.monitor, **wrong)
      Keywords.check("new(above: Penstock.monitor)", %i[above], more, wrong)
      @lock = Mutex.new
      @listeners = NO_LISTENERS # by event; replaced as a whole, so that reading needs no lock
      @silent = true
      @above = above
      @owner = nil
    end

    # @param monitor [Monitor]
    # @return [Boolean] whether the given monitor gets the events of this one
    def heard_by?(monitor) = equal?(monitor) || (!@above.nil? && @above.heard_by?(monitor))

    # Subscribes a block to one event, or an object to all events for which it has methods: `on_message_acknowledged(event)`
    # for "message.acknowledged". A listener that subscribes twice is called twice. If the object has a method
    # `subscribed_to(monitor)`, this calls it.
    #
    # @overload subscribe(event)
    #   @param event [String, Symbol]
    #   @yieldparam event [Event]
    # @overload subscribe(listener)
    #   @param listener [Object]
    # @return [Proc, Object] the block or object, for {#unsubscribe}
    # @raise [EventUnknownError] when there is no such event
    # @raise [ArgumentError] when the object has no method for any event, when a name is given without a block, or an object
    #   with a block
    def subscribe(event, &block)
      return subscribe_object(event, block) unless event.is_a?(String) || event.is_a?(Symbol)
      raise ArgumentError, "a subscription to #{event} requires a block" unless block

      add(known(event) => Subscription.new(block))
      block
    end

    # @param listener [Proc, Object] the value that {#subscribe} returned: a block or an object
    # @return [Boolean] whether it was subscribed
    def unsubscribe(listener)
      change do |listeners|
        listeners.transform_values { |all| all.reject { |subscription| subscription.target.equal?(listener) }.freeze }
      end
    end

    # Removes listeners.
    # @param event [String, Symbol, nil] the event whose listeners are removed; nil: all
    # @return [Boolean] whether there were any
    # @raise [EventUnknownError] when there is no such event
    def clear(event = nil)
      name = event && known(event)
      change { |listeners| name ? listeners.merge(name => NO_LISTENERS[name]) : NO_LISTENERS }
    end

    # @return [Array<String>] the names of all events; frozen
    def available_events = EVENTS

    # @return [Boolean] whether there are no listeners, also in {Penstock.monitor}
    def silent? = @silent && (@above.nil? || @above.silent)

    # @return [Boolean] whether it has no listeners of its own
    attr_reader :silent
    protected :silent

    # Whether an event has listeners, so that a payload is built only if it is used. Costs one Hash lookup.
    # @param event [String, Symbol]
    # @return [Boolean]
    # @raise [EventUnknownError] when there is no such event
    def listening?(event) = !listeners_of(event).empty?

    # Publishes an event. With a block, the event happens when the block returns, and its payload has the duration as
    # `time`, a Float of ms. If the block raises, no event is published.
    #
    # @param event [String, Symbol]
    # @param payload [Hash{Symbol => Object}]
    # @return [Object, nil] the block's value
    # @raise [EventUnknownError] when there is no such event; the block was not called
    def instrument(event, payload = {})
      listeners = listeners_of(event)
      unless block_given?
        emit(event, payload, listeners)
        return
      end
      return yield if listeners.empty?

      start = now
      value = yield
      emit(event, { **payload, time: now - start }.freeze, listeners)
      value
    end

    # @param event [String]
    # @return [Symbol] the method of a listener that is an object
    # @raise [EventUnknownError] when there is no such event
    def self.method_for(event)
      METHODS[event] or
        raise ErrorFactory.build(EventUnknownError, "there is no event #{event.inspect}#{Suggestion.hint(event, EVENTS)}")
    end

    # @param event [String, Symbol]
    # @return [Array<Subscription>] with those of {Penstock.monitor}
    def listeners_of(event)
      own = @listeners[event] || @listeners[known(event)]
      return own unless @above

      above = @above.listeners_of(event)
      above.empty? ? own : own + above
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{@listeners.filter_map { |event, all| "#{event}=#{all.size}" unless all.empty? }.join(" ")}>"
    end

    private

    # The part of a producer or consumer to which this monitor belongs, which must know of subscriptions; nil: it may have
    # several.
    attr_writer :owner

    # @see RequiresSuper
    def initialized? = !@listeners.nil?

    def known(event)
      name = event.to_s
      return name if NO_LISTENERS.key?(name)

      raise ErrorFactory.build(EventUnknownError, "there is no event #{event.inspect}#{Suggestion.hint(name, EVENTS)}")
    end

    def subscribe_object(listener, block)
      raise ArgumentError, "a listener has methods of its own; subscribe it without a block" if block

      events = METHODS.select { |_, method| listener.respond_to?(method) }
      if events.empty?
        raise ArgumentError, "a listener requires a method such as on_message_acknowledged; #{listener.class} has none"
      end

      add(events.transform_values { |method| Subscription.new(listener, method) })
      listener.subscribed_to(self) if listener.respond_to?(:subscribed_to)
      listener
    end

    def add(more)
      change { |listeners| listeners.merge(more) { |_, all, added| [*all, added].freeze } }
    end

    def change
      before, after = @lock.synchronize do
        [@listeners, @listeners = yield(@listeners).freeze].tap { @silent = @listeners.each_value.all?(&:empty?) }
      end
      notify_clients if WATCHED.any? { |event| before[event].empty? != after[event].empty? }
      before.sum { |_, all| all.size } != after.sum { |_, all| all.size }
    end

    # Does not keep a list of its producers: that would keep producers alive that the program has dropped without closing.
    def notify_clients
      return @owner.listeners_changed if @owner

      ProducerRegistry.all.each(&:listeners_changed) if Ractor.current == Ractor.main # M:listeners_find_disconnected
      ConsumerRegistry.all.each(&:listeners_changed)
    end

    # Publishes an event that is made already.
    def publish(event) = run_listeners(event, listeners_of(event.id))

    def emit(name, payload, listeners)
      run_listeners(Event.new(name.to_s, payload), listeners) unless listeners.empty?
    end

    def run_listeners(event, listeners)
      listeners.each do |listener|
        listener.notify(event)
      rescue StandardError, ScriptError, SystemStackError => e
        listener.failed(e, event, listeners_of("error.occurred"))
      end
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
  end
  class << self
    # Gets the events of every producer's and consumer's monitor, and those that belong to no single client: "producer.created",
    # "producer.configured", "connection_pool.created" and so on. See {Monitor}.
    # @return [Monitor]
    attr_reader :monitor
  end
  @monitor = Monitor.new(above: nil)
end

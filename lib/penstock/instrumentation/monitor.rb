# frozen_string_literal: true

module Penstock # rubocop:disable Style/Documentation -- in lib/penstock.rb
  # Where a producer says what happens, and whoever listens learns of it.
  #
  #     monitor.subscribe("message.acknowledged") { |event| puts event[:offset] }
  #     monitor.subscribe(listener) # its methods on_message_acknowledged, on_error_occurred and so on
  #
  # Listeners run one after the other, in the order they subscribed. Events of a call, such as "message.produced_sync", are
  # told on the thread that calls. What happens by itself is told on threads of our own, one producer's events in order:
  # "message.acknowledged", "statistics.emitted", and the "error.occurred" of librdkafka. There a listener that is slow, never
  # ends, or ends its thread delays the events of its own producer only; see docs/events.md.
  #
  # One that raises harms neither the others nor the caller: its error becomes an "error.occurred" of
  # the type "listener.error" (or "callbacks.delivery.error", "callbacks.statistics.error", "callbacks.error.error"), or a
  # warning on stderr when nobody else listens to that. Of a call, only
  # what is no StandardError, ScriptError or SystemStackError goes through, such as Interrupt and SystemExit: it is meant
  # for the thread.
  #
  # {Penstock.monitor} hears what is told to any other monitor, after that one's own listeners.
  #
  # Any thread and fiber may use it, and subscribe while others emit events: an event goes to those that listened when
  # it happened. Never blocks, apart from what the listeners do; {#instrument} and {#listening?} may be called from a
  # signal trap.
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
      listener.slow error.occurred
    ].freeze

    # Which of a listener's methods an event calls.
    METHODS = EVENTS.to_h { |event| [event, :"on_#{event.tr(".", "_")}"] }.freeze

    NOBODY = EVENTS.to_h { |event| [event, [].freeze] }.freeze

    # Which events the native core finds out, so that it has to know whether somebody listens.
    NATIVE = %w[message.acknowledged error.occurred statistics.emitted].freeze
    # Events of a call: whoever listens to one keeps other Ractors from producing.
    PER_CALL = %w[message.produced_sync message.produced_async messages.produced_sync messages.produced_async].freeze
    # Producers have to know of who listens to these.
    WATCHED = [*NATIVE, *PER_CALL].freeze
    private_constant :METHODS, :NOBODY, :NATIVE, :WATCHED

    # @param above [Monitor, nil] who hears the same events; default {Penstock.monitor}
    # @overload initialize(above: Penstock.monitor)
    def initialize(*more, above: Penstock.monitor, **wrong)
      Keywords.check("new(above: Penstock.monitor)", %i[above], more, wrong)
      @lock = Mutex.new
      @listeners = NOBODY # by event; replaced as a whole, so that reading needs no lock
      @silent = true
      @above = above
      @producer = nil
    end

    # @param monitor [Monitor]
    # @return [Boolean] whether that one hears what is told to this one
    def heard_by?(monitor) = equal?(monitor) || (!@above.nil? && @above.heard_by?(monitor))

    # Listens to one event with a block, or to all that an object has methods for: `on_message_acknowledged(event)` for
    # "message.acknowledged". What subscribes twice is called twice. An object with a method `subscribed_to(monitor)` is told.
    #
    # @overload subscribe(event)
    #   @param event [String, Symbol]
    #   @yieldparam event [Event]
    # @overload subscribe(listener)
    #   @param listener [Object]
    # @return [Proc, Object] the block or object, for {#unsubscribe}
    # @raise [EventUnknownError] there is no such event
    # @raise [ArgumentError] the object has a method for none; or an event's name came without a block, or an object
    #   with one
    def subscribe(event, &block)
      return subscribe_object(event, block) unless event.is_a?(String) || event.is_a?(Symbol)
      raise ArgumentError, "to listen to #{event} takes a block" unless block

      add(known(event) => Subscription.new(block))
      block
    end

    # @param listener [Proc, Object] what {#subscribe} returned; a block or an object
    # @return [Boolean] whether it was subscribed
    def unsubscribe(listener)
      change do |listeners|
        listeners.transform_values { |all| all.reject { |one| one.target.equal?(listener) }.freeze }
      end
    end

    # Forgets the listeners.
    # @param event [String, Symbol, nil] to this event only; nil: to all
    # @return [Boolean] whether there were any
    # @raise [EventUnknownError] there is no such event
    def clear(event = nil)
      name = event && known(event)
      change { |listeners| name ? listeners.merge(name => NOBODY[name]) : NOBODY }
    end

    # @return [Array<String>] the names of all events; frozen
    def available_events = EVENTS

    # @return [Boolean] whether nobody listens to anything
    def silent? = @silent && (@above.nil? || @above.silent)

    # @return [Boolean] whether it has no listeners of its own
    attr_reader :silent
    protected :silent

    # So that a payload need only be built when somebody wants it. Costs one Hash lookup.
    # @param event [String, Symbol]
    # @return [Boolean]
    # @raise [EventUnknownError] there is no such event
    def listening?(event) = !listeners_of(event).empty?

    # Tells the listeners of an event. With a block, the event happens when the block returns, and has its duration as
    # `time`, a Float of ms; when the block raises there is no event.
    #
    # @param event [String, Symbol]
    # @param payload [Hash{Symbol => Object}]
    # @return [Object, nil] the block's value
    # @raise [EventUnknownError] there is no such event; the block was not called
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
    # @raise [EventUnknownError] there is no such event
    def self.method_for(event)
      METHODS[event] or
        raise ErrorFactory.build(EventUnknownError, "there is no event #{event.inspect}#{Suggestion.hint(event, EVENTS)}")
    end

    # @param event [String, Symbol]
    # @return [Array<Subscription>] those of {Penstock.monitor} too
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

    # Whose it is alone, to be told when somebody begins to listen; nil: it may be many producers'.
    attr_writer :producer

    # @see RequiresSuper
    def initialized? = !@listeners.nil?

    def known(event)
      name = event.to_s
      return name if NOBODY.key?(name)

      raise ErrorFactory.build(EventUnknownError, "there is no event #{event.inspect}#{Suggestion.hint(name, EVENTS)}")
    end

    def subscribe_object(listener, block)
      raise ArgumentError, "a listener brings its own methods; give it no block" if block

      heard = METHODS.select { |_, method| listener.respond_to?(method) }
      if heard.empty?
        raise ArgumentError, "a listener needs at least one method such as on_message_acknowledged; #{listener.class} has none"
      end

      add(heard.transform_values { |method| Subscription.new(listener, method) })
      listener.subscribed_to(self) if listener.respond_to?(:subscribed_to)
      listener
    end

    def add(more)
      change { |listeners| listeners.merge(more) { |_, all, one| [*all, one].freeze } }
    end

    def change
      before, after = @lock.synchronize do
        [@listeners, @listeners = yield(@listeners).freeze].tap { @silent = @listeners.each_value.all?(&:empty?) }
      end
      tell_producers if WATCHED.any? { |event| before[event].empty? != after[event].empty? }
      before.sum { |_, all| all.size } != after.sum { |_, all| all.size }
    end

    # Whoever kept a list of its own producers would keep those alive that nobody closes.
    def tell_producers
      return @producer.listeners_changed if @producer

      ProducerRegistry.all.each(&:listeners_changed)
    end

    def emit(name, payload, listeners)
      return if listeners.empty?

      event = Event.new(name.to_s, payload)
      listeners.each do |listener|
        listener.notify(event)
      rescue StandardError, ScriptError, SystemStackError => e
        listener.failed(e, event, listeners_of("error.occurred"))
      end
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
  end
  class << self
    # Hears what is told to every producer's monitor, and what concerns no single one: "producer.created",
    # "producer.configured", "connection_pool.created" and so on. See {Monitor}.
    # @return [Monitor]
    attr_reader :monitor
  end
  @monitor = Monitor.new(above: nil)
end

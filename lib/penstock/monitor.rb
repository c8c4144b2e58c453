# frozen_string_literal: true

module Penstock
  # Something that happened, as the listeners of a {Monitor} get it. Immutable.
  class Event
    # @return [String] its name, such as "message.acknowledged"
    attr_reader :id
    # @return [Hash{Symbol => Object}] frozen; an event that a block was timed for also has `time`, a Float of ms
    attr_reader :payload

    alias to_h payload

    # @api private
    def initialize(id, payload)
      @id = id
      @payload = payload.frozen? ? payload : payload.dup.freeze
      freeze
    end

    # @param key [Symbol]
    # @return [Object]
    # @raise [KeyError] the event has no such key; `payload[key]` is nil then
    def [](key) = @payload.fetch(key)

    # @return [String] without the values: a message may be secret, and is long
    def inspect = "#<#{self.class} #{id} #{@payload.keys.join(" ")}>"
  end

  # Where a producer says what happens, and whoever listens learns of it.
  #
  #     monitor.subscribe("message.acknowledged") { |event| puts event[:offset] }
  #     monitor.subscribe(listener) # its methods on_message_acknowledged, on_error_occurred and so on
  #
  # Listeners run one after the other, in the order they subscribed, on the thread where the event happens; so they
  # should be quick. One that raises harms neither the others nor the caller: its error becomes an "error.occurred" of
  # the type "listener.error", or a warning on stderr when nobody listens to that, or a listener to that raises. Only
  # what is no StandardError, ScriptError or SystemStackError goes through, such as Interrupt and SystemExit: it is meant
  # for the thread.
  #
  # Any thread and fiber may use it, and subscribe while others emit events: an event goes to those that listened when
  # it happened. Never blocks, apart from what the listeners do; {#instrument} and {#listening?} may be called from a
  # signal trap.
  class Monitor
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
      error.occurred
    ].freeze

    # Which of a listener's methods an event calls.
    METHODS = EVENTS.to_h { |event| [event, :"on_#{event.tr(".", "_")}"] }.freeze

    NOBODY = EVENTS.to_h { |event| [event, [].freeze] }.freeze

    # One subscription: `name` is the method to call; nil: a block, which is called itself.
    Listener = Struct.new(:target, :name) do
      # @api private
      def notify(event) = name ? target.public_send(name, event) : target.call(event)
    end

    private_constant :METHODS, :NOBODY, :Listener

    def initialize
      @lock = Mutex.new
      @listeners = NOBODY # by event; replaced as a whole, so that reading needs no lock
      @silent = true
    end

    # Listens to one event with a block, or to all that an object has methods for: `on_message_acknowledged(event)` for
    # "message.acknowledged". What subscribes twice is called twice.
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

      add(known(event) => Listener.new(block))
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
    attr_reader :silent
    alias silent? silent

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

    # @return [String]
    def inspect
      "#<#{self.class} #{@listeners.filter_map { |event, all| "#{event}=#{all.size}" unless all.empty? }.join(" ")}>"
    end

    private

    def known(event)
      name = event.to_s
      return name if NOBODY.key?(name)

      raise EventUnknownError, "there is no event #{event.inspect}#{Config.hint(name, EVENTS)}"
    end

    def listeners_of(event) = @listeners[event] || @listeners[known(event)]

    def subscribe_object(listener, block)
      raise ArgumentError, "a listener brings its own methods; give it no block" if block

      heard = METHODS.select { |_, method| listener.respond_to?(method) }
      if heard.empty?
        raise ArgumentError, "a listener needs at least one method such as on_message_acknowledged; #{listener.class} has none"
      end

      add(heard.transform_values { |method| Listener.new(listener, method) })
      listener
    end

    def add(more)
      change { |listeners| listeners.merge(more) { |_, all, one| [*all, one].freeze } }
    end

    def change
      @lock.synchronize do
        before = @listeners
        @listeners = yield(before).freeze
        @silent = @listeners.each_value.all?(&:empty?)
        before.sum { |_, all| all.size } != @listeners.sum { |_, all| all.size }
      end
    end

    def emit(name, payload, listeners)
      return if listeners.empty?

      event = Event.new(name.to_s, payload)
      listeners.each do |listener|
        listener.notify(event)
      rescue StandardError, ScriptError, SystemStackError => e
        report(e, event)
      end
    end

    def report(error, event)
      return complain(error, event) if event.id == "error.occurred" || !listening?("error.occurred")

      instrument("error.occurred", { type: "listener.error", error:, event: event.id,
                                     producer_id: event.payload[:producer_id] })
    end

    def complain(error, event)
      news = event.payload[:error]
      news &&= ", when told of #{news.class}: #{news.message}"
      warn "penstock: a listener of #{event.id} raised #{error.class}: #{error.message} (#{error.backtrace&.first})#{news}"
    rescue IOError, SystemCallError
      nil # there is no stderr: nobody is left to tell
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
  end
end

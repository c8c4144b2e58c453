# frozen_string_literal: true

module Penstock
  # Producers that are lent to one thread at a time, for what one producer cannot do at once: transactions, of which a
  # producer has one at a time. (Without transactions any number of threads may share one producer; no pool is needed.)
  # Built on the connection_pool gem, which has to be in the Gemfile.
  #
  #     Penstock::ConnectionPool.setup(size: 10) do |config, index|
  #       config.kafka = { "bootstrap.servers": "localhost:9092", "transactional.id": "billing-#{index}" }
  #     end
  #     Penstock::ConnectionPool.transaction { |producer| producer.produce_async(topic: "events", payload: "hello") }
  #
  # Producers are made when first needed, `size` at most, by the block, which gets their number: the lowest, from 1 on,
  # that no other open producer of the pool has. So it is at most `size`, except while a {#reload} waits for the return
  # of producers that are in use: those that take their place have numbers beyond, for with the same transactional.id
  # they would fence them.
  #
  # A thread or fiber that asks while it has one gets the same. Any thread and fiber may use a pool. In a forked child it
  # begins empty and calls the block anew, which so can put Process.pid into a transactional.id.
  class ConnectionPool
    extend RequiresSuper
    include Uncopyable
    include AsJson

    # The gem's pool, and its producers that were given back after it was shut down and are to be closed.
    Generation = Struct.new(:pool, :retired, :timeout, :pid)
    private_constant :Generation

    @lock = Mutex.new
    @default_pool = nil

    class << self
      # @return [ConnectionPool, nil] what {setup} made
      attr_reader :default_pool

      # Makes the pool of the process, and shuts down the one there was.
      #
      # Blocks: like {shutdown} if there was one.
      # @param size [Integer] producers at most
      # @param timeout [Numeric] seconds to wait for one that is free
      # @yieldparam config [Config] of a producer that is made
      # @yieldparam index [Integer] its number; see {ConnectionPool}
      # @return [ConnectionPool]
      # @raise [LoadError] the connection_pool gem is missing
      # @raise [ArgumentError] see {#initialize}
      # @overload setup(size: 5, timeout: 5)
      def setup(*more, size: 5, timeout: 5, **wrong, &block)
        Keywords.check("setup(size: 5, timeout: 5) { |config| ... }", %i[size timeout], more, wrong)
        made = new(size:, timeout:, &block)
        replace(made)&.shutdown
        Penstock.monitor.instrument("connection_pool.setup", { pool: made, size:, timeout: })
        made
      end

      # See {ConnectionPool#with}.
      # @yieldparam producer [Producer]
      # @return [Object] the block's value
      # @raise [PoolNotConfiguredError] {setup} was not called
      def with(&block) = needed.with(&block)

      # See {ConnectionPool#transaction}.
      # @yieldparam producer [Producer]
      # @return [Object] the block's value
      # @raise [PoolNotConfiguredError] {setup} was not called
      def transaction(&block) = needed.transaction(&block)

      # @return [Hash] see {ConnectionPool#stats}
      # @raise [PoolNotConfiguredError] {setup} was not called
      def stats = needed.stats

      # See {ConnectionPool#reload}.
      # @param timeout [Numeric, nil] seconds
      # @return [CloseReport]
      # @raise [PoolNotConfiguredError] {setup} was not called
      # @overload reload(timeout: nil)
      def reload(*more, timeout: nil, **wrong)
        Keywords.check("reload(timeout: 30)", %i[timeout], more, wrong)
        needed.reload(timeout:)
      end

      # See {ConnectionPool#shutdown}. Afterwards there is no pool until {setup} is called again.
      # @param timeout [Numeric, nil] seconds
      # @return [CloseReport, nil] nil when there was none
      # @overload shutdown(timeout: nil)
      def shutdown(*more, timeout: nil, **wrong)
        Keywords.check("shutdown(timeout: 30)", %i[timeout], more, wrong)
        timeout = Seconds.of(timeout)
        replace(nil)&.shutdown(timeout:)
      end

      alias close shutdown

      # @return [Boolean] whether there is a pool
      def active? = !default_pool.nil?

      private

      def replace(pool)
        @lock.synchronize do
          before = @default_pool
          @default_pool = pool
          before
        end
      end

      def needed
        default_pool or
          raise ErrorFactory.build(PoolNotConfiguredError, "there is no connection pool", "Call ConnectionPool.setup first.")
      end
    end

    # @return [Integer] producers at most
    attr_reader :size

    # @param size [Integer] producers at most, at least 1
    # @param timeout [Numeric] seconds to wait for one that is free. An Integer above a minute raises, as WaterDrop's pool takes
    #   milliseconds here; for longer waits give a Float
    # @yieldparam config [Config] of a producer that is made
    # @yieldparam index [Integer] its number; see {ConnectionPool}
    # @raise [LoadError] the connection_pool gem is missing
    # @raise [ArgumentError] a number is out of range, or there is no block
    # @overload initialize(size: 5, timeout: 5)
    def initialize(*more, size: 5, timeout: 5, **wrong, &configure)
      Keywords.check("new(size: 5, timeout: 5) { |config| ... }", %i[size timeout], more, wrong)
      raise ArgumentError, "a pool needs a block that configures its producers" unless configure
      raise ArgumentError, "size is an Integer of at least 1, not #{size.inspect}" unless size.is_a?(Integer) && size >= 1
      raise ArgumentError, "a timeout is a number of seconds, not nil" if timeout.nil? # the gem knows no such thing

      timeout = Seconds.of(timeout, longest: 60)
      load_gem
      @size = size
      @timeout = timeout
      @configure = configure
      @lock = Mutex.new
      @indexes = {}.compare_by_identity # of the producers that are open
      @shut_down = false
      @current = generation
      tell("connection_pool.created", size:, timeout:)
    end

    # Lends a producer for the time of the block. Do not close it.
    #
    # Blocks: until one is free, at most the pool's timeout; interruptible at once. After a {#reload} or {#shutdown} that
    # went on meanwhile, also until the producer is closed.
    #
    # @yieldparam producer [Producer]
    # @return [Object] the block's value
    # @raise [::ConnectionPool::TimeoutError] none was free in time; the block was not called
    # @raise [ConfigurationInvalidError] a producer had to be made, and its configuration is wrong
    # @raise [ProducerClosedError] the pool was shut down
    def with
      lender = nil
      Thread.handle_interrupt(Exception => :never) do # so that no producer is lost between two lines
        lender, producer = Thread.handle_interrupt(Exception => :on_blocking) { borrow }
        begin
          Thread.handle_interrupt(Exception => :immediate) { yield producer }
        ensure
          lender.pool.checkin
        end
      end
    ensure
      close_retired(lender) if lender
    end

    # Lends a producer, and runs the block in a transaction of it; see {Producer#transaction}.
    #
    # Blocks: like {#with}, and for the transaction.
    # @yieldparam producer [Producer]
    # @return [Object] what {Producer#transaction} returns
    # @raise [::ConnectionPool::TimeoutError, ConfigurationInvalidError, ProducerClosedError] see {#with}
    def transaction
      with { |producer| producer.transaction { yield producer } }
    end

    # Never blocks for long.
    # @return [Hash] `size`, and `available`, the producers that are free or not made yet
    def stats = { size:, available: }

    # @return [Integer] producers that are free or not made yet
    def available = @shut_down ? 0 : current.pool.available

    # @return [::ConnectionPool] the gem's pool. After a {#reload} and in a forked child it is another one
    def pool = current.pool

    # Closes the producers, all at once, and makes new ones when needed, so that the block can give them other settings.
    # Those that are in use are closed when they are given back.
    #
    # Blocks: until those that are not in use are closed; see {Producer#close}.
    # @param timeout [Numeric, nil] seconds for closing each; nil: its `config.close_timeout`
    # @return [CloseReport] what became of messages in flight, except of producers in use
    # @raise [ProducerClosedError] the pool was shut down
    # @overload reload(timeout: nil)
    def reload(*more, timeout: nil, **wrong)
      Keywords.check("reload(timeout: 30)", %i[timeout], more, wrong)
      timeout = Seconds.of(timeout)
      tell("connection_pool.reload")
      retire(replace { generation }, timeout).tap { tell("connection_pool.reloaded") }
    end

    # Closes the producers, all at once, and lends none any more. Those that are in use are closed when they are given
    # back. Doing so again does nothing.
    #
    # Blocks: like {#reload}. A signal trap has to call it in a thread.
    # @param timeout [Numeric, nil] seconds for closing each; nil: its `config.close_timeout`
    # @return [CloseReport] what became of messages in flight, except of producers in use
    # @overload shutdown(timeout: nil)
    def shutdown(*more, timeout: nil, **wrong)
      Keywords.check("shutdown(timeout: 30)", %i[timeout], more, wrong)
      timeout = Seconds.of(timeout)
      ended = @lock.synchronize do
        next if @shut_down

        @shut_down = true
        @current
      end
      return sum([]) unless ended

      retire(ended, timeout).tap { tell("connection_pool.shutdown") }
    end

    alias close shutdown

    # @return [String]
    def inspect = "#<#{self.class} size=#{size}#{" shut down" if @shut_down}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(size:)

    private

    def tell(event, **about) = Penstock.monitor.instrument(event, { pool: self, **about })

    # @see RequiresSuper
    def initialized? = !@current.nil?

    def load_gem
      require "connection_pool"
    rescue LoadError => e
      raise unless e.path == "connection_pool"

      raise LoadError, "Penstock::ConnectionPool needs the connection_pool gem: add gem \"connection_pool\" to the Gemfile"
    end

    # The gem is told to leave forks alone where it sees to them itself: it would close the parent's producers.
    def generation
      pool = ::ConnectionPool.new(size: @size, timeout: @timeout, auto_reload_after_fork: false) { build }
      Generation.new(pool, Thread::Queue.new, nil, Process.pid)
    end

    def current
      found = @current
      raise_shut_down
      return found if found.pid == Process.pid

      @lock.synchronize do
        if @current.pid != Process.pid # in a forked child
          @indexes = {}.compare_by_identity
          @current = generation
        end
        @current
      end
    end

    # @return [Array(Generation, Producer)]
    def borrow
      lender = current
      [lender, lender.pool.checkout]
    rescue ::ConnectionPool::PoolShuttingDownError
      raise if lender.equal?(@current) && !@shut_down # somebody shut the gem's pool down

      retry # it was replaced just now; or shut down, which `current` says
    end

    def replace
      current # this process's
      @lock.synchronize do
        raise_shut_down
        before = @current
        @current = yield
        before
      end
    end

    def raise_shut_down
      raise ErrorFactory.build(ProducerClosedError, "the connection pool was shut down") if @shut_down
    end

    def build
      index, place = @lock.synchronize { take_index }
      producer = Producer.new { |config| @configure.call(config, index) }
      @lock.synchronize { @indexes[producer] = index }
      producer
    ensure
      @lock.synchronize { @indexes.delete(place) } if place
    end

    # @return [Array(Integer, Object)] the lowest that is free, and what keeps it until there is a producer
    def take_index
      taken = @indexes.values
      index = (1..).find { |number| !taken.include?(number) }
      place = Object.new
      @indexes[place] = index
      [index, place]
    end

    # The gem calls its block with a lock held, so that takes note only; what comes back later is closed in `with`.
    def retire(ended, timeout)
      ended.timeout = timeout
      ended.pool.shutdown { |producer| ended.retired << producer }
      close_retired(ended)
    end

    def close_retired(ended)
      sum(close_all(drain(ended.retired), ended.timeout))
    end

    def drain(queue)
      taken = []
      loop { taken << queue.pop(true) } unless queue.empty?
      taken
    rescue ThreadError # it is empty
      taken
    end

    def close_all(producers, timeout)
      return producers.map { |producer| close_one(producer, timeout) } if producers.size < 2

      producers.map do |producer|
        Thread.new do
          Thread.current.report_on_exception = false # value raises it
          close_one(producer, timeout)
        end
      end.map(&:value)
    end

    def close_one(producer, timeout)
      timeout ? producer.close(timeout:) : producer.close
    ensure
      @lock.synchronize { @indexes.delete(producer) }
    end

    def sum(reports)
      CloseReport.new(*CloseReport.members.map { |member| reports.sum(&member) }).freeze
    end
  end
end

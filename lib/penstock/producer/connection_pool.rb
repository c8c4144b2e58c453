# frozen_string_literal: true

require_relative "pool_members"

module Penstock
  # Lends producers to one thread at a time. It is for transactions, because a producer runs one transaction at a time.
  # Without transactions any number of threads may share one producer, and no pool is needed. Requires the connection_pool
  # gem in the Gemfile.
  #
  #     Penstock::ConnectionPool.setup(size: 10) do |config, index|
  #       config.kafka = { "bootstrap.servers": "localhost:9092", "transactional.id": "billing-#{index}" }
  #     end
  #     Penstock::ConnectionPool.transaction { |producer| producer.produce_async(topic: "events", payload: "hello") }
  #
  # The block makes up to `size` producers when they are needed. It gets a number: the lowest, from 1, that no other open
  # producer of the pool has. So the number is at most `size`, with one exception: while a {#reload} waits for the return of
  # producers in use, their successors get higher numbers. With the same transactional.id they would fence the producers in
  # use.
  #
  # A thread or fiber that already has a producer of the pool gets the same one again. Any thread and fiber may use a pool.
  # In a fork child the pool is empty at first and calls the block again, which may use Process.pid in a transactional.id.
  class ConnectionPool
    extend RequiresSuper
    include Uncopyable
    include AsJson

    # The gem's pool, and its producers that were returned after its shutdown and must be closed.
    Generation = Struct.new(:pool, :retired, :timeout, :pid)
    private_constant :Generation

    @lock = Mutex.new
    @default_pool = nil

    class << self
      # @return [ConnectionPool, nil] the pool that {setup} made
      attr_reader :default_pool

      # Makes the pool of the process, and shuts down the previous one.
      #
      # Blocks: like {shutdown} if there was a previous pool.
      # @param size [Integer] maximum number of producers
      # @param timeout [Numeric] seconds to wait for a free producer
      # @yieldparam config [Config] of the new producer
      # @yieldparam index [Integer] its number; see {ConnectionPool}
      # @return [ConnectionPool]
      # @raise [LoadError] when the connection_pool gem is missing
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
      # @raise [PoolNotConfiguredError] when {setup} was not called
      def with(&block) = needed.with(&block)

      # See {ConnectionPool#transaction}.
      # @yieldparam producer [Producer]
      # @return [Object] the block's value
      # @raise [PoolNotConfiguredError] when {setup} was not called
      def transaction(&block) = needed.transaction(&block)

      # @return [Hash] see {ConnectionPool#stats}
      # @raise [PoolNotConfiguredError] when {setup} was not called
      def stats = needed.stats

      # See {ConnectionPool#reload}.
      # @param timeout [Numeric, nil] seconds
      # @return [CloseReport]
      # @raise [PoolNotConfiguredError] when {setup} was not called
      # @overload reload(timeout: nil)
      def reload(*more, timeout: nil, **wrong)
        Keywords.check("reload(timeout: 30)", %i[timeout], more, wrong)
        needed.reload(timeout:)
      end

      # See {ConnectionPool#shutdown}. Afterwards there is no pool until {setup} is called again.
      # @param timeout [Numeric, nil] seconds
      # @return [CloseReport, nil] nil when there was no pool
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

    # @return [Integer] maximum number of producers
    attr_reader :size

    # @param size [Integer] maximum number of producers, at least 1
    # @param timeout [Numeric] seconds to wait for a free producer. An Integer above 60 raises, because WaterDrop's pool takes
    #   milliseconds here; for longer waits use a Float
    # @yieldparam config [Config] of the new producer
    # @yieldparam index [Integer] its number; see {ConnectionPool}
    # @raise [LoadError] when the connection_pool gem is missing
    # @raise [ArgumentError] when a number is out of range, or the block is missing
    # @overload initialize(size: 5, timeout: 5)
    def initialize(*more, size: 5, timeout: 5, **wrong, &configure)
      Keywords.check("new(size: 5, timeout: 5) { |config| ... }", %i[size timeout], more, wrong)
      raise ArgumentError, "a pool requires a block that configures its producers" unless configure
      raise ArgumentError, "size must be an Integer of at least 1, not #{size.inspect}" unless size.is_a?(Integer) && size >= 1
      raise ArgumentError, "a timeout must be a number of seconds, not nil" if timeout.nil? # the gem has no unlimited wait

      timeout = Seconds.of(timeout, longest: 60)
      load_gem
      @size = size
      @timeout = timeout
      @configure = configure
      @lock = Mutex.new
      @indexes = {}.compare_by_identity # of the producers that are open
      @members = Members.new
      @shut_down = false
      @current = generation
      publish("connection_pool.created", size:, timeout:)
    end

    # Lends a producer to the block. Do not close it.
    #
    # A producer that was fenced or closed, or had another fatal error, is not lent again: a new one with its number takes its
    # place.
    #
    # Blocks: until a producer is free, up to the pool's timeout; interruptible at once. If a {#reload} or {#shutdown} ran
    # during the block, or a new producer takes the place of another, also until that one is closed.
    #
    # @yieldparam producer [Producer]
    # @return [Object] the block's value
    # @raise [::ConnectionPool::TimeoutError] when no producer was free in time; the block was not called
    # @raise [ConfigurationInvalidError] when the configuration of a new producer is invalid
    # @raise [ProducerClosedError] when the pool was shut down
    def with
      lender = nil
      Thread.handle_interrupt(Exception => :never) do # so that no producer is lost between two lines
        lender, member = Thread.handle_interrupt(Exception => :on_blocking) { borrow }
        begin
          producer = @members.lend(member) { |broken| replace_broken(broken) }
          Thread.handle_interrupt(Exception => :immediate) { yield producer }
        ensure
          @members.give_back(member)
          lender.pool.checkin
        end
      end
    ensure
      close_retired(lender) if lender
    end

    # Lends a producer, and runs the block in a transaction of that producer; see {Producer#transaction}.
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

    # @return [::ConnectionPool] the gem's pool; another one after a {#reload} and in a fork child
    def pool = current.pool

    # Closes all producers concurrently, and makes new ones when needed, for which the block can use other settings.
    # Producers in use are closed when they are returned.
    #
    # Blocks: until the producers that are not in use are closed; see {Producer#close}.
    # @param timeout [Numeric, nil] seconds for closing each; nil: its `config.close_timeout`
    # @return [CloseReport] the results of messages in flight, without producers in use
    # @raise [ProducerClosedError] when the pool was shut down
    # @overload reload(timeout: nil)
    def reload(*more, timeout: nil, **wrong)
      Keywords.check("reload(timeout: 30)", %i[timeout], more, wrong)
      timeout = Seconds.of(timeout)
      publish("connection_pool.reload")
      retire(replace { generation }, timeout).tap { publish("connection_pool.reloaded") }
    end

    # Closes all producers concurrently, and lends no more. Producers in use are closed when they are returned. A second call
    # does nothing.
    #
    # Blocks: like {#reload}. In a signal trap, call it in a new thread.
    # @param timeout [Numeric, nil] seconds for closing each; nil: its `config.close_timeout`
    # @return [CloseReport] the results of messages in flight, without producers in use
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

      retire(ended, timeout).tap { publish("connection_pool.shutdown") }
    end

    alias close shutdown

    # @return [String]
    def inspect = "#<#{self.class} size=#{size}#{" shut down" if @shut_down}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(size:)

    private

    def publish(event, **about) = Penstock.monitor.instrument(event, { pool: self, **about })

    # @see RequiresSuper
    def initialized? = !@current.nil?

    def load_gem
      require "connection_pool"
    rescue LoadError => e
      raise unless e.path == "connection_pool"

      raise LoadError, "Penstock::ConnectionPool requires the connection_pool gem: add gem \"connection_pool\" to the Gemfile"
    end

    # The gem must not handle forks itself: it would close the producers of the parent process.
    def generation
      pool = ::ConnectionPool.new(size: @size, timeout: @timeout, auto_reload_after_fork: false) { build }
      Generation.new(pool, Thread::Queue.new, nil, Process.pid)
    end

    def current
      found = @current
      raise_shut_down
      return found if found.pid == Process.pid

      @lock.synchronize do
        if @current.pid != Process.pid # in a fork child
          @indexes = {}.compare_by_identity
          @members = Members.new
          @current = generation
        end
        @current
      end
    end

    # @return [Producer] with the number and the buffer of one that can do nothing more
    def replace_broken(producer)
      Thread.handle_interrupt(Exception => :on_blocking) { close_one(producer, nil) }
      unsent = producer.messages
      build.tap { |made| made.buffer_many(unsent) unless unsent.empty? }
    end

    # @return [Array(Generation, Producer)]
    def borrow
      lender = current
      [lender, lender.pool.checkout]
    rescue ::ConnectionPool::PoolShuttingDownError
      raise if lender.equal?(@current) && !@shut_down # the program shut the gem's pool down itself

      retry # it was replaced just now; or shut down, and `current` raises
    end

    def replace
      current # makes one for this process
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

    # @return [Array(Integer, Object)] the lowest free number, and the object that reserves it until there is a producer
    def take_index
      taken = @indexes.values
      index = (1..).find { |number| !taken.include?(number) }
      place = Object.new
      @indexes[place] = index
      [index, place]
    end

    # The gem calls the block with a lock held, so the block only collects. Producers returned later are closed in `with`.
    def retire(ended, timeout)
      ended.timeout = timeout
      ended.pool.shutdown { |member| ended.retired << @members.remove(member) }
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

# frozen_string_literal: true

module Penstock
  module Doctor
    # Where a broker is.
    # @api private
    Address = Struct.new(:host, :port) do
      # @param text [String] HOST, HOST:PORT, [IPv6]:PORT
      # @return [Address]
      # @raise [ArgumentError] when it is invalid; without the text, which may contain a password
      def self.parse(text)
        problem = BootstrapServers.problem_of(text.to_s)
        match = text.to_s.strip.match(%r{\A(?:\[([\h:.]+)\]|([^\s:/\[\]]+))(?::(\d{1,5}))?\z})
        raise ArgumentError, "a server #{problem || "is not of the form host:port"}" if problem || !match

        new(match[1] || match[2], Integer(match[3] || "9092", 10))
      end

      # @return [String]
      def to_s = host.include?(":") ? "[#{host}]:#{port}" : "#{host}:#{port}"
    end

    # The way to a cluster's brokers, step by step: those that are given, and those that they name (advertised.listeners), as
    # it is these that clients work with.
    # @api private
    class Cluster
      include Steps

      # Leaves out settings that affect others (a transactional.id fences another producer), and those that doctor sets.
      WITHOUT = %i[bootstrap.servers metadata.broker.list transactional.id transaction.timeout.ms enable.idempotence
                   enable.gapless.guarantee debug log_level statistics.interval.ms].freeze
      # Advertised brokers that are looked at, of any number that a cluster tells of.
      AT_MOST = 50
      # So many at the same time, and fewer in a large cluster: librdkafka starts a thread for each broker in each client.
      TOGETHER = 10
      THREADS = 1_000
      # Times the timeout: for all steps to one server, and for all advertised brokers together.
      STEPS = 4
      STAGE = 6
      private_constant :WITHOUT, :AT_MOST, :TOGETHER, :THREADS, :STEPS, :STAGE

      # @param addresses [Array<Address>]
      # @param settings [Hash] librdkafka's
      # @param timeout [Numeric] seconds for each step
      def initialize(addresses, settings, timeout:)
        @addresses = addresses.uniq
        @settings = hidden(settings).except(*WITHOUT) # M:doctor_fences_nobody
        @timeout = timeout
        @facts = []
        @cluster_id = nil
        @local = false
        @deadline = @stage_ends = Float::INFINITY
      end

      # @return [Array<Fact>]
      def facts
        producer(@addresses.first, Log.new).close
        answers = @addresses.filter_map { |address| look_at(address, address.to_s) }
        advertised(answers) # M:doctor_follows_advertised
        @facts
      rescue ConfigurationInvalidError => e
        @facts << Fact.problem("settings", e.message, "Mend the setting.")
      end

      private

      # The producer raises for a name that cannot become a Symbol.
      def hidden(settings)
        settings.to_h { |name, value| [Settings.text?(name.to_s) ? name.to_sym : name, Settings.hide(name, value)] }
      end

      def ok(name, value) = @facts << Fact.ok(name, value)

      def note(name, value) = @facts << Fact.note(name, value)

      def problem(name, value, advice)
        @facts << Fact.problem(name, value, advice)
        nil
      end

      def ms_since(start) = ((now - start) * 1000).round(1)
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # @return [Answer, nil]
      def look_at(address, name, broker: nil)
        @deadline = [now + (STEPS * @timeout), @stage_ends].min
        go_to(address, name, broker)
      rescue OutOfTime
        problem(name, "not looked at to the end: the time for it was up", "Try again with a longer timeout.")
      end

      def go_to(address, name, broker)
        found = resolve(address, name, broker:) or return
        @local ||= found.any?(&method(:loopback?)) unless broker
        return if broker && astray?(address, found, name)

        connect(found, address, name) and !@crowded and log_in(address, name)
      end

      # ---- what the brokers call themselves ----

      def advertised(answers)
        brokers = answers.flat_map(&:brokers).uniq
        @crowded = brokers.size > THREADS
        @stage_ends = now + (STAGE * @timeout)
        # M:doctor_advertised_limits
        visits = in_parallel(brokers.first(AT_MOST), (THREADS / [brokers.size, 1].max).clamp(1, TOGETHER))
        @facts.concat(visits.compact.flatten(1))
        tell_left_out(brokers.size, visits.compact.size)
      end

      # @return [Array<Array<Fact>, nil>] of each broker, in order; nil: the time was up before
      def in_parallel(brokers, workers)
        queue = Queue.new(brokers.each_with_index.to_a).close
        visits = Array.new(brokers.size)
        threads = Array.new([workers, brokers.size].min) do
          Thread.new do
            Thread.current.report_on_exception = false # joining raises it
            while now < @stage_ends && (broker, i = queue.pop)
              visits[i] = clone.visit(*broker) # with facts and a deadline of its own
            end
          end
        end
        threads.each(&:join)
        visits
      ensure
        threads&.each { |thread| thread.kill.join } # after Ctrl-C
      end

      def tell_left_out(all, looked_at)
        note("brokers", "#{looked_at} of #{all} advertised brokers were looked at, at most #{AT_MOST} in #{STAGE * @timeout} s") \
          if looked_at < all
        note("brokers", "only their names and ports were looked at, as librdkafka needs a thread for each broker") if @crowded
      end

      protected

      # @return [Array<Fact>] of this broker
      def visit(id, host, port)
        @facts = []
        address = Address.new(host, port)
        given = @addresses.include?(address)
        ok("broker #{id}", "advertises #{address}#{", as given" if given}")
        look_at(address, "broker #{id}", broker: id) unless given
        @facts
      end
    end
  end
end

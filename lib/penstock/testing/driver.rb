# frozen_string_literal: true

module Penstock
  # Aids for tests of applications.
  module Testing
    # Starts an application on a {Driver}.
    # @param app [App]
    # @param seed [Integer, nil] decides what comes first; nil: the environment variable PENSTOCK_SEED, or chance
    # @return [Driver]
    # @overload drive(app, seed: nil)
    def self.drive(app, *more, seed: nil, **wrong)
      Keywords.check("drive(app, seed: 7)", %i[seed], more, wrong)
      app.is_a?(App) or raise ArgumentError, "drive needs an application, which Penstock.app makes, not #{app.inspect}"
      seed.nil? || seed.is_a?(Integer) or raise ArgumentError, "the seed must be an Integer or nil, not #{seed.inspect}"
      Driver.new(app, seed || Replay.seed || (Random.new_seed % (2**32)))
    end

    # Runs a test with many orders of events. An error names the seed, and a command that repeats this run only: with the
    # environment variable PENSTOCK_SEED, `explore` runs just this seed.
    #
    #     Penstock::Testing.explore(APP, runs: 200) do |driver|
    #       driver.produce("orders", key: "a", payload: "1")
    #       driver.advance(60)
    #       assert_equal 1, driver.committed("billing", "orders")
    #     end
    #
    # @param app [App]
    # @param runs [Integer]
    # @param seed [Integer] of the first run; each later one has the next
    # @yieldparam driver [Driver]
    # @return [nil]
    # @overload explore(app, runs: 100, seed: 0)
    def self.explore(app, *more, runs: 100, seed: 0, **wrong)
      Keywords.check("explore(app, runs: 100, seed: 0) { |driver| ... }", %i[runs seed], more, wrong)
      raise ArgumentError, "explore requires a block" unless block_given?
      raise ArgumentError, "runs must be an Integer from 1, not #{runs.inspect}" unless runs.is_a?(Integer) && runs.positive?

      (Replay.seed ? [Replay.seed] : seed...(seed + runs)).each do |one|
        yield drive(app, seed: one)
      rescue Exception => e # rubocop:disable Lint/RescueException -- also the errors of test libraries
        raise e, "#{e.message}\n(with the seed #{one}; to repeat it: #{Replay.command(one)})", e.backtrace
      end
      nil
    end

    # How a test of {Testing.explore} is repeated with one seed.
    # @api private
    module Replay
      NAME = "PENSTOCK_SEED"
      private_constant :NAME

      class << self
        # @return [Integer, nil]
        def seed
          text = ENV.fetch(NAME, nil)
          return if text.nil? || text.empty?

          Integer(text, 10, exception: false) or raise ArgumentError, "#{NAME} must be an Integer, not #{text.inspect}"
        end

        # @param seed [Integer]
        # @return [String] for a shell
        def command(seed)
          here = caller_locations.find { |place| !place.path.start_with?(File.dirname(__dir__)) } or return "#{NAME}=#{seed}"
          path = here.path.delete_prefix("#{Dir.pwd}/")
          return "#{NAME}=#{seed} rspec #{path}:#{here.lineno}" if path.end_with?("_spec.rb")

          name = here.base_label.to_s[/\Atest_\w+/]
          "#{NAME}=#{seed} ruby -Ilib -Itest #{path}#{" -n #{name}" if name}"
        end
      end
    end
    private_constant :Replay

    # Runs an application without brokers, threads and waiting. Everything of the application is real, except its consumers, its
    # producer, its clock and its threads: the clock stands still until {#advance} moves it, and what threads would do at once is
    # done one by one, in an order that the seed decides.
    #
    #     driver = Penstock::Testing.drive(APP, seed: 7)
    #     driver.produce("orders", key: "a", payload: '{"customer": "ann"}')
    #     driver.run
    #     driver.committed("billing", "orders") # 1
    #
    # A call of a processor takes no time. Each group has one member here, whatever `connections:` is. For one thread.
    class Driver
      include AsJson

      MOST_STEPS = 1_000_000 # at one time
      private_constant :MOST_STEPS

      # @return [Integer]
      attr_reader :seed
      # @return [Array<Exception>] what processors and the application have raised
      attr_reader :errors

      # {Testing.drive} makes it.
      # @param app [App]
      # @param seed [Integer]
      def initialize(app, seed)
        @settings = app.__send__(:driven_settings)
        @seed = seed
        @runtime = App.const_get(:DrivenRuntime).new(Random.new(seed))
        @log = []
        @errors = []
        @retries_delivered = 0
        @settings.monitor.subscribe("error.occurred") { |event| @errors << event[:error] }
        begin_again
      end

      # ---- Kafka ----

      # Adds a message to a topic, for all groups. Nothing is processed before {#run} or {#advance}.
      # @param topic [String, Symbol]
      # @param attributes [Hash] see {Message.new}; by default the partition is 0, the offset the next one and the timestamp now
      # @return [Message]
      # @overload produce(topic, partition: 0, payload: nil, key: nil, headers: {}, timestamp: now)
      def produce(topic, **attributes)
        topic = known(topic)
        partition = attributes.fetch(:partition, 0)
        now = (@runtime.time * 1000).to_i
        message = Message.new(timestamp: now, offset: next_offset(topic, partition), **attributes, topic:, partition:)
        running
        clients.each { |client| client.feed(message) }
        @log << message
        message
      end

      # The group takes partitions away, in time. Work on them delays it, as `app.drain_timeout` says.
      # @param group [String, Symbol]
      # @param partitions [Hash{String, Symbol => Array<Integer>}, nil] nil: all
      # @return [nil]
      def revoke(group, partitions = nil)
        client = client(group)
        hold = client.revoke_now(places(partitions))
        @loop.timers.after(client.longest_hold) { client.end_hold(hold) } if hold
        nil
      end

      # The group has removed the application: partitions are taken away too late to commit.
      # @param group [String, Symbol]
      # @param partitions [Hash{String, Symbol => Array<Integer>}, nil] nil: all
      # @return [nil]
      def lose(group, partitions = nil) = client(group).lose_now(places(partitions))

      # The group assigns partitions: at first all that have messages, later those that were taken away.
      # @param group [String, Symbol]
      # @param partitions [Hash{String, Symbol => Array<Integer>}]
      # @return [nil]
      def assign(group, partitions) = client(group).assign_now(places(partitions))

      # The next commits of a group fail.
      # @param group [String, Symbol]
      # @param count [Integer]
      # @return [nil]
      def fail_commits(group, count = 1) = client(group).commits_to_fail += count

      # ---- time ----

      # Does all that can be done now.
      # @return [self]
      def run = advance(0)

      # Lets time pass, and does what can be done meanwhile.
      # @param seconds [Numeric]
      # @return [self]
      def advance(seconds)
        running
        unless seconds.is_a?(Numeric) && seconds.real? && seconds >= 0
          raise ArgumentError, "the time to pass must be seconds from 0, not #{seconds.inspect}"
        end

        target = @runtime.now + seconds
        settle
        while (left = @loop.timers.left) && @runtime.now + left <= target
          @runtime.advance(left)
          settle
        end
        @runtime.advance(target - @runtime.now)
        self
      end

      # One step, which the seed chooses: a worker ends what it has in work, or the application decides what comes next.
      # @return [self]
      def step
        running
        @runtime.choose(method(:turn)).call
        self
      end

      # ---- the application ----

      # The process is killed, and starts again: only what is committed counts.
      # @return [self]
      def crash
        @runtime.forget_threads
        begin_again(clients.to_h { |client| [client.group, client] })
        self
      end

      # {App::Server#stop}, with the time that it takes.
      # @return [StopReport]
      def stop
        @loop.stop
        settle
        advance(@loop.timers.left || 1) until @loop.report
        @stopped = @loop.report
      end

      # @return [Health]
      def health = @loop.watch.health

      # @return [Array<AppMetrics>]
      def metrics = @loop.watch.metrics.latest

      # @param group [String, Symbol]
      # @param topic [String, Symbol]
      # @param partition [Integer]
      # @return [Integer, nil] the committed offset
      def committed(group, topic, partition = 0) = client(group).committed.dig(known(topic), partition)

      # What processors have sent, and dead letters.
      # @param topic [String, Symbol, nil] nil: of all topics
      # @return [Array<Hash>] messages, see {Producer}
      def produced(topic = nil)
        topic ? @runtime.sent.messages_for(topic) : @runtime.sent.messages
      end

      # Copies of messages that have failed for good, in all topics of dead letters.
      # @return [Array<Hash>] messages, see {Producer}
      def dead_letters
        topics = @settings.groups.flat_map(&:routes).filter_map { |route| route.options[:dead_letter] }
        produced.select { |message| topics.include?(message[:topic]) }
      end

      # What is not committed yet, of what was produced. Without failures, and after some time, nothing.
      # @param group [String, Symbol, nil] nil: of all groups
      # @return [Array<Array(String, String, Integer, Integer)>] group, topic, partition, and how many messages
      def unfinished(group = nil)
        groups = @settings.groups.select { |one| group.nil? || one.id == group.to_s }
        groups.flat_map { |one| partitions_of(one).filter_map { |place| behind(one.id, *place) } }
      end

      # @return [Array<Array(String, Integer, Integer)>] topic, partition and first offset of what workers have now
      def in_work = @runtime.running.map { |work| [work.partition.topic, work.partition.number, work.offset] }

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(seed:, messages: @log.size)

      # @return [String]
      def inspect = "#<#{self.class} seed #{seed}, #{@log.size} messages>"

      private

      def begin_again(before = {})
        @stopped = nil
        @loop = App.const_get(:Loop).new(@settings, @runtime)
        @loop.start
        clients.each do |client|
          @log.each { |message| client.feed(message) }
          client.take_over(before[client.group]) if before[client.group]
        end
      end

      def clients = @loop.subscriptions.map { |one| one.consumer.client }

      def client(group)
        found = clients.find { |one| one.group == group.to_s }
        found or raise ArgumentError, "the application has no group #{group.inspect}" \
                                      "#{Suggestion.hint(group.to_s, clients.map(&:group))}"
      end

      def partitions_of(group)
        @log.map { |message| [message.topic, message.partition] }.uniq.select { |topic,| group.route_of(topic) }
      end

      def behind(group, topic, partition)
        from = committed(group, topic, partition) || 0
        count = @log.count { |one| one.topic == topic && one.partition == partition && one.offset >= from }
        [group, topic, partition, count] if count.positive?
      end

      def places(partitions)
        return if partitions.nil?

        partitions.is_a?(Hash) or
          raise ArgumentError, "expected partitions such as { \"orders\" => [0] }, not #{partitions.inspect}"
        partitions.flat_map { |topic, numbers| Array(numbers).map { |number| [known(topic), number] } }
      end

      # @return [String] a topic of the application
      def known(topic)
        routes = @settings.groups.flat_map(&:routes)
        return topic.to_s if routes.any? { |route| route.matches?(topic.to_s) }

        names = routes.map { |route| route.topic.to_s }
        raise ArgumentError, "the application has no topic #{topic.inspect}#{Suggestion.hint(topic.to_s, names)}"
      end

      def running
        raise ArgumentError, "the application has been stopped: crash starts it again" if @stopped
      end

      def next_offset(topic, partition)
        last = @log.reverse_each.find { |message| message.topic == topic && message.partition == partition }
        last ? last.offset + 1 : 0
      end

      # Until two turns have found nothing to do: the first may have read what came back.
      def settle
        steps = 0
        until Array.new(2) { idle_turn? }.all?
          step
          raise "the application does the same again and again, perhaps with retry: { from: 0 }" if (steps += 1) > MOST_STEPS
        end
      end

      def idle_turn?
        return false if @runtime.busy?

        turn
        !@runtime.busy? && clients.none?(&:moved?)
      end

      def turn
        deliver_retries
        clients.each(&:rest)
        @loop.turn
      end

      # What went to retry topics comes from there.
      def deliver_retries
        topics = @settings.groups.flat_map(&:routes).select(&:retry?).map(&:topic)
        return if topics.empty?

        sent = produced
        sent.drop(@retries_delivered).each do |message|
          produce(message[:topic], **message.slice(:payload, :key, :headers)) if topics.include?(message[:topic])
        end
        @retries_delivered = sent.size
      end
    end
  end
end

# frozen_string_literal: true

module Penstock
  class App
    # What the block of {Penstock.app} gets.
    class Builder
      include ShortInspect

      # A program cannot set them: the application commits, when messages are processed.
      OURS = %i[enable.auto.commit enable.auto.offset.store group.id].freeze
      private_constant :OURS

      # @return [Hash] librdkafka's settings for all clients, such as "bootstrap.servers"; those that only
      #   consumers or producers have apply to these. See {ConsumerConfig#kafka}
      attr_accessor :kafka
      # @return [Hash] further settings for the application's own producer
      attr_accessor :producer_kafka
      # @return [Integer] worker threads; default 5
      attr_accessor :threads
      # @return [Numeric] seconds between commits; default 5
      attr_accessor :commit_interval
      # @return [Numeric] seconds that partitions which are taken away wait for work; default 30. The group waits meanwhile
      attr_accessor :drain_timeout
      # @return [Numeric] seconds that stopping may take; default 25, as Kubernetes kills a process after 30
      attr_accessor :shutdown_timeout
      # @return [Numeric] seconds; default 300. What takes longer counts as stalled: see {Health}
      attr_accessor :stall_after
      # @return [String, nil] where others may ask how the application is: "http://127.0.0.1:9394", "unix:/run/app.sock" or
      #   "file:/run/app.json", which is written every second. See `penstock probe`. It answers any
      #   client that can connect to it
      attr_accessor :probe
      # @return [Integer, nil] bytes: about how much messages of all groups may take that are not processed yet. Half of it is for
      #   those that librdkafka has fetched, and at least 8 MB for each member. nil: 67_108_864, and for what is fetched the
      #   default of {ConsumerConfig#memory}, for each member
      attr_accessor :memory
      # @return [Logger, nil] gets errors. nil: they go to stderr, unless a listener has subscribed to "error.occurred"
      attr_accessor :logger
      # @return [Monitor] publishes the events
      attr_accessor :monitor
      # @return [Producer, nil] sends dead letters, and what processors produce. nil: one of its own
      attr_accessor :producer

      Origin.note(self, %i[kafka producer_kafka threads commit_interval drain_timeout shutdown_timeout stall_after probe memory
                           logger monitor producer])

      # {Penstock.app} makes it.
      def initialize
        @kafka = {}
        @producer_kafka = {}
        @threads = 5
        @commit_interval = 5
        @drain_timeout = 30
        @shutdown_timeout = 25
        @stall_after = 300
        @monitor = Monitor.new
        @groups = []
        @hooks = []
        @topics = nil
      end

      # Adds a group.
      # @param id [String, Symbol] the "group.id"
      # @param connections [Integer] how many members of the group this process has
      # @param kafka [Hash] further settings for its consumers
      # @yieldparam group [GroupBuilder]
      # @return [nil]
      # @raise [ConfigurationInvalidError, ArgumentError]
      # @overload group(id, connections: 1, kafka: {})
      def group(id, *more, connections: 1, kafka: {}, **wrong)
        Keywords.check("group(\"billing\", connections: 1, kafka: {}) { |group| ... }", %i[connections kafka], more, wrong)
        check_group(id, connections)
        invalid("the group #{id} has no block that adds topics") unless block_given?
        builder = GroupBuilder.new(id.to_s)
        yield builder
        @groups << [builder, connections, hash("kafka of the group #{id}", kafka)]
        nil
      end

      # Declares the topics that the application needs. The application itself neither checks nor makes them: `penstock topics
      # apply` does, for example in a deployment, and {App#topics} is for {Admin#apply}.
      #
      #     app.topics do |declare|
      #       declare.topic "orders", partitions: 12, config: { "retention.ms" => 604_800_000 }
      #     end
      #
      # @yieldparam declare [Admin::TopicCatalog]
      # @return [nil]
      # @raise [ConfigurationInvalidError, ArgumentError]
      def topics(&declarations)
        invalid("app.topics requires a block that declares topics") unless declarations
        invalid("app.topics is there twice") if @topics
        @topics = Admin::TopicCatalog.new(&declarations)
        nil
      end

      # Adds a hook around each call of a processor. The first hook is the outermost.
      #
      #     app.around(:process) { |record, go| Trace.span(record&.id) { go.call } }
      #
      # @param what [:process]
      # @yieldparam record [Message, nil] nil for a batch
      # @yieldparam go [#call] goes on; the message fails if it is not called
      # @return [nil]
      def around(what, &hook)
        invalid("around is possible for :process, not #{what.inspect}") unless what == :process
        invalid("around(:process) requires a block") unless hook
        @hooks << hook
        nil
      end

      private

      def finish
        check
        App.new(Settings.new(**values, groups: finished_groups).tap { |settings| check_memory(settings) }.freeze)
      end

      def check_memory(settings)
        least = settings.least_memory
        return if memory.nil? || whole?(memory, least)

        members = Text.count(settings.members, "member")
        invalid("app.memory must be bytes from #{least}, as the application has #{members} of groups, not #{memory.inspect}")
      end

      def values
        { kafka: @kafka, producer_kafka: @producer_kafka, threads:, commit_interval:, drain_timeout:, shutdown_timeout:, memory:,
          logger:, monitor:, producer:, stall_after:, probe: @target, hooks: @hooks.freeze,
          topics: @topics || Admin::TopicCatalog.new, origins: (@origins || {}).freeze }
      end

      def check
        @kafka = hash("app.kafka", @kafka)
        @producer_kafka = hash("app.producer_kafka", @producer_kafka)
        invalid("app.threads must be an Integer from 1, not #{threads.inspect}") unless whole?(threads, 1)
        { commit_interval:, drain_timeout:, shutdown_timeout: }.each { |name, value| check_seconds(name, value) }
        check_seconds("stall_after", stall_after, 86_400)
        check_probe
        check_objects
        invalid("the application has no group") if @groups.empty?
      end

      def check_probe
        @target = Probe.parse(probe) unless probe.nil?
        invalid("app.probe must be #{Probe::FORMS}, not #{probe.inspect}") unless probe.nil? || @target
      end

      def check_objects
        invalid("app.logger must be a Logger or nil, not #{logger.class}") unless logger.nil? || logger.respond_to?(:add)
        invalid("app.monitor must be a Penstock::Monitor, not #{monitor.class}") unless monitor.is_a?(Monitor)
      end

      def check_group(id, connections)
        invalid("a group's id must be a String or Symbol, not #{id.inspect}") unless name?(id)
        invalid("the group #{id} is there twice") if @groups.any? { |group, *| group.id == id.to_s }
        invalid("connections must be an Integer from 1, not #{connections.inspect}") unless whole?(connections, 1)
      end

      def name?(id) = (id.is_a?(String) || id.is_a?(Symbol)) && !id.empty?

      def whole?(number, least) = number.is_a?(Integer) && number >= least

      def check_seconds(name, value, most = 3_600)
        return if value.is_a?(Numeric) && value.real? && value.positive? && value <= most

        invalid("app.#{name} must be seconds above 0, at most #{most}, not #{value.inspect}")
      end

      def finished_groups
        common = SettingTable.for_role(@kafka, :consumer)
        @groups.map do |builder, connections, kafka|
          routes = builder.__send__(:routes)
          invalid("the group #{builder.id} has no topic") if routes.empty?
          GroupSettings.new(builder.id, routes, connections, { **common, **kafka }.freeze)
        end.freeze
      end

      def hash(name, given)
        given.is_a?(Hash) or invalid("#{name} must be a Hash, not #{given.class}")
        settings = given.transform_keys(&:to_sym)
        forbidden = settings.keys.find { |setting| OURS.include?(setting) }
        invalid("#{name}: #{forbidden} is the application's own matter") if forbidden
        unknown = SettingTable.unknown(settings)
        invalid("#{name}: #{unknown}") if unknown
        settings.freeze
      end

      def invalid(text) = raise(ErrorFactory.build(ConfigurationInvalidError, text))
    end

    # What the block of {Builder#group} gets.
    class GroupBuilder
      include ShortInspect

      # @return [String]
      attr_reader :id

      # {Builder#group} makes it.
      # @param id [String]
      def initialize(id)
        @id = id
        @routes = []
      end

      # Adds a topic.
      # @overload topic(name, to:, order: :partition, in_flight: 1_000, value: nil, key: nil, batch: nil, filter: nil, delay: nil,
      #   expire: nil, throttle: nil, tick: nil, offsets: :automatic, uncommitted: {}, retry: {}, dead_letter: nil,
      #   after_retries: nil, fatal: [])
      #   @param name [String, Symbol, Regexp] a pattern is for whole names
      #   @param to [Class, String, #call] a subclass of {Processor}, its name, or an object with a method `call`
      #   @param order [:partition, :key, :unordered] what is processed one after the other: the messages of a partition, those
      #     of a key, or none
      #   @param in_flight [Integer] how many messages of a partition may be handed out and not processed; not with :partition
      #   @param value [:json, #load, #call, nil] makes {Message#value}
      #   @param key [:json, #load, #call, nil] makes {Message#decoded_key}
      #   @param batch [Hash, nil] { size: 100, wait: 0 }: the processor gets batches of at most so many messages; of fewer, if
      #     no more are there `wait` seconds after the first one
      #   @param filter [#call, nil] gets each message; if it returns false or nil, the message counts as processed
      #   @param delay [Numeric, nil] seconds: a message is processed no earlier after its timestamp
      #   @param expire [Numeric, nil] seconds: a message that is older, by its timestamp, counts as processed
      #   @param throttle [Hash, Array<Hash>, nil] { messages: 100, per: 1, over: :partition }: at most so many messages in so
      #     many seconds, of each partition, of each topic (`over: :topic`) or of all topics of this call (`:process`), as far as
      #     this process has them. Several: all must allow a message
      #   @param tick [Numeric, nil] seconds: how often {Processor} has its method `tick` called, for each partition
      #   @param offsets [:automatic, :manual] what the group commits: what is processed, or what {Processor#checkpoint} says
      #   @param uncommitted [Hash] { messages: 20_000, bytes: 67_108_864 }: how much of a partition may be processed and not
      #     committed; a crash repeats so much. From half of it on a commit does not wait for its time. Not with manual offsets
      #   @param retry [Hash] { times: nil, from: 1, to: 60 }: how often a message is tried again, and the first and the longest
      #     wait in seconds. Each wait is twice the one before. The default of `times` is 5; with `after_retries: :block` it is
      #     nil: until it succeeds. `topics: [30, 300]`, with `order: :unordered`: it then goes to the topic NAME.GROUP.retry.30s,
      #     is tried 30 s later, and so on
      #   @param dead_letter [String, nil] the topic for messages that failed for good
      #   @param after_retries [:block, :dead_letter, :skip, :stop, nil] what happens when the retries are used up, or the message
      #     was rejected. :block tries for ever, and is the default without `dead_letter`: no message is skipped unasked
      #   @param fatal [Array<Class>] exceptions of its processor that end the application with exit status 1, as SystemExit,
      #     signals and NoMemoryError always do. The message does not count: it comes again
      #   @return [nil]
      #   @raise [ConfigurationInvalidError, ArgumentError] when an option is invalid or unknown
      def topic(name, to: nil, **options)
        name = name.name if name.is_a?(Symbol)
        check_name(name)
        if @routes.any? { |route| route.topic == name }
          raise ErrorFactory.build(ConfigurationInvalidError, "the group #{id} has the topic #{name.inspect} twice")
        end

        route = Route.new(name, to, RouteOptions.complete(name, options), options.keys, Origin.here)
        check_dead_letter(route)
        Maker.new(route).check
        @routes.push(route, *checked(route.retry_routes(id)))
        nil
      end

      private

      attr_reader :routes

      def check_name(name)
        return if name.is_a?(Regexp) || (name.is_a?(String) && TopicName.valid?(name))

        form = name.is_a?(String) ? "have a name of #{TopicName::FORM}" : "be a name or a Regexp"
        raise ErrorFactory.build(ConfigurationInvalidError, "a topic must #{form}, not #{name.inspect}")
      end

      # The names contain that of the group, for which brokers accept more. No copy could be stored there.
      def checked(retry_routes)
        wrong = retry_routes.find { |route| !TopicName.valid?(route.topic) } or return retry_routes
        raise ErrorFactory.build(ConfigurationInvalidError,
                                 "retry: { topics: ... } needs the topic #{wrong.topic.inspect}, which is not a valid name",
                                 "Use a group and a topic with letters, digits, dots, dashes and underscores, up to 249 in all.")
      end

      # Its copies would fail again, and be copied again, for ever.
      def check_dead_letter(route)
        dead = route.options[:dead_letter]
        return unless dead && route.matches?(dead)

        text = "the dead letters of #{route.topic.inspect} must be in another topic, not #{dead.inspect}"
        raise ErrorFactory.build(ConfigurationInvalidError, text, topic: dead)
      end
    end
  end
end

# frozen_string_literal: true

module Penstock
  class App
    # Checks the options of {GroupBuilder#topic}, and knows their defaults.
    # @api private
    module RouteOptions
      DEFAULTS = { order: :partition, in_flight: 1_000, value: nil, key: nil, batch: nil, filter: nil, delay: nil, expire: nil,
                   throttle: nil, tick: nil, offsets: :automatic, uncommitted: {}.freeze, retry: {}.freeze, dead_letter: nil,
                   after_retries: nil, fatal: [].freeze }.freeze
      RETRY = { times: nil, from: 1, to: 60, topics: [].freeze }.freeze
      TIMES = 5 # unless a message is tried for ever
      BATCH = { size: 100, wait: 0 }.freeze
      # Messages of a partition that are processed and not committed, and their bytes.
      UNCOMMITTED = { messages: 20_000, bytes: 64 << 20 }.freeze
      THROTTLE = { messages: nil, per: 1, over: :partition }.freeze
      OVER = %i[partition topic process].freeze
      ORDERS = %i[partition key unordered].freeze
      OFFSETS = %i[automatic manual].freeze
      AFTER = %i[block dead_letter skip stop].freeze
      FORM = "group.topic(\"orders\", to: Orders, order: :key)"
      private_constant :DEFAULTS, :RETRY, :TIMES, :BATCH, :UNCOMMITTED, :THROTTLE, :OVER, :ORDERS, :OFFSETS, :AFTER, :FORM

      class << self
        # @param options [Hash] as given
        # @return [Hash] complete and frozen
        # @raise [ConfigurationInvalidError]
        def complete(topic, options)
          @topic = topic
          known(options, DEFAULTS.keys, "")
          found = DEFAULTS.merge(options)
          check(found)
          found[:after_retries] ||= found[:dead_letter] ? :dead_letter : :block
          found[:retry] = retries(found[:retry], default_times(found))
          found[:fatal] = fatal(found[:fatal])
          check_retry_topics(found)
          found.freeze
        end

        private

        def check(options)
          one_of(:order, options[:order], ORDERS)
          offsets(options)
          positive(:in_flight, options[:in_flight])
          codec(:value, options[:value])
          codec(:key, options[:key])
          gates(options)
          options[:throttle] = throttles(options[:throttle])
          options[:uncommitted] = uncommitted(options[:uncommitted])
          options[:batch] = batch(options[:batch], options[:order])
          dead_letter(options)
        end

        def offsets(options)
          one_of(:offsets, options[:offsets], OFFSETS)
          return if options[:offsets] == :automatic || options[:order] == :partition

          invalid("offsets: :manual is possible with order: :partition only: earlier messages of other lanes may be in work")
        end

        def gates(options)
          filter, *times = options.values_at(:filter, :delay, :expire, :tick)
          invalid(":filter must be nil or respond to call, not #{filter.inspect}") unless filter.nil? || filter.respond_to?(:call)
          %i[delay expire tick].zip(times) do |name, value|
            next if value.nil? || (number?(value) && value.positive?)

            invalid(":#{name} must be nil or seconds above 0, not #{value.inspect}")
          end
        end

        # With topics, a message is tried once in each.
        def default_times(options)
          given = options[:retry]
          return 0 if given.is_a?(Hash) && given.key?(:topics) && given[:topics] != []

          options[:after_retries] == :block ? nil : TIMES
        end

        def check_retry_topics(options)
          topics = options[:retry][:topics]
          delays?(topics) or invalid(":retry needs topics: an Array of different seconds above 0, not #{topics.inspect}")
          return if topics.empty?

          invalid("retry topics require a topic's name, not a Regexp") unless @topic.is_a?(String)
          invalid("retry topics require order: :unordered, as later messages do not wait") unless options[:order] == :unordered
          invalid("retry topics are not possible with batches") if options[:batch]
          invalid("retry topics require times: an Integer, not nil") if options[:retry][:times].nil?
        end

        def delays?(given)
          given.is_a?(Array) && given.all? { |delay| number?(delay) && delay.positive? } && given.uniq == given
        end

        def retries(given, default_times)
          given = hash(:retry, given, { **RETRY, times: default_times })
          times, from, to = given.values_at(:times, :from, :to)
          given[:topics] = given[:topics].dup.freeze
          invalid(":retry needs times: nil or an Integer from 0, not #{times.inspect}") unless times.nil? || whole?(times, 0)
          seconds(:retry, :from, from)
          seconds(:retry, :to, to)
          invalid(":retry needs from: (#{from}) not above to: (#{to})") if from > to
          given.freeze
        end

        def throttles(given)
          return throttle(given) unless given.is_a?(Array)

          given.empty? ? nil : given.map { |one| throttle(one) || invalid(":throttle must have no nil") }.freeze
        end

        def throttle(given)
          return if given.nil?

          given = hash(:throttle, given, THROTTLE)
          unless whole?(given[:messages], 1)
            invalid(":throttle needs messages: an Integer from 1, not #{given[:messages].inspect}")
          end
          seconds(:throttle, :per, given[:per])
          one_of("throttle needs over, which", given[:over], OVER)
          given[:per] >= 0.001 or invalid(":throttle needs per: seconds from 0.001, not #{given[:per]}")
          given.freeze
        end

        def uncommitted(given)
          given = hash(:uncommitted, given, UNCOMMITTED)
          given.each do |part, value|
            invalid(":uncommitted needs #{part}: an Integer from 1, not #{value.inspect}") unless whole?(value, 1)
          end
          given.freeze
        end

        def batch(given, order)
          return if given.nil?

          given = hash(:batch, given, BATCH)
          invalid(":batch needs size: an Integer from 1, not #{given[:size].inspect}") unless whole?(given[:size], 1)
          seconds(:batch, :wait, given[:wait])
          return given.freeze unless order == :key

          invalid(":batch is possible with order: :partition or :unordered only: messages of many keys would wait for each other")
        end

        def dead_letter(options)
          given = options[:dead_letter]
          unless given.nil? || (given.is_a?(String) && TopicName.valid?(given))
            invalid(":dead_letter must be a topic's name or nil, not #{given.inspect}")
          end
          after = options[:after_retries]
          one_of(:after_retries, after, AFTER) if after
          invalid("after_retries: :dead_letter requires dead_letter: \"topic\"") if after == :dead_letter && given.nil?
        end

        def fatal(given)
          return given.dup.freeze if given.is_a?(Array) && given.all? { |kind| kind.is_a?(Module) && kind <= Exception }

          invalid(":fatal must be an Array of exception classes, not #{given.inspect}")
        end

        def hash(name, given, defaults)
          given.is_a?(Hash) or invalid(":#{name} must be a Hash, such as #{defaults.inspect}, not #{given.inspect}")
          known(given, defaults.keys, " of :#{name}")
          defaults.merge(given)
        end

        def known(given, names, where)
          unknown = given.keys.find { |name| !names.include?(name) } or return
          raise ArgumentError, "unknown option#{where}: #{unknown.inspect}#{Suggestion.hint(unknown, names)}; write #{FORM}"
        end

        def one_of(name, value, values)
          values.include?(value) or invalid(":#{name} must be one of #{values.map(&:inspect).join(", ")}, not #{value.inspect}")
        end

        def positive(name, value) = whole?(value, 1) || invalid(":#{name} must be an Integer from 1, not #{value.inspect}")

        def whole?(value, least) = value.is_a?(Integer) && value >= least

        def number?(value) = value.is_a?(Numeric) && value.real? && value.to_f.finite?

        def seconds(name, part, value)
          return if number?(value) && value >= 0

          invalid(":#{name} needs #{part}: seconds from 0, not #{value.inspect}")
        end

        def codec(name, given)
          return if given.nil? || Codec.method_of(given, :load)

          invalid(":#{name} must be nil, :json or an object with a method load or call, not #{given.inspect}")
        end

        def invalid(text)
          raise ErrorFactory.build(ConfigurationInvalidError, text.sub(/\A:/, "the option :"), topic: @topic.to_s)
        end
      end
    end
    private_constant :RouteOptions
  end
end

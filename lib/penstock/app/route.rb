# frozen_string_literal: true

module Penstock
  class App
    # Which processor gets the messages of a topic, or of all topics that a pattern matches, and how. Frozen.
    class Route
      # What ends the application whatever the options: nobody can know what is left.
      FATAL = [SystemExit, SignalException, NoMemoryError].freeze
      # What {Processor#skip} and its like raise is no error. So a route whose `fatal` has a general class does not mean it.
      COMMANDS = [Processor::Rejected, Processor::Skipped, Processor::RetryLater, Processor::SeekTo].freeze
      GENERAL = [Exception, StandardError].freeze
      private_constant :FATAL, :COMMANDS, :GENERAL

      # @return [String, Regexp]
      attr_reader :topic
      # @return [Hash{Symbol => Object}] all options, with their defaults
      attr_reader :options
      # @return [Class, String, #call] as given
      attr_reader :processor

      # @return [String, nil] the file and line that have added it
      attr_reader :origin

      # {GroupBuilder#topic} makes it.
      # @param options [Hash{Symbol => Object}] complete
      # @param given [Array<Symbol>] those that the program has set
      # @param origin [String, nil]
      # @param hop [Integer] the number of the retry topic, from 1; 0: it is none
      # @param source [String, Regexp] the topic from which messages come to the retry topic
      def initialize(topic, processor, options, given = [], origin = nil, hop: 0, source: topic)
        @hop = hop
        @source = source
        @origin = origin
        @topic = topic
        @processor = processor
        @options = options
        @given = given.freeze
        @pattern = Regexp.new(TopicPattern.of(topic)) if topic.is_a?(Regexp)
        freeze
      end

      # @return [Integer]
      attr_reader :hop

      # @return [Boolean] whether messages have a time at which they are due
      def retry? = hop.positive?

      # @param group [String] the group's id
      # @return [Array<Route>] of its retry topics
      def retry_routes(group)
        last = options[:retry][:topics].size
        more = { delay: nil, expire: nil, filter: nil, throttle: nil }
        options[:retry][:topics].each_with_index.map do |seconds, i|
          times = i + 1 == last && options[:after_retries] == :block ? nil : options[:retry][:times]
          found = { **options, **more, retry: { **options[:retry], times: }.freeze }.freeze
          Route.new(retry_topic(group, seconds), processor, found, @given, origin, hop: i + 1, source: topic)
        end
      end

      # @param group [String]
      # @return [Array(String, Numeric), nil] the topic to which a message goes that has failed here, and after how many seconds
      #   it is due there
      def next_topic(group)
        seconds = options[:retry][:topics][hop] or return
        [retry_topic(group, seconds), seconds]
      end

      # @return [String] the name of its class
      def processor_name = processor.is_a?(String) ? processor : Text.name_of(processor)

      # @param option [Symbol]
      # @return [Boolean] whether the program has set it
      def given?(option) = @given.include?(option)

      # @return [Symbol]
      def order = options[:order]

      # @return [Boolean] whether its processor gets batches
      def batch? = !options[:batch].nil?

      # @param error [Exception, nil] of a processor or hook
      # @return [Boolean] whether it ends the application
      def fatal?(error)
        return true if FATAL.any? { |kind| error.is_a?(kind) }

        kinds = options[:fatal]
        kinds -= GENERAL if COMMANDS.any? { |kind| error.is_a?(kind) }
        kinds.any? { |kind| error.is_a?(kind) }
      end

      # With a pattern: as in a subscription, for whole names.
      # @param name [String] of a topic
      # @return [Boolean]
      def matches?(name) = @pattern ? @pattern.match?(name) : topic == name

      # @return [String]
      def inspect = "#<#{self.class} #{topic.inspect} to #{processor_name}>"

      private

      def retry_topic(group, seconds) = "#{@source}.#{group}.retry.#{seconds}s"
    end
  end
end

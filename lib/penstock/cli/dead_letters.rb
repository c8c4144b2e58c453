# frozen_string_literal: true

require "json"
require "penstock/app"
require_relative "command"
require_relative "kafka_options"
require_relative "../app/dead_letters"

module Penstock
  module CLI
    # `penstock dead-letters`
    # @api private
    class DeadLetters < Command
      NAME = "dead-letters"
      USAGE = "list|show|replay TOPIC [OPTIONS]"
      ACTIONS = %w[list show replay].freeze
      PLACE = %r{\A(\d{1,9})/(\d{1,18})\z}
      # Bytes of a payload that are printed.
      MOST = 10_000
      ABOUT = <<~TEXT
        list prints the messages in a topic of dead letters: place, source, group, kind and error. show prints
        one, with its headers and its payload. A PLACE is PARTITION/OFFSET.

        replay sends messages to the topic and partition that they came from, or to another topic (--to). Key,
        payload and headers are as they were, with the headers source_* in addition; the timestamp is new.
        Without --place and --error it sends all that no replay of this kind has sent before: the group TOPIC-replay
        (--group) notes that after each 500 messages, so a replay that is ended midway sends up to 500 again.
        With them, nothing is noted. Nothing is deleted. Every group that reads the source gets the
        messages again: use --to if others read it, too.

        The exit status is 0, 1 if something failed or messages were left that have no source, 2 for wrong usage.
      TEXT
      private_constant :ACTIONS, :PLACE, :MOST

      def initialize(out)
        super
        @kafka = KafkaOptions.new
        @places = []
        @json = @dry = false
        @timeout = 10
      end

      private

      def define(parser)
        @kafka.define(parser)
        define_choice(parser)
        parser.on("--to TOPIC", "replay: to this topic") { |topic| @to = topic }
        parser.on("--group ID", "replay: the group that notes what was sent") { |id| @group = id }
        parser.on("--dry-run", "replay: send nothing") { @dry = true }
        define_timeout(parser, "until brokers answer (default 10)")
        parser.on("--json", "list: print a line of JSON for each message") { @json = true }
      end

      def perform(words)
        action, topic, *more = words
        check(action, topic, more)
        @letters = App.const_get(:DeadLetters).new(topic, kafka, @group, @timeout)
        __send__(action)
      rescue ConfigurationError => e
        raise UsageError, e.message
      rescue Penstock::Error => e
        raise Failure, e.message
      end

      def define_choice(parser)
        parser.on("--place PLACE", "only this message; may be there several times") { |text| @places << place(text) }
        parser.on("--error CLASS", "only messages that failed with this class of error") { |name| @error = name }
      end

      def place(text)
        match = text.match(PLACE) or raise UsageError, "--place: expected PARTITION/OFFSET, such as 0/17"
        match.captures.map { |digits| Integer(digits, 10) }
      end

      def check(action, topic, more)
        misused("requires list, show or replay, and a topic") unless ACTIONS.include?(action) && topic && !topic.empty?
        misused("accepts one topic") unless more.empty?
        raise UsageError, "show requires --place PARTITION/OFFSET" if action == "show" && @places.empty?

        check_options(action, topic)
      end

      # An option that would do nothing is a mistake.
      def check_options(action, topic)
        { "--to" => @to, "--group" => @group, "--dry-run" => @dry }.each do |option, value|
          raise UsageError, "#{option} is an option of replay" if value && action != "replay"
        end
        raise UsageError, "--json is an option of list" if @json && action != "list"
        raise UsageError, "--group is empty" if @group == ""

        check_topics(topic, @to)
      end

      def check_topics(topic, other)
        valid = [topic, *other].all? { |name| TopicName.valid?(name) }
        raise UsageError, "a topic's name must be #{TopicName::FORM}" unless valid
        raise UsageError, "--to must be another topic" if other == topic
      end

      def kafka
        raise UsageError, "no cluster is named: use --bootstrap" if @kafka.servers.empty?

        { log_level: 0, **@kafka.settings, "bootstrap.servers": @kafka.servers.join(",") }
      end

      def chosen?(letter) = @error.nil? || letter.error == @error

      def each_chosen
        (@places.empty? ? [nil] : @places).each do |place|
          @letters.each(place) { |letter| yield letter if chosen?(letter) }
        end
      end

      def list
        count = 0
        each_chosen do |letter|
          count += 1
          @out.puts @json ? JSON.generate(letter.to_h.transform_values { |value| value && Text.printable(value) }) : line(letter)
        end
        @out.puts Text.count(count, "message") unless @json
        0
      end

      def line(letter)
        row = letter.to_h
        words = [row[:place], row[:source] || "of unknown source", row[:group], row[:kind],
                 row[:attempts] && "attempts=#{row[:attempts]}", row[:failed_at], [row[:error], row[:message]].compact.join(": ")]
        Text.printable(words.compact.join(" ").strip)
      end

      def show
        found = 0
        each_chosen do |letter|
          found += 1
          message = letter.message
          @out.puts line(letter), "key: #{message.key ? Text.printable(message.key) : "none"}"
          message.headers.each { |name, values| Array(values).each { |value| @out.puts header(name, value) } }
          @out.puts payload(message.payload)
        end
        raise Failure, "there is no such message" if found.zero?

        0
      end

      def header(name, value) = "header #{Text.printable(name)}: #{value.nil? ? "nil" : Text.printable(value)}"

      def payload(payload)
        return "payload: nil (a tombstone)" if payload.nil?

        left = payload.bytesize - MOST
        text = "payload (#{Text.count(payload.bytesize, "byte")}): #{Text.printable(payload.byteslice(0, MOST))}"
        left.positive? ? "#{text}... and #{left} more" : text
      end

      def replay
        result = if @places.empty? && @error.nil?
                   @letters.replay(to: @to, dry: @dry)
                 else
                   @letters.replay_some(@places, to: @to, dry: @dry) { |letter| chosen?(letter) }
                 end
        @out.puts "#{Text.count(result.sent, "message")} #{@dry ? "would be sent" : "sent"}"
        result.left.each { |letter| @out.puts "left, as it has no source: #{letter.place}" }
        result.left.empty? ? 0 : 1
      end
    end
  end
end

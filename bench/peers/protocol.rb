# frozen_string_literal: true

require "json"
require "optparse"

module Bench
  # What the peers written in Ruby share: the command line and the protocol of bench/README.md.
  module Protocol
    NO_SUCH_WORKLOAD = 64
    # Other output, for example of a client's logger, must not reach the program that reads the answers.
    ANSWERS = $stdout.dup
    $stdout.reopen($stderr)
    HEADERS = { "trace" => ("t" * 32).freeze, "kind" => "bench" }.freeze

    # `more`: options that only one peer accepts.
    Options = Struct.new(:workload, :bootstrap, :topic, :producers, :messages, :bytes, :key, :headers, :set, :more,
                         keyword_init: true) do
      # @return [Array<Hash>] the messages of one producer in a round
      def build_messages
        Array.new(messages) do |number|
          message = { topic:, payload: "x" * bytes }
          message[:key] = number.to_s if key
          message[:headers] = HEADERS if headers
          message
        end
      end
    end

    module_function

    # @yield [OptionParser, Hash] adds options that only this peer accepts, and stores them in the Hash
    # @return [Options] the settings in `set` are Strings
    def options(arguments, more = {})
      options = Options.new(producers: 1, bytes: 100, set: {}, more:)
      parser = OptionParser.new
      %i[bootstrap topic].each { |name| parser.on("--#{name} TEXT") { |value| options[name] = value } }
      %i[producers messages].each { |name| parser.on("--#{name} N", Integer) { |value| options[name] = value } }
      parser.on("--size BYTES", Integer) { |value| options.bytes = value }
      %i[key headers].each { |name| parser.on("--#{name}") { options[name] = true } }
      parser.on("--set NAME=VALUE") { |value| options.set.store(*value.split("=", 2)) }
      yield parser, more if block_given?
      options.workload, = parser.parse(arguments)
      options
    end

    def no_such_workload = exit(NO_SUCH_WORKLOAD)

    # Reports that it is ready, then the block's result for each round.
    def serve(ready, differs = [])
      say({ ready:, differs: })
      say(yield) while $stdin.gets
    end

    def say(answer)
      ANSWERS.puts(JSON.generate(answer))
      ANSWERS.flush
    end
  end
end

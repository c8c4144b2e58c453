# frozen_string_literal: true

require "json"
require "optparse"

module Bench
  # What the peers written in Ruby share: the command line and the conversation of bench/README.md.
  module Protocol
    NO_SUCH_WORKLOAD = 64
    # What else is printed, by a client's logger for one, is not for whoever reads the answers.
    ANSWERS = $stdout.dup
    $stdout.reopen($stderr)
    HEADERS = { "trace" => ("t" * 32).freeze, "kind" => "bench" }.freeze

    # `more`: of what only one peer takes.
    Options = Struct.new(:workload, :bootstrap, :topic, :producers, :messages, :bytes, :key, :headers, :set, :more,
                         keyword_init: true) do
      # @return [Array<Hash>] what one producer sends in a round
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

    # @yield [OptionParser, Hash] adds what only this peer takes, and keeps it in the Hash
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

    # Says that it is ready, then what the block gives for each round.
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

# frozen_string_literal: true

require "json"
require "penstock"

# What the Ruby programs of bench/programs share: their arguments, and one round for each input line.
module BenchProgram
  SERVERS, TOPIC, *rest = ARGV
  SETTINGS = rest.select { |argument| argument.include?("=") }.to_h { |argument| argument.split("=", 2) }.freeze
  ARGUMENTS = rest.reject { |argument| argument.include?("=") }.freeze
  MESSAGE = { topic: TOPIC, payload: "x" * 100 }.freeze

  module_function

  # @return [Penstock::Producer] connected
  def producer(mode: :fd, **more)
    producer = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers" => SERVERS, **SETTINGS, **more }
      config.polling.mode = mode
      yield config if block_given?
    end
    producer.tap { |one| one.produce_sync(MESSAGE) }
  end

  # Reports that it is ready. Then runs the block, which returns the round's figures, for each input line.
  def rounds(messages, what = "")
    $stdout.sync = true
    versions = "Penstock #{Penstock::VERSION}, Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"
    puts JSON.generate(ready: versions + what, differs: [])
    while $stdin.gets
      GC.start # so that garbage of earlier rounds does not count
      start = now
      found = yield
      puts JSON.generate(seconds: now - start, delivered: messages, failed: 0, **(found.is_a?(Hash) ? found : {}))
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

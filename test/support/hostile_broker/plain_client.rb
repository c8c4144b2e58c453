# frozen_string_literal: true

require "fileutils"
require_relative "../limited"

class HostileBroker
  # test/c/plain_client.c: the same client without Ruby and Penstock.
  class PlainClient
    ROOT = File.expand_path("../../..", __dir__)
    SOURCE = File.join(ROOT, "test/c/plain_client.c")
    PROGRAM = File.join(ROOT, "tmp", "native-#{RUBY_VERSION}", "plain_client") # several systems may share the tree
    SETTINGS = { # those of client.rb that both kinds of client support
      "socket.timeout.ms" => 400, "socket.connection.setup.timeout.ms" => 1_000, "reconnect.backoff.ms" => 5,
      "reconnect.backoff.max.ms" => 20, "topic.metadata.refresh.fast.interval.ms" => 10, "allow.auto.create.topics" => false
    }.freeze
    CONSUMING = { "fetch.wait.max.ms" => 10, "fetch.error.backoff.ms" => 5, "session.timeout.ms" => 6_000,
                  "heartbeat.interval.ms" => 50, "check.crcs" => true }.freeze
    SASL = { "security.protocol" => "sasl_plaintext", "sasl.mechanism" => "PLAIN", "sasl.username" => "u",
             "sasl.password" => "p" }.freeze
    TRANSACTIONAL = { "message.timeout.ms" => 5_000, "transaction.timeout.ms" => 6_000 }.freeze
    MORE = { assign: CONSUMING, subscribe: CONSUMING, transact: TRANSACTIONAL, produce_sasl: SASL }.freeze
    SECONDS = 20 # the longest client takes 10

    @lock = Mutex.new

    class << self
      # @param client [Symbol] as in client.rb
      # @param settings [Hash]
      # @param tries [Integer] some faults depend on microseconds
      # @yieldparam try [Integer]
      # @yieldreturn [HostileBroker] a new one for each try
      # @return [Boolean] whether the broker ended the client
      def dies?(client, settings = {}, tries: 5)
        build
        tries.times.any? do |try|
          broker = yield try
          status = run(client, broker, settings)
          status && !status.success?
        ensure
          broker&.close
        end
      end

      # @param client [Symbol]
      # @param broker [HostileBroker]
      # @return [Boolean] whether it did not end in time
      def hangs?(client, broker, settings = {})
        build
        run(client, broker, settings).nil?
      end

      private

      # @return [Process::Status, nil] nil: it hung
      def run(client, broker, settings)
        pairs = { **SETTINGS, **MORE.fetch(client, {}), **settings }.map { |name, value| "#{name}=#{value}" }
        kind = { produce_sasl: "produce" }.fetch(client, client.to_s)
        Limited.capture2e(PROGRAM, kind, broker.address, *pairs, seconds: SECONDS).last
      rescue Limited::TooLong
        nil
      end

      def build
        @lock.synchronize do
          next if File.exist?(PROGRAM) && File.mtime(PROGRAM) > File.mtime(SOURCE)

          FileUtils.mkdir_p(File.dirname(PROGRAM))
          libraries = `pkg-config --cflags --libs rdkafka`.split
          command = ["cc", "-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", SOURCE, "-o", PROGRAM, *libraries]
          output, status = Limited.capture2e(*command)
          raise output unless status.success?
        end
      end
    end
  end
end

# frozen_string_literal: true

require "json"
require "rbconfig"
require "tempfile"
require "timeout"
require_relative "support"

# The programs that the benchmarks compare: the code that runs them, and their list.
module Bench
  # A program that speaks the protocol of bench/README.md, and how to start it.
  class Peer
    # It died, was silent, or violated the protocol. The message ends with what it wrote on stderr.
    class Failed < StandardError; end
    # It has no such workload.
    class NoSuchWorkload < Failed; end

    WORKLOADS = %w[batch async sync].freeze
    # The settings of a producer that every client has or may have, under Kafka's own names. All others are librdkafka's.
    KAFKA_SETTINGS = %w[
      acks batch.size client.id compression.gzip.level compression.lz4.level compression.type compression.zstd.level
      connections.max.idle.ms delivery.timeout.ms enable.idempotence enable.metrics.push linger.ms
      max.in.flight.requests.per.connection metadata.max.age.ms partitioner receive.buffer.bytes reconnect.backoff.max.ms
      reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms send.buffer.bytes
      transaction.timeout.ms transactional.id
    ].freeze

    attr_reader :name, :workloads

    # @param librdkafka [Boolean] whether it accepts librdkafka's own settings too
    # @param not_embedded [String, nil] why it cannot use the embedded cluster
    # @param why_not [Proc, nil] returns the reason if it cannot run here, else nil
    # @param command [Proc] returns the program and its first arguments; called at each start
    def initialize(name, workloads: WORKLOADS, librdkafka: true, not_embedded: nil, why_not: nil, &command)
      @name = name
      @workloads = workloads
      @librdkafka = librdkafka
      @not_embedded = not_embedded
      @why_not = why_not
      @command = command
    end

    # @param embedded [Boolean] whether on the embedded cluster
    def available?(embedded: false) = why_not(embedded:).nil?

    # @return [String, nil] the reason as a sentence, or nil if it can run here
    def why_not(embedded: false)
      reason = @why_not&.call || (@not_embedded if embedded)
      "#{name}: #{reason}" if reason
    end

    # @param more [Array<String>] arguments that only this peer accepts
    # @param transactions [Integer] how many in each round, for peers with this workload
    # @param set [Hash] producer settings
    # @param limit [Numeric] the seconds for any answer
    # @return [Run] that is ready
    def start(workload, servers:, topic:, messages:, producers: 1, size: 100, key: false, headers: false, transactions: nil,
              set: {}, more: [], limit: 120)
      arguments = [workload, "--bootstrap", servers, "--topic", topic, "--producers", producers, "--messages", messages,
                   "--size", size]
      arguments << "--key" if key
      arguments << "--headers" if headers
      set.each { |name, value| arguments.push("--set", "#{name}=#{value}") if @librdkafka || KAFKA_SETTINGS.include?(name.to_s) }
      arguments.push("--transactions", transactions) if transactions
      count = messages * producers * (transactions || 1)
      Run.new("#{name} (#{workload})", [*@command.call, *arguments, *more].map(&:to_s), count, limit)
    end

    # One that runs.
    class Run
      # @return [Hash] `:ready`, its versions in words, and `:differs`, what it does unlike the others
      attr_reader :ready
      # @return [Integer, nil] nil when it has ended
      attr_reader :pid

      def initialize(name, command, messages, limit)
        @name = name
        @messages = messages
        @limit = limit
        @errors = Tempfile.create("peer")
        File.unlink(@errors.path)
        its_input, @input = IO.pipe
        @output, its_output = IO.pipe
        # A group of its own, so that none of what it starts is left when it is killed.
        @pid = Process.spawn(*command, in: its_input, out: its_output, err: @errors, pgroup: true)
        [its_input, its_output].each(&:close)
        @ready = { differs: [], **answer("start", limit) }
        wrong("did not say that it is ready, but #{@ready}") unless @ready[:ready].is_a?(String)
      end

      # @return [Hash] `:seconds`, `:delivered`, `:failed`, and of sync `:latencies_us`
      def round(limit: @limit)
        begin
          @input.puts
        rescue Errno::EPIPE
          nil # it has ended; there will be no answer, and that says why
        end
        result = answer("run a round", limit)
        wrong("did not send all #{@messages} messages: #{result}") unless result.values_at(:delivered, :failed) == [@messages, 0]
        wrong("did not say how long it took: #{result}") unless result[:seconds].is_a?(Numeric)
        result
      end

      # Ends it in good order. Closing again, and closing one that failed, does nothing.
      # @return [nil]
      def close(limit: @limit)
        return unless @pid

        @input.close
        status = ended(limit) or wrong("did not end within #{limit} s")
        wrong("ended with #{how(status)}") unless status.success?
        finish
      end

      private

      def answer(what, limit)
        line = Timeout.timeout(limit) { @output.gets }
        return wrong_end(what) unless line

        result = JSON.parse(line, symbolize_names: true)
        result.is_a?(Hash) ? result : wrong("said #{line.inspect}")
      rescue JSON::ParserError
        wrong("said #{line.inspect}")
      rescue Timeout::Error
        wrong("did not #{what} within #{limit} s")
      end

      def wrong_end(what)
        status = ended(@limit) or wrong("closed its stdout, and did not #{what}")
        return wrong("did not #{what}: it ended with #{how(status)}") unless status.exitstatus == 64

        wrong("has no such workload", NoSuchWorkload)
      end

      # @return [Process::Status, nil] nil when it still runs after so many seconds
      def ended(limit)
        deadline = Bench.now + limit
        until (status = Process.wait2(@pid, Process::WNOHANG)&.last)
          return if Bench.now > deadline

          sleep 0.01
        end
        @reaped = true
        status
      end

      def how(status) = status.signaled? ? "signal #{status.termsig}" : "status #{status.exitstatus}"

      # Ends what still runs.
      def wrong(text, error = Failed)
        finish
        raise error, ["#{@name} #{text}", @said].reject(&:empty?).join("\n")
      end

      def finish
        begin
          Process.kill(:KILL, -@pid)
        rescue Errno::ESRCH, Errno::EPERM
          nil # all processes of its group have ended (macOS: or wait to be reaped)
        end
        Process.wait(@pid) unless @reaped
        @pid = nil
        @errors.rewind
        @said = @errors.read.strip
        [@errors, @input, @output].each(&:close)
        nil
      end
    end
  end

  # The list of peers.
  module Peers
    PROGRAMS = File.join(__dir__, "peers")
    SETUP = File.join(PROGRAMS, "setup")
    UNKNOWN_TO_IT = "needs a real Kafka: the embedded cluster does not know as new a version of the protocol"
    @peers = {}

    module_function

    def all = @peers.values

    # @return [Peer, nil]
    def [](name) = @peers[name]

    # A peer replaces an earlier one of the same name.
    def add(name, **options, &command) = @peers[name] = Peer.new(name, **options, &command)

    # A Ruby client, which peers/adapter.rb runs through its adapter.
    # @param adapter [String] a file, relative to the calling file
    # @param gem [String, nil] the gem that must be installed
    # @param options [Hash] see {Peer#initialize}
    def ruby_client(name, adapter:, gem: name, **options)
      file = File.expand_path(adapter, File.dirname(caller_locations(1, 1).first.absolute_path))
      missing = -> { "gem #{gem} is not installed" if gem && Gem::Specification.find_all_by_name(gem).empty? }
      add(name, why_not: missing, **options) { [RbConfig.ruby, File.join(PROGRAMS, "adapter.rb"), file, gem.to_s] }
    end

    # Runs a plug-in file: Ruby code that calls these methods, such as
    #   Bench::Peers.ruby_client "rdkafka", adapter: "rdkafka.rb"
    def plugin(file) = load(File.expand_path(file))

    # @return [String] the directory in which bench/peers/setup installs a client
    def directory(name)
      cache = ENV.fetch("XDG_CACHE_HOME", "")
      File.join(cache.empty? ? File.expand_path("~/.cache") : cache, "penstock/peers", name)
    end

    # @return [String, nil] why a client that bench/peers/setup installs cannot run here
    def not_set_up(name)
      "not installed; bin/bench --setup-peers does that" unless File.exist?(File.join(directory(name), "installed"))
    end

    add("C") { [Bench.compile(File.join(PROGRAMS, "baseline.c"))] }
    add("Penstock") { [RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(PROGRAMS, "penstock.rb")] }
    add("confluent-kafka", why_not: -> { not_set_up("confluent-kafka") }) do
      [File.join(directory("confluent-kafka"), "bin/python"), File.join(PROGRAMS, "confluent.py")]
    end
    add("Java", workloads: %w[async], librdkafka: false, not_embedded: UNKNOWN_TO_IT, why_not: -> { not_set_up("java") }) do
      [RbConfig.ruby, File.join(PROGRAMS, "java.rb")]
    end
    add("JavaScript", librdkafka: false, not_embedded: UNKNOWN_TO_IT, why_not: -> { not_set_up("javascript") }) do
      ["node", File.join(PROGRAMS, "javascript.mjs"), directory("javascript")]
    end
    ruby_client("waterdrop", adapter: "adapters/waterdrop.rb")
    ruby_client("rdkafka", adapter: "adapters/rdkafka.rb")
    ruby_client("karafka-rdkafka", adapter: "adapters/rdkafka.rb")
    ruby_client("ruby-kafka", adapter: "adapters/ruby_kafka.rb", workloads: %w[batch sync], librdkafka: false)
  end
end

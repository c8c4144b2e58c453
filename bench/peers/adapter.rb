# frozen_string_literal: true

require_relative "../support"
require_relative "protocol"

module Bench
  # Defines how to use a Ruby client. bench/adapters has examples. A subclass defines
  #
  # make_producer(settings) with Kafka's settings and `bootstrap.servers`, all Strings
  # async(message) sends a message and returns the argument of `wait`, which raises unless it was delivered
  #
  # and overrides whatever it does in another way than here. A client without `async` lacks that workload, and defines `batch` and
  # `sync`. A message is a Hash with `:topic`, `:payload`, and perhaps `:key` and `:headers`.
  class Adapter
    attr_reader :producer

    # @return [String, nil] the version of the librdkafka that it uses
    def self.librdkafka = nil

    def initialize(settings)
      @producer = make_producer(settings)
    end

    # @return [Array<String>] texts about what it does unlike others
    def differs = []

    # Sends each of these messages, and returns when all are delivered.
    def batch(messages)
      messages.map { |message| async(message) }.each { |handle| wait(handle) }
    end

    def sync(message) = wait(async(message))

    def wait(handle) = handle.wait

    def close = producer.close
  end

  # Runs a Ruby client through its adapter: a peer, see bench/README.md. Its first arguments are the adapter's file, and the name
  # of the client's gem or an empty string.
  class AdapterPeer
    WORKLOADS = %w[batch async sync].freeze

    def initialize(file, gem, arguments)
      @about = File.basename(file, ".rb")
      activate(gem) unless gem.empty?
      load file
      @adapter = Adapter.subclasses.first or abort "#{file} has no subclass of Bench::Adapter"
      @options = Protocol.options(arguments)
    end

    def run
      Protocol.no_such_workload unless WORKLOADS.include?(@options.workload) && @adapter.method_defined?(@options.workload)
      settings = { **@options.set, "bootstrap.servers" => @options.bootstrap }
      clients = Array.new(@options.workload == "batch" ? @options.producers : 1) { @adapter.new(settings) }
      messages = @options.build_messages
      clients.each { |client| client.sync(messages.first) }
      Protocol.serve(about, clients.first.differs) { round(clients, messages) }
      clients.each(&:close)
    end

    private

    # Several gems may have files of the same names.
    def activate(name)
      gem name
      @about = "#{name} #{Gem.loaded_specs.fetch(name).version}"
    end

    def about = [@about, *(@adapter.librdkafka && "librdkafka #{@adapter.librdkafka}"), "Ruby #{RUBY_VERSION}"].join(", ")

    def round(clients, messages)
      GC.start # so that garbage of earlier rounds does not count
      gate = Thread::Queue.new
      threads = clients.map { |client| Thread.new { timed(gate) { send(@options.workload, client, messages) } } }
      gate.close
      started, finished, results = threads.map(&:value).transpose
      { seconds: finished.max - started.min, delivered: clients.size * messages.size, failed: 0, **results.first }
    end

    def timed(gate)
      gate.pop
      started = Bench.now
      result = yield
      [started, Bench.now, result]
    end

    # The workloads. @return [Hash] more figures of the round

    def batch(client, messages)
      client.batch(messages)
      {}
    end

    def async(client, messages)
      handles = messages.map { |message| client.async(message) }
      handles.each { |handle| client.wait(handle) }
      {}
    end

    def sync(client, messages)
      latencies = messages.map do |message|
        started = Bench.now
        client.sync(message)
        (Bench.now - started) * 1e6
      end
      { latencies_us: latencies }
    end
  end
end

Bench::AdapterPeer.new(*ARGV.shift(2), ARGV).run

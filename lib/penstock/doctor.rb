# frozen_string_literal: true

require_relative "base"
require_relative "config/bootstrap_servers"
require_relative "doctor/report"
require_relative "doctor/shared_objects"
require_relative "doctor/machine"
require_relative "doctor/clock"
require_relative "doctor/library"
require_relative "doctor/conflicting_libraries"
require_relative "doctor/steps"
require_relative "doctor/cluster"

module Penstock
  # Finds problems in the environment of Penstock, like `penstock doctor`, but in the running process.
  #
  # @example
  #   puts Penstock::Doctor.examine(servers: ["kafka.example:9092"])
  module Doctor
    # Changes nothing on this machine or on the cluster. It connects as a producer that sends nothing.
    #
    # Blocks: without servers for some ms; with servers up to the timeout for each step. Any thread.
    #
    # @param servers [Array<String>] "HOST:PORT" of brokers; none: the cluster is not checked
    # @param settings [Hash{Symbol, String => Object}] librdkafka's, such as `security.protocol`. No secret is ever shown
    # @param timeout [Numeric] seconds for each step
    # @param directory [String] where to look for a Gemfile.lock if Bundler does not know one
    # @return [Report]
    # @raise [ArgumentError] when a server or the timeout is invalid
    # @overload examine(servers: [], settings: {}, timeout: 5, directory: Dir.pwd)
    def self.examine(*more, servers: [], settings: {}, timeout: 5, directory: Dir.pwd, **wrong)
      loaded = load_penstock
      Keywords.check("examine(servers: [\"kafka:9092\"], settings: {}, timeout: 5)", %i[servers settings timeout directory], more,
                     wrong)
      raise ArgumentError, "the timeout must be a number of seconds above 0" unless timeout.is_a?(Numeric) && timeout.positive?

      addresses = servers.map { |server| Address.parse(server) }
      clock = Clock.new
      objects = SharedObjects.of_process
      facts = Machine.new(objects).facts
      facts += loaded ? [loaded] : Library.new(objects).facts
      facts += ConflictingLibraries.new(objects, directory:).facts
      facts += Cluster.new(addresses, settings, timeout:).facts unless addresses.empty? || loaded
      Report.new(facts + clock.facts)
    end

    # @return [Fact, nil] why the extension cannot be loaded
    def self.load_penstock
      require "penstock"
      nil
    rescue LoadError => e
      Fact.problem("penstock", "the extension cannot be loaded: #{e.message.lines.first&.strip}",
                   "Install librdkafka 2.0.2 or newer, and Penstock again for this Ruby (gem pristine penstock).")
    end
    private_class_method :load_penstock
  end
end

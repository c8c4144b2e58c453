# frozen_string_literal: true

require_relative "native"
require_relative "admin/config"

module Penstock
  # Asks a cluster, and changes it: topics, settings, groups and their offsets, rights.
  #
  #     admin = Penstock::Admin.new("bootstrap.servers": "localhost:9092")
  #     admin.create_topic("orders", partitions: 6)
  #     admin.topics.each { |name, topic| puts "#{name}: #{topic.partitions.size} partitions" }
  #     admin.close
  #
  # `new` checks the configuration and does not connect. The client connects at its first use. A call sends its requests, and
  # waits for the answers in the calling thread or fiber. Each call has a `timeout:` in seconds, at most 3600 (default:
  # {AdminConfig#timeout}). A call that is interrupted, or whose time is over, may still take effect.
  #
  # A call for one thing returns a value or raises. A call for many returns {Results}: for each a value or an error. What a call
  # gets wrong is an ArgumentError at once, and nothing is sent. Where the linked librdkafka lacks a request, the call raises
  # {UnsupportedError}. If brokers reject the client (certificate, password, protocol), calls raise {BrokerRejectedError} within
  # `config.rejection_timeout`. If no broker can be reached, they raise {AdminUnreachableError} after
  # `config.unreachable_timeout`.
  #
  # Any number of threads and fibers may use a client at once; "Blocks: this thread" blocks only the fiber if it has a scheduler.
  # Only the main Ractor may. The values are frozen, and shareable between Ractors. A fork child may use a client of its parent
  # process: it connects anew at its first use there.
  class Admin
    extend RequiresSuper
    include Uncopyable
    include AsJson

    require_relative "admin/values"
    require_relative "admin/results"
    require_relative "admin/names"
    require_relative "admin/requests"
    require_relative "admin/specifications"
    require_relative "admin/topic_calls"
    require_relative "admin/cluster_calls"
    require_relative "admin/config_changes"
    require_relative "admin/config_merge"
    require_relative "admin/config_calls"
    require_relative "admin/acl"
    require_relative "admin/acl_rules"
    require_relative "admin/scram_changes"
    require_relative "admin/access_calls"
    require_relative "admin/topic_catalog"
    require_relative "admin/topic_file"
    require_relative "admin/topic_plan"
    require_relative "admin/plan_calls"
    require_relative "admin/partition_results"
    require_relative "admin/partition_lists"
    require_relative "admin/group_listings"
    require_relative "admin/readers"
    require_relative "admin/coordinator_requests"
    require_relative "admin/group_calls"
    require_relative "admin/group_offset_calls"
    require_relative "admin/offset_calls"
    require_relative "admin/topic_requests"
    require_relative "admin/cluster_requests"
    require_relative "admin/config_requests"
    require_relative "admin/access_requests"
    require_relative "admin/plan_requests"
    require_relative "admin/group_requests"
    require_relative "admin/group_offset_requests"
    require_relative "admin/offset_requests"
    require_relative "admin/internals"

    include TopicCalls
    include ClusterCalls
    include ConfigCalls
    include AccessCalls
    include PlanCalls
    include GroupCalls
    include GroupOffsetCalls
    include OffsetCalls

    # @return [AdminConfig] frozen
    def config = @internals.config

    # @return [Monitor]
    def monitor = @internals.monitor

    # librdkafka's settings are keywords. The block sets everything else, and may change {AdminConfig#kafka}, which contains the
    # keywords.
    #
    # @overload initialize(**kafka)
    #   @param kafka [Hash] librdkafka's settings; see {AdminConfig#kafka}
    #   @yieldparam config [AdminConfig]
    #   @raise [ConfigurationInvalidError] when a setting is invalid; the message names the setting
    #   @raise [NotShareableError] in a Ractor that is not the main one
    def initialize(*more, **kafka)
      Keywords.check("new(\"bootstrap.servers\": \"localhost:9092\")", [], more, {})
      config = AdminConfig.new
      config.__send__(:begin_with, kafka)
      yield config if block_given?
      config.__send__(:finish)
      @internals = Internals.new(self, config)
    end

    # @return [String] identifies the client in errors and logs. Never blocks.
    def id = @internals.id

    # @return [Symbol] :configured, :open, :closing or :closed. After a request about a group that got no answer, or that reached
    #   a former coordinator of the group, it is :configured again: the client connects anew. Never blocks.
    def state = @internals.state

    # @return [Boolean] whether {#close} was called. Never blocks.
    def closed? = @internals.closed?

    # Sets user name and password for later logins. Existing connections stay until the broker ends them
    # (`connections.max.reauth.ms`). Never blocks.
    #
    # @param username [String]
    # @param password [String, Secret]
    # @return [nil]
    # @raise [ConfigurationInvalidError] when the client does not log in with a password
    # @raise [AdminClosedError] when the client is closed
    def set_credentials(username, password) = @internals.set_credentials(username, password)

    # Ends the waits of calls in other threads, which raise {AdminClosedError} at once, and releases all resources. Later calls do
    # nothing. Only a question for all topics, or with librdkafka before 2.3.0 for the cluster or named topics, delays it: for a
    # second, or for as long as the question has waited already.
    #
    # Blocks: this thread, without the GVL; interruptible at once. After an interrupt, closing continues by itself.
    #
    # @param timeout [Numeric, nil] seconds, at least 0.5; nil: no limit; default: `config.close_timeout`
    # @return [Boolean] whether the client closed in time; false: closing goes on. Also false in a signal trap that interrupts
    #   this thread while it reads an answer
    # @raise [ArgumentError] when the timeout is invalid
    # @overload close(timeout: config.close_timeout / 1000.0)
    def close(*more, timeout: @internals.config.close_timeout / 1000.0, **wrong)
      Keywords.check("close(timeout: 10)", %i[timeout], more, wrong)
      @internals.close(Deadline.new(timeout))
    end

    # Never blocks, never shows settings.
    def inspect = "#<#{self.class} #{Text.printable(@internals.id)} #{@internals.state}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = AsJson.of(self, id: @internals.id, state: @internals.state.to_s)

    private

    # @see RequiresSuper
    def initialized? = !@internals.nil?
  end
end

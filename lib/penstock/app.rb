# frozen_string_literal: true

require "penstock"
require_relative "app/short_inspect"
require_relative "app/around"
require_relative "app/batches"
require_relative "app/origin"
require_relative "app/builders"
require_relative "app/commit_window"
require_relative "app/commits"
require_relative "app/dead_letter"
require_relative "app/decoders"
require_relative "app/deliveries"
require_relative "app/detours"
require_relative "app/durations"
require_relative "app/ending"
require_relative "app/error_policy"
require_relative "app/gates"
require_relative "app/group_settings"
require_relative "app/health"
require_relative "app/hooks"
require_relative "app/lane"
require_relative "app/common_lane"
require_relative "app/lanes"
require_relative "app/lags"
require_relative "app/reports"
require_relative "app/loop"
require_relative "app/maker"
require_relative "app/member"
require_relative "app/memory"
require_relative "app/metrics"
require_relative "app/offset_map"
require_relative "app/offset_spans"
require_relative "app/offset_tracker"
require_relative "app/pace"
require_relative "app/parking"
require_relative "app/settling"
require_relative "app/partition"
require_relative "app/probe"
require_relative "app/processor"
require_relative "app/processors"
require_relative "app/publisher"
require_relative "app/record_batch"
require_relative "app/route"
require_relative "app/route_options"
require_relative "app/run"
require_relative "app/runtime"
require_relative "app/server"
require_relative "app/settings"
require_relative "app/signals"
require_relative "app/starts"
require_relative "app/stop_report"
require_relative "app/subscription"
require_relative "app/thread_executor"
require_relative "app/throttle"
require_relative "app/timers"
require_relative "app/watch"
require_relative "app/work"

module Penstock # rubocop:disable Style/Documentation -- in lib/penstock.rb
  # An application: which processors get the messages of which topics. {Penstock.app} makes it. Frozen, so it is complete before
  # the first thread starts.
  class App
    # {Penstock.app} makes it.
    # @param settings [Settings] frozen
    def initialize(settings)
      @settings = settings
      freeze
    end

    # @return [Array<GroupSettings>] frozen
    def groups = @settings.groups

    # @return [Admin::TopicCatalog] the topics that its block declares; see {Builder#topics}
    def topics = @settings.topics

    # @return [Monitor] publishes the events
    def monitor = @settings.monitor

    # Starts it, and returns at once. For programs that do other things, too, such as a web server. Takes no signals.
    # @return [Server]
    # @raise [ConfigurationInvalidError] when a setting for librdkafka is invalid
    def start = Server.new(@settings)

    # Runs it until the process gets TERM, INT or QUIT, then stops it. A second one of these signals ends it at once. TSTP:
    # {Server#quiet}; TTIN: {Server#status} on stderr.
    #
    # If work was left when `shutdown_timeout` was over, or the application has stopped because of an error, it prints the
    # report to stderr and ends the process, with {StopReport#status}. Nothing else can end threads that hang. `at_exit` runs
    # after an error if nothing was left.
    #
    # Blocks: this thread, the main thread, until the end.
    #
    # @return [StopReport] complete
    # @raise [ConfigurationInvalidError] when a setting for librdkafka is invalid
    def run = Signals.new(start).run

    # @param ids [Array<String>]
    # @return [App] the same application with these groups only
    def with_groups(ids)
      settings = @settings.dup
      settings.groups = groups.select { |group| ids.include?(group.id) }.freeze
      App.new(settings.freeze)
    end

    private

    # @return [Hash{Symbol => Object}] librdkafka's settings for all clients
    def kafka = @settings.kafka

    # For `penstock routes`.
    def all_settings = @settings

    # For {Testing::Driver}: its groups have one member each, and several drivers of one application hear only their own events.
    def driven_settings
      settings = @settings.dup
      settings.groups = groups.map { |group| GroupSettings.new(group.id, group.routes, 1, group.kafka) }.freeze
      settings.monitor = Monitor.new(above: monitor)
      settings.freeze
    end

    public

    @built = nil

    class << self
      private

      # @return [Array<App>] those that the block has made
      def built_by
        @built = []
        yield
        @built
      ensure
        @built = nil
      end

      def built(app) = app.tap { @built&.push(app) }
    end

    # @return [String]
    def inspect = "#<#{self.class} #{groups.map(&:id).join(", ")}>"
  end

  # Makes an application.
  #
  #     APP = Penstock.app do |app|
  #       app.kafka = { "bootstrap.servers": "localhost:9092" }
  #       app.group "billing" do |group|
  #         group.topic "orders", to: Orders, order: :key, value: :json
  #       end
  #     end
  #     APP.run
  #
  # Never blocks, and connects nowhere.
  #
  # @yieldparam app [App::Builder]
  # @return [App] frozen
  # @raise [ConfigurationInvalidError, ArgumentError] when something is invalid; the message names it
  def self.app
    raise ArgumentError, "Penstock.app requires a block" unless block_given?

    builder = App::Builder.new
    yield builder
    App.__send__(:built, builder.__send__(:finish))
  end
end

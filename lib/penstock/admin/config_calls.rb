# frozen_string_literal: true

module Penstock
  class Admin
    # The methods of {Admin} for settings of topics, brokers and groups.
    module ConfigCalls
      # Describes the settings of topics, brokers and groups: all of them, with the defaults.
      #
      #     settings = admin.configs(topics: ["events"], brokers: [1])
      #     settings[:topic, "events"]["retention.ms"].value
      #     settings[:broker, 1].values.reject(&:default?)
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request for all topics and groups, then
      # one for the brokers that there are, and then one to each broker.
      #
      # Requires the right to describe the configs of the topics and groups; for brokers, of the cluster.
      #
      # @param topics [Array<String>] names
      # @param brokers [Array<Integer>] ids. A broker that does not exist, or is down, is an error with the code
      #   :broker_not_available
      # @param groups [Array<String>] names. Requires librdkafka 2.10.0
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] for each `[:topic, name]`, `[:broker, id]` and `[:group, name]` a Hash from the names of the settings to
      #   {ConfigEntry}s
      # @raise [AdminError] when the request for topics and groups failed as a whole
      # @raise [UnsupportedError] when librdkafka is too old for groups
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload configs(topics: [], brokers: [], groups: [], timeout: nil)
      def configs(*more, topics: [], brokers: [], groups: [], timeout: nil, **wrong)
        @internals.configs(*more, topics:, brokers:, groups:, timeout:, **wrong)
      end

      # Describes the settings of a topic.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # @param name [String]
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Hash{String => ConfigEntry}] frozen
      # @raise [AdminError] for example with the code :unknown_topic_or_part
      # @overload topic_config(name, timeout: nil)
      def topic_config(name, *more, timeout: nil, **wrong)
        @internals.topic_config(name, *more, timeout:, **wrong)
      end

      # Describes the settings of a broker.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # @param id [Integer]
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Hash{String => ConfigEntry}] frozen
      # @raise [AdminError] for example with the code :broker_not_available
      # @overload broker_config(id, timeout: nil)
      def broker_config(id, *more, timeout: nil, **wrong)
        @internals.broker_config(id, *more, timeout:, **wrong)
      end

      # Describes the settings of a group. Requires librdkafka 2.10.0.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # @param name [String]
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Hash{String => ConfigEntry}] frozen
      # @raise [AdminError] for example with the code :group_authorization_failed
      # @raise [UnsupportedError] when librdkafka is too old
      # @overload group_config(name, timeout: nil)
      def group_config(name, *more, timeout: nil, **wrong)
        @internals.group_config(name, *more, timeout:, **wrong)
      end

      # Changes settings of topics, brokers and groups. All others stay as they are.
      #
      #     admin.alter_configs({ topics: { "events" => { "retention.ms" => 86_400_000, "segment.bytes" => nil,
      #                                                   "cleanup.policy" => { append: "compact" } } } })
      #
      # The new value of a setting is one of these:
      #
      # - a String, Symbol, number, true, false, or an Array of them for a list; or a {Secret}
      # - nil: the setting is unset, so the default counts
      # - `{ append: value }` or `{ subtract: value }`: the value, or an Array of them, is added to a list, or removed
      #
      # The changes of a topic, broker or group are made together, or not at all.
      #
      # Before librdkafka 2.2.0, only topics can be changed. The client reads the topic's own settings, merges the changes into
      # them, and replaces them. A change that another client makes in between is lost. If the brokers hide the value of a setting
      # of the topic, the topic is not changed, and its result is an {UnsupportedError}.
      #
      # If a change has a secret value (a {Secret}, or a setting for passwords, keys and the like), the error of its topic, broker
      # or group does not contain the brokers' text, which may quote the value.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request for all topics and groups, then
      # one for the brokers that there are, and then one to each broker.
      #
      # Requires the right to alter the configs of the topics and groups; for brokers, of the cluster. Before librdkafka 2.2.0, to
      # describe them too.
      #
      # @param changes [Hash{Symbol => Hash}] `topics:`, `groups:`: name to settings; `brokers:`: id to settings. Groups require
      #   librdkafka 2.10.0
      # @param validate_only [Boolean] whether the cluster only says if it could
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] true for each `[:topic, name]`, `[:broker, id]` and `[:group, name]`
      # @raise [AdminError] when the request for topics and groups failed as a whole
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still make the changes
      # @raise [UnsupportedError] when librdkafka is too old for brokers or groups; nothing is sent then
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload alter_configs(changes, validate_only: false, timeout: nil)
      def alter_configs(*given, validate_only: false, timeout: nil, **braceless)
        changes = given.empty? ? braceless.slice(:topics, :brokers, :groups) : {}
        more, wrong = Keywords.braced(braceless.except(*changes.keys))
        more << changes unless changes.empty?
        @internals.alter_configs(*given, *more, validate_only:, timeout:, **wrong)
      end
    end
  end
end

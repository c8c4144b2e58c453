# frozen_string_literal: true

module Penstock
  class Admin
    # The methods of {Admin} for declared topics.
    module PlanCalls
      # Compares declared topics with the cluster, and changes nothing.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is two requests.
      #
      # Requires the rights to describe the topics and their settings.
      #
      # @param catalog [TopicCatalog]
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [TopicPlan]
      # @raise [AdminError] when a topic or its settings cannot be read
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload plan(catalog, timeout: nil)
      def plan(catalog, *more, timeout: nil, **wrong)
        @internals.plan(catalog, *more, timeout:, **wrong)
      end

      # Makes the cluster's topics as they are declared: creates topics, adds partitions, sets and unsets settings. If nothing
      # differs, it changes nothing. Several programs may apply the same catalog at once. Nothing is deleted.
      #
      # Adding partitions sends keys to other partitions, see {#create_partitions}.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. What was changed before an interrupt stays.
      #
      # Requires, besides those of {#plan}, the rights to create and alter the topics and to alter their settings.
      #
      # @param catalog [TopicCatalog]
      # @param skip_impossible [Boolean] whether to do the rest if something cannot be done
      # @param timeout [Numeric, nil] seconds for all of it, at most 3600; nil: `config.timeout`
      # @return [Results] for each topic with a difference, what was changed: an Array of {TopicPlan::Change}
      # @raise [AdminError] with the code :impossible when something cannot be done; nothing was changed then. Or when a topic
      #   cannot be read
      # @raise [AdminTimeoutError] when the time is over; a part may be done
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload apply(catalog, skip_impossible: false, timeout: nil)
      def apply(catalog, *more, skip_impossible: false, timeout: nil, **wrong)
        @internals.apply(catalog, *more, skip_impossible:, timeout:, **wrong)
      end
    end
  end
end

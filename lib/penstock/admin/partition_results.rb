# frozen_string_literal: true

module Penstock
  class Admin
    # The answers of a call that concerns several partitions: for each a value, or the {Error} why there is none. Like {Results};
    # the key is a topic and a partition, and Hashes are by topic and partition. Frozen, and shareable between Ractors.
    #
    #     results = admin.delete_records({ "orders" => { 0 => 500, 1 => :end } })
    #     results["orders", 0]  # the value; raises the error if there is one
    #     results.ok            # { "orders" => { 0 => 500, 1 => 732 } }
    #     results.errors        # {}, or { "orders" => { 1 => #<Penstock::AdminError ...> } }
    #
    # Never blocks. Any thread, fiber and Ractor.
    class PartitionResults < Results
      # {Admin} makes them.
      # @param answers [Hash{Array(String, Integer) => Object, Error}]
      def initialize(answers)
        super(answers.sort.to_h)
      end

      # @overload [](topic, partition)
      #   @param topic [String]
      #   @param partition [Integer]
      #   @return [Object] the value for the partition
      #   @raise [Error] when there is an error for it
      #   @raise [KeyError] when the call did not concern it
      def [](topic, partition = nil) = super(topic.is_a?(Array) ? topic : [topic, partition])
      alias fetch []

      # @return [Hash{String => Hash{Integer => Object}}] the values of what succeeded
      def ok = by_topic(super)

      # @return [Hash{String => Hash{Integer => Error}}] what failed
      def errors = by_topic(super)

      # @return [self] when nothing failed
      # @raise [Error] the first error
      def raise!
        error = errors.each_value.first&.each_value&.first
        error ? raise_copy(error) : self
      end

      # @return [Array] the values, sorted by topic and partition
      # @raise [Error] when there is an error
      def values = raise!.ok.values.flat_map(&:values)

      # @return [Boolean] whether the call concerned the partition
      # @overload key?(topic, partition)
      def key?(topic, partition = nil) = super(topic.is_a?(Array) ? topic : [topic, partition])

      # @return [Hash{String => Hash{Integer => Object, Error}}] values and errors
      def to_h = by_topic(@answers)

      # @return [String]
      def inspect = "#<#{self.class} #{to_h.inspect}>"

      private

      def by_topic(answers)
        answers.each_with_object({}) { |((topic, partition), answer), found| (found[topic] ||= {})[partition] = answer }
      end
    end
  end
end

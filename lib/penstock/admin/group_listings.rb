# frozen_string_literal: true

module Penstock
  class Admin
    # The groups of a cluster, by their ids, and the errors of brokers that could not be asked. Their groups are missing then.
    # Frozen, and shareable between Ractors.
    #
    #     groups = admin.groups
    #     groups.each { |group| puts "#{group.id} #{group.state}" }
    #     groups.ok?      # false if groups may be missing
    #     groups.raise!   # raises the first error, or returns the groups
    #
    # Never blocks. Any thread, fiber and Ractor.
    class GroupListings
      include Enumerable
      include AsJson

      # @return [Array<AdminError>] of brokers
      attr_reader :errors

      # {Admin} makes them.
      # @param groups [Array<GroupListing>]
      # @param errors [Array<AdminError>]
      def initialize(groups, errors)
        @groups = Ractor.make_shareable(groups.sort_by(&:id).to_h { |group| [group.id, group] })
        @errors = Ractor.make_shareable(errors)
        freeze
      end

      # @param id [String]
      # @return [GroupListing, nil]
      def [](id) = @groups[id]

      # @yieldparam group [GroupListing]
      # @return [self, Enumerator]
      def each(&block)
        return to_enum(:each) { size } unless block

        @groups.each_value(&block)
        self
      end

      # @return [Array<String>]
      def ids = @groups.keys

      # @return [Boolean] whether every broker has answered
      def ok? = errors.empty?

      # @return [self] when every broker has answered
      # @raise [AdminError] the first error
      def raise! = ok? ? self : raise(errors.first)

      # @return [Integer]
      def size = @groups.size

      # @return [Boolean]
      def empty? = @groups.empty?

      # @return [Boolean]
      def ==(other) = other.is_a?(GroupListings) && [to_a, errors] == [other.to_a, other.errors]

      # @return [Hash] for pattern matching
      def deconstruct_keys(_keys) = { groups: to_a, errors: }

      # @return [String] without the groups: there may be thousands
      def inspect = "#<#{self.class} size=#{size}#{" errors: #{errors.inspect}" unless ok?}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(groups: to_a, errors:)
    end
  end
end

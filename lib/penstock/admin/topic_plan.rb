# frozen_string_literal: true

module Penstock
  class Admin
    # What would make a cluster's topics as they are declared in a {TopicCatalog}. {Admin#plan} makes it. Frozen, and shareable
    # between Ractors.
    #
    #     plan = admin.plan(catalog)
    #     plan.empty?     # true: the cluster is as declared
    #     plan.impossible # what Kafka or librdkafka cannot do
    #     puts plan       # a line for each
    class TopicPlan
      include AsJson

      # A difference between a declaration and the cluster.
      #
      # - `topic` [String]
      # - `kind`: `:create`, `:add_partitions`, `:set`, `:unset`; of what cannot be done: `:fewer_partitions`,
      #   `:replication_factor`
      # - `setting` [String, nil]: of `:set` and `:unset`
      # - `from`, `to` [Integer, String, nil]: now, and as declared. Of `:create` only `to`, in words
      Change = Value.of(:topic, :kind, :setting, :from, :to) do
        # @return [Boolean] whether it can be done
        def possible? = !%i[fewer_partitions replication_factor].include?(kind)

        # @return [String] a line for people
        def to_s
          case kind
          when :create then "create #{topic}#{": #{to}" if to}"
          when :add_partitions then "#{topic}: from #{from} to #{to} partitions"
          when :set then "#{topic}: set #{setting} to #{to}#{" (is #{from})" if from}"
          when :unset then "#{topic}: unset #{setting} (is #{from})"
          when :fewer_partitions then "#{topic}: has #{Text.count(from,
                                                                  "partition")}, declared: #{to}; Kafka cannot remove partitions"
          else "#{topic}: has the replication factor #{from}, declared: #{to}; librdkafka cannot change it"
          end
        end
      end

      # @return [Array<Change>] what {Admin#apply} does
      attr_reader :changes
      # @return [Array<Change>] what it cannot do
      attr_reader :impossible

      # {Admin#plan} makes them.
      # @param differences [Array<Change>]
      def initialize(differences)
        @changes, @impossible = differences.partition(&:possible?)
        Ractor.make_shareable(self)
      end

      # @return [Boolean] whether the cluster is as declared
      def empty? = changes.empty? && impossible.empty?

      # @return [String] a line for each difference
      def to_s
        return "nothing to change" if empty?

        [*changes.map(&:to_s), *impossible.map { |change| "IMPOSSIBLE #{change}" }].join("\n")
      end

      # @return [String]
      def inspect = "#<#{self.class} changes=#{changes.size} impossible=#{impossible.size}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(changes: changes.map(&:to_h), impossible: impossible.map(&:to_h))

      # Compares a declaration with a topic.
      # @api private
      class Comparison
        # @param declaration [TopicCatalog::Declaration]
        # @param topic [Topic, nil] nil: it does not exist
        # @param settings [Hash{String => ConfigEntry}]
        def initialize(declaration, topic, settings)
          @declaration = declaration
          @topic = topic
          @settings = settings
        end

        # @return [Array<Change>]
        def call = @topic ? [*partitions, *replication, *settings] : [change(:create, to: in_words)]

        private

        def change(kind, **more) = Change.new(topic: @declaration.name, kind:, **more)

        # @return [String, nil]
        def in_words
          numbers = { "partition" => @declaration.partitions, "replica" => @declaration.replication_factor }.compact
          words = numbers.map { |unit, number| Text.count(number, unit) }
          settings = @declaration.config.compact.map { |setting, value| "#{setting} #{value}" }
          [*words, *settings].join(", ").then { |text| text.empty? ? nil : text }
        end

        def partitions
          from = @topic.partitions.size
          to = @declaration.partitions
          return if to.nil? || from == to

          [change(from < to ? :add_partitions : :fewer_partitions, from:, to:)]
        end

        def replication
          from = @topic.replication_factor
          to = @declaration.replication_factor
          [change(:replication_factor, from:, to:)] unless to.nil? || from == to
        end

        def settings = [*declared, *others]

        # Compares values, and not who has set them: a topic whose brokers' default is the declared value has no difference.
        def declared
          @declaration.config.filter_map do |setting, to|
            entry = @settings[setting]
            own = entry&.source == :topic
            next (change(:unset, setting:, from: entry.value) if own) if to.nil?

            change(:set, setting:, from: entry&.value, to:) unless entry && same?(entry.value, to)
          end
        end

        # Brokers return values as they write them: "1.0" for "1", "compact,delete" for "compact, delete".
        NUMBER = /\A[+-]?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?\z/
        private_constant :NUMBER

        def same?(one, other) = one == other || (!one.nil? && parts(one) == parts(other))

        def parts(text)
          text.split(",").map do |part|
            word = part.strip
            next Rational(word) if word.match?(NUMBER)

            %w[true false].include?(word.downcase) ? word.downcase : word
          end
        end

        def others
          return unless @declaration.exact

          own = @settings.each_value.select { |entry| entry.source == :topic && !@declaration.config.key?(entry.name) }
          own.map { |entry| change(:unset, setting: entry.name, from: entry.value) }
        end
      end
      private_constant :Comparison
    end
  end
end

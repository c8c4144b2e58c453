# frozen_string_literal: true

module Penstock
  class Admin
    # The topics that a program declares: which should exist, and how. {Admin#plan} compares it with a cluster, and {Admin#apply}
    # changes the cluster. Topics that are not declared are left alone.
    #
    #     catalog = Penstock::Admin::TopicCatalog.new do |declare|
    #       declare.topic "orders", partitions: 6, replication_factor: 3, config: { "retention.ms" => 86_400_000 }
    #       declare.topic "payments", partitions: 12
    #     end
    #     puts admin.plan(catalog)
    #     admin.apply(catalog)
    #
    # Frozen, and shareable between Ractors. Never blocks. Any thread, fiber and Ractor.
    class TopicCatalog
      include Enumerable
      include AsJson

      # A declared topic.
      #
      # - `name` [String]
      # - `partitions`, `replication_factor` [Integer, nil]: nil: the brokers choose when the topic is created, and any number is
      #   right afterwards
      # - `config` [Hash{String => String, nil}]: settings; nil: the brokers' default
      # - `exact` [Boolean]: whether settings that are not in `config` get the brokers' default, too
      Declaration = Value.of(:name, :partitions, :replication_factor, :config, :exact)

      KEYS = %i[partitions replication_factor config exact].freeze
      private_constant :KEYS

      # Reads declarations from a YAML file: a Hash of names to what {#topic} accepts.
      #
      #     orders:
      #       partitions: 12
      #       config:
      #         retention.ms: 604800000
      #     refunds: # with the brokers' defaults
      #
      # Blocks: this thread, while it reads the file.
      #
      # @param path [String, Pathname]
      # @return [TopicCatalog]
      # @raise [ArgumentError] when the file is no such YAML, declares a topic or a setting twice, or declares none
      # @raise [SystemCallError] when it cannot be read
      def self.load_file(path) = new { |declare| TopicFile.new(path).each { |name, spec| declare.topic(name, **spec) } }

      # @yieldparam declare [TopicCatalog] not frozen yet
      # @raise [ArgumentError] when a declaration is invalid
      def initialize
        @declarations = {}
        yield self if block_given?
        Ractor.make_shareable(self)
      end

      # Declares a topic, in the block of `new`.
      #
      # @param name [String]
      # @param partitions [Integer, nil] nil: the brokers choose, and any number is right afterwards
      # @param replication_factor [Integer, nil] the same
      # @param config [Hash{String, Symbol => Object, nil}] settings; nil: the brokers' default
      # @param exact [Boolean] whether settings that are not in `config` get the brokers' default, too
      # @return [Declaration]
      # @raise [ArgumentError] when something is invalid, or the topic is declared already
      # @raise [FrozenError] outside of the block of `new`
      # @overload topic(name, partitions: nil, replication_factor: nil, config: {}, exact: false)
      def topic(name, *more, partitions: nil, replication_factor: nil, config: {}, exact: false, **wrong)
        Keywords.check("topic(\"events\", partitions: 6)", KEYS, more, wrong)
        config = {} if config.nil?
        raise ArgumentError, "the config of #{name.inspect} must be a Hash, not #{config.class}" unless config.is_a?(Hash)
        raise ArgumentError, "topic #{name.inspect}: exact must be true or false" unless [true, false].include?(exact)

        (name,), = Specifications.topics({ name => { partitions:, replication_factor:, config: config.compact } })
        raise ArgumentError, "topic #{name.inspect} is declared twice" if @declarations.key?(name)

        texts = config.to_h do |setting, value|
          [Specifications.setting_name(setting), value.nil? ? nil : Specifications.setting_value("#{name}: #{setting}", value)]
        end
        @declarations[name] = Declaration.new(name:, partitions:, replication_factor:, config: texts, exact:)
      end

      # @yieldparam declaration [Declaration]
      # @return [self, Enumerator]
      def each(&block)
        return to_enum(:each) { @declarations.size } unless block

        @declarations.each_value(&block)
        self
      end

      # @param name [String]
      # @return [Declaration, nil]
      def [](name) = @declarations[name]

      # @return [Array<String>]
      def names = @declarations.keys

      # @return [String]
      def inspect = "#<#{self.class} #{names.join(", ")}>"

      # (see AsJson#as_json)
      def as_json(_options = nil) = json(topics: map(&:to_h))
    end
  end
end

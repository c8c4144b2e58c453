# frozen_string_literal: true

module Penstock
  class Admin
    # A YAML file that declares topics. YAML itself takes the last of several values of a key, so a topic or setting that is
    # there twice would be lost without a word.
    # @api private
    class TopicFile
      MERGE = "<<"
      private_constant :MERGE

      # @param path [String, Pathname]
      def initialize(path)
        require "psych"
        @path = File.path(path)
      end

      # @yieldparam name [String]
      # @yieldparam spec [Hash{Symbol => Object}]
      # @raise [ArgumentError]
      def each(&block)
        topics = read
        invalid("declares no topics: write their names, each with a colon") if topics.nil? || topics == {}
        unless topics.is_a?(Hash)
          invalid("must have names of topics, each with a colon, not a value of the class #{topics.class}")
        end
        topics.each { |name, spec| declare(name, spec, &block) }
      end

      private

      def read
        text = File.read(@path, encoding: "UTF-8")
        check_keys(Psych.parse(text, filename: @path))
        Psych.safe_load(text, aliases: true, filename: @path)
      rescue Psych::Exception => e
        invalid("is not valid: #{e.message.delete_prefix("(#{@path}): ")}")
      end

      def check_keys(node)
        return unless node

        node.grep(Psych::Nodes::Mapping).each do |mapping|
          keys = mapping.children.each_slice(2).map(&:first).grep(Psych::Nodes::Scalar)
          twice = keys.group_by(&:value).find { |value, all| value != MERGE && all.size > 1 }&.last
          invalid("has #{twice.last.value.inspect} twice, also in line #{twice.last.start_line + 1}") if twice
        end
      end

      def declare(name, spec)
        invalid("the name of a topic must be a String, not #{name.inspect}: put it in quotes") unless name.is_a?(String)
        spec = {} if spec.nil?
        invalid("topic #{name.inspect} must have keys such as partitions, not #{spec.inspect}") unless spec.is_a?(Hash)
        yield name, spec.transform_keys { |key| key.is_a?(String) ? key.to_sym : key }
      rescue ArgumentError => e
        raise if e.message.start_with?("#{@path}: ")

        invalid(e.message)
      end

      def invalid(text) = raise(ArgumentError, "#{@path}: #{text}")
    end
    private_constant :TopicFile
  end
end

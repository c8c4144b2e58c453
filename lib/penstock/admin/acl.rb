# frozen_string_literal: true

module Penstock
  class Admin
    # A right that a principal has, or is denied.
    #
    #     Penstock::Admin::Acl.new(topic: "orders", principal: "User:billing", operation: :read)
    #
    # - `resource` [Symbol]: `:topic`, `:group`, `:cluster`, `:transactional_id`; `:unknown` of what librdkafka does not know
    # - `name` [String]: of the resource; "*" for all of them
    # - `pattern` [Symbol]: `:literal`: the resource of this name; `:prefixed`: all resources whose names begin so
    # - `principal` [String]: such as "User:billing"; "User:*" for everybody
    # - `host` [String]: the address from which the client connects; "*" for all
    # - `operation` [Symbol]: `:all`, `:read`, `:write`, `:create`, `:delete`, `:alter`, `:describe`, `:cluster_action`,
    #   `:describe_configs`, `:alter_configs`, `:idempotent_write`; `:unknown`
    # - `permission` [Symbol]: `:allow` or `:deny`, which comes before `:allow`; `:unknown`
    Acl = Value.of(:resource, :name, :pattern, :principal, :host, :operation, :permission) do
      class << self
        alias_method :received, :new
        private :received

        # The resource is one of `topic`, `group`, `transactional_id` and `cluster`, or `resource` with `name`.
        #
        # @param given [Hash]
        # @raise [ArgumentError] when something is invalid
        # @overload new(topic: nil, group: nil, transactional_id: nil, cluster: nil, resource: nil, name: nil, pattern: :literal,
        #   principal:, host: "*", operation:, permission: :allow)
        def new(*more, **given)
          Keywords.check("new(topic: \"events\", principal: \"User:billing\", operation: :read)", AclRules::KEYWORDS, more,
                         given.except(*AclRules::KEYWORDS))
          received(**AclRules.acl(given))
        end
      end

      # @return [String] in words
      def to_s
        where = resource == :cluster ? "the cluster" : "#{resource} #{name.inspect}#{" and longer names" if pattern == :prefixed}"
        "#{permission} #{principal} #{operation} on #{where}#{" from #{host}" unless host == "*"}"
      end

      # @return [String]
      def inspect = "#<#{self.class} #{Text.printable(to_s)}>"
    end
  end
end

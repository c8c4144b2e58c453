# frozen_string_literal: true

module Penstock
  class Admin
    # Further native clients of an {Admin}, with a consumer's settings. Each is made at its first use.
    #
    # A client for the offsets of groups has a group of its own, which it never joins. Without one, librdkafka dereferences a null
    # pointer if a broker answers that it is not, or no longer, the coordinator of a group (its issue 5040, open in 2.14.2). The
    # client looks for the coordinator of its own group, so its group is the first that the program asks for: that needs no more
    # rights than the program's request.
    #
    # A client for offsets of read_uncommitted is needed before librdkafka 2.3.0, where isolation is a setting.
    #
    # Without a Mutex, so that a signal trap may close the admin client. Each step that two threads may do at once can be done
    # twice.
    # @api private
    class Readers
      # @param kafka [Hash{Symbol => Object}] the settings of the admin client
      # @yieldparam kafka [Hash{Symbol => Object}] the settings of the client to make
      # @yieldreturn [Native::AdminClient]
      def initialize(kafka, &make)
        @kafka = kafka
        @make = make
        @clients = {}
        @closed = false
        @credentials = nil
      end

      # @param first [String] a group that the program asks for
      # @return [Native::AdminClient]
      def groups(first) = @clients[:groups] || keep(:groups, { "group.id": first, **@kafka })

      # @return [Native::AdminClient]
      def uncommitted
        @clients[:uncommitted] || keep(:uncommitted, { **@kafka.except(:"group.id"), "isolation.level": "read_uncommitted" })
      end

      # A client that may not see its own group would ask for the coordinator again and again. Calls that wait for it raise
      # {AdminClosedError}, although the admin client is open.
      # @return [void]
      def forget_groups
        @clients.delete(:groups)&.close(0)
      end

      # @return [void]
      def set_credentials(username, password)
        @credentials = [username.dup.freeze, password.is_a?(Secret) ? password : Secret.new(password)].freeze
        to_a.each { |client| log_in(client) }
      end

      # Does not wait. Later clients are closed from the beginning.
      # @return [void]
      def begin_closing
        @closed = true
        to_a.each { |client| client.close(0) }
      end

      # @return [Boolean] whether {#begin_closing} was called
      def closed? = @closed

      # @return [Array<Native::AdminClient>]
      def to_a = @clients.values

      # @return [String] without settings
      def inspect = "#<#{self.class}>"

      private

      # Another thread may set credentials, or close the clients, before this one is among them.
      def keep(kind, kafka)
        made = @make.call(kafka)
        kept = @clients[kind] ||= made
        log_in(kept)
        kept.close(0) if @closed
        made.close(0) unless kept.equal?(made)
        kept
      end

      def log_in(client)
        client.set_credentials(*@credentials) if @credentials && %i[configured open].include?(client.state)
      rescue AdminClosedError
        nil # closed since
      end
    end
    private_constant :Readers
  end
end

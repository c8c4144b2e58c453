# frozen_string_literal: true

module Penstock
  module Listeners
    class Statsd < MetricsListener
      # Passes metrics to a client of the user, such as dogstatsd-ruby's.
      # @api private
      class ExternalClient
        def initialize(client, tags, distribution)
          @client = client
          @tags = tags
          @timing = distribution ? :distribution : :histogram
          missing = [:count, :gauge, @timing].reject { |name| client.respond_to?(name) }
          return if missing.empty?

          raise ArgumentError, "a client must have count, gauge and #{@timing}; #{client.class} lacks #{missing.join(", ")}"
        end

        def count(name, value, tags) = @client.count(name, value, tags: list(tags))

        def gauge(name, value, tags) = @client.gauge(name, value, tags: list(tags))

        # Clients take a sample rate for what they are to drop themselves, so the share is not for them.
        def timing(name, value, tags, _share) = @client.public_send(@timing, name, value, tags: list(tags))

        # It counts itself.
        def sent = 0
        def dropped = 0

        # The client is the user's.
        def flush; end
        def close; end

        private

        def list(tags) = @tags.merge(tags).map { |tag, content| "#{tag}:#{content}" }
      end
    end
  end
end

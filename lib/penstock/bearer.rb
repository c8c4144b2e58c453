# frozen_string_literal: true

module Penstock
  # Takes the tokens of a client that logs in with OAUTHBEARER: `event[:bearer]` for a token provider, see {OAuth}.
  # Any thread may use it, also after `on_oauthbearer_token_refresh` has returned.
  # @!method await
  #   @api private
  class Bearer
    # @param token [String]
    # @param lifetime_ms [Integer] when the token expires, in ms since the epoch
    # @param principal_name [String] whose it is
    # @param extensions [Hash{String, Symbol => String}] for the broker, besides the token
    # @return [0]
    # @raise [ArgumentError] librdkafka does not take it: it has expired, for instance
    # @raise [ProducerClosedError, ConsumerClosedError]
    def oauthbearer_set_token(token:, lifetime_ms:, principal_name:, extensions: {})
      pairs = (extensions || {}).flat_map { |name, value| [name.to_s, value.to_s] }
      refusal = set_token(token, lifetime_ms, principal_name, pairs)
      raise ArgumentError, "the token was not taken: #{refusal}" if refusal

      @answered = true
      0
    end

    # There is no token to be had now. Becomes an error of the client, and it asks again, in 10 seconds.
    # @param reason [String] without secrets
    # @return [0]
    def oauthbearer_set_token_failure(reason)
      set_failure(reason)
      @answered = true
      0
    end

    # @return [Boolean] whether a token or a failure was given since this was asked last
    # @api private
    def answered?
      answered = @answered
      @answered = false
      answered
    end

    # @return [String]
    def inspect = "#<#{self.class}>"
  end
end

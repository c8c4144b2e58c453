# frozen_string_literal: true

module Penstock
  module Native
    # Takes the tokens of a client that logs in with OAUTHBEARER: `event[:bearer]` for a token provider, see {OAuth}.
    # Any thread may use it, also after `on_oauthbearer_token_refresh` has returned.
    # @!method await
    class Bearer
      include AsJson

      # How librdkafka's reasons begin, which go on with the token or an extension, and what is said instead.
      REASONS = {
        /\AMust supply an unexpired token/ => "it has expired",
        /\ACannot explicitly set the reserved/ => "\"auth\" cannot be the name of an extension",
        %r{\ASASL/OAUTHBEARER extension keys} => "the name of an extension must be letters, A to Z and a to z",
        %r{\ASASL/OAUTHBEARER extension values} => "the token and the values of extensions must be visible ASCII characters"
      }.freeze
      # What tokens mostly are: a JSON Web Token.
      TOKEN = /\beyJ[\w-]{8,}(\.[\w-]*)*/
      private_constant :REASONS, :TOKEN

      # @param token [String]
      # @param lifetime_ms [Integer] when the token expires, in ms since the epoch
      # @param principal_name [String] whose it is
      # @param extensions [Hash{String, Symbol => String}] for the broker, besides the token
      # @return [0]
      # @raise [ArgumentError] librdkafka does not accept it: it has expired, for instance. The message quotes nothing of it.
      # @raise [ProducerClosedError, ConsumerClosedError]
      def oauthbearer_set_token(token:, lifetime_ms:, principal_name:, extensions: {})
        pairs = (extensions || {}).flat_map { |name, value| [name.to_s, value.to_s] }
        unless [token, principal_name, *pairs].all? { |text| text.is_a?(String) && Settings.text?(text) }
          raise ArgumentError, "the token was not accepted: token, principal_name and extensions must be Strings of UTF-8 " \
                               "without a zero byte"
        end
        reason = set_token(token, lifetime_ms, principal_name, pairs)
        raise ArgumentError, "the token was not accepted: #{sentence(reason)}" if reason

        @answered = true
        0
      end

      # There is no token to be had now. Becomes an error of the client, and it asks again, in 10 seconds.
      # @param reason [String] without secrets; what looks like a JSON Web Token, and the tokens that were given before, are left
      #   out of it
      # @return [0]
      def oauthbearer_set_token_failure(reason)
        set_failure(safe(reason))
        @answered = true
        0
      end

      # A token is wanted: what was given before does not count.
      def expect_answer
        @answered = false
      end

      # @return [Boolean] whether a token or a failure was given since {#expect_answer}
      def answered? = @answered

      # @return [String]
      def inspect = "#<#{self.class}>"

      private

      def sentence(reason)
        REASONS.find { |beginning, _| beginning.match?(reason) }&.last || "librdkafka gives a reason that may quote it"
      end

      # librdkafka takes no text that is empty or has a zero byte, and would go on waiting for an answer.
      def safe(reason)
        text = reason.to_s
        text = text.dup.force_encoding("UTF-8") if text.encoding == Encoding::BINARY
        text = text.encode("UTF-8", invalid: :replace, undef: :replace)
        text = text.scrub("?").delete("\0").gsub(TOKEN, Secret::HIDDEN)
        text.empty? ? "no reason was given" : text
      rescue StandardError
        "the reason is no text"
      end
    end
  end
end

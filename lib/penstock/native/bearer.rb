# frozen_string_literal: true

module Penstock
  module Native
    # Receives the tokens of a client that logs in with OAUTHBEARER: `event[:bearer]` for a token provider, see {OAuth}. Any
    # thread may use it, also after `on_oauthbearer_token_refresh` has returned.
    # @!method wanted?
    #   @return [Boolean, nil] whether librdkafka has asked for a token since the last call; nil: the client is closed
    class Bearer
      include AsJson

      # Its message holds nothing of the token, so it may be shown.
      class NotAcceptedError < ArgumentError; end

      # Beginnings of librdkafka's texts that may quote the token or an extension, and the text that replaces each.
      REASONS = {
        /\AMust supply an unexpired token/ =>
          "it expired at %s; lifetime_ms is the time at which it expires, in milliseconds since the epoch",
        /\ACannot explicitly set the reserved/ => "\"auth\" cannot be the name of an extension",
        %r{\ASASL/OAUTHBEARER extension keys} => "the name of an extension must be letters, A to Z and a to z",
        %r{\ASASL/OAUTHBEARER extension values} => "the token and the values of extensions must be visible ASCII characters"
      }.freeze
      # The usual form of a token: a JSON Web Token.
      TOKEN = /\beyJ[\w-]{8,}(\.[\w-]*)*/
      private_constant :NotAcceptedError, :REASONS, :TOKEN

      # @param token [String]
      # @param lifetime_ms [Integer] when the token expires, in ms since the epoch. A time after the year 3000 is probably in a
      #   smaller unit, and is logged as a warning
      # @param principal_name [String] the owner of the token
      # @param extensions [Hash{String, Symbol => String}] sent to the broker with the token
      # @return [0]
      # @raise [ArgumentError] when librdkafka does not accept the token, for example because it has expired. The message
      #   does not quote it
      # @raise [ProducerClosedError] when the producer is closed
      # @raise [ConsumerClosedError] when the consumer is closed
      def oauthbearer_set_token(token:, lifetime_ms:, principal_name:, extensions: {})
        pairs = (extensions || {}).flat_map { |name, value| [name.to_s, value.to_s] }
        unless [token, principal_name, *pairs].all? { |text| text.is_a?(String) && Settings.text?(text) }
          raise_not_accepted("token, principal_name and extensions must be UTF-8 Strings without a zero byte")
        end
        problem = expiry_problem(lifetime_ms)
        # In any case: from now on the token appears in no text.
        reason = set_token(token, problem ? 0 : lifetime_ms.to_i, principal_name, pairs)
        raise_not_accepted(problem || public_reason(reason, lifetime_ms)) if reason

        @answered = true
        0
      end

      # Reports that there is no token now. The client gets an error, and asks again in 10 seconds.
      # @param reason [String] without secrets. Texts that look like a JSON Web Token, and earlier tokens, are removed from
      #   it
      # @return [0]
      def oauthbearer_set_token_failure(reason)
        set_failure(safe(reason)) # M:token_reason_safe
        @answered = true
        0
      end

      # Called before the provider is asked: an earlier token or failure does not count.
      def expect_answer
        @answered = false
      end

      # @return [Boolean] whether a token or a failure was given since {#expect_answer}
      def answered? = @answered

      # @return [String]
      def inspect = "#<#{self.class}>"

      private

      def raise_not_accepted(reason) = raise(NotAcceptedError, "the token was not accepted: #{reason}")

      # @return [String, nil] what is wrong with the time of expiry, unless it has passed
      def expiry_problem(milliseconds)
        unless milliseconds.is_a?(Integer) || (milliseconds.is_a?(Float) && milliseconds.finite?)
          return "lifetime_ms must be an Integer of milliseconds since the epoch, not #{milliseconds.class}"
        end

        "lifetime_ms does not fit into 64 bits" unless milliseconds.to_i.between?(-(2**63), (2**63) - 1)
      end

      # librdkafka's reason, without the parts of its text that may quote the token.
      def public_reason(reason, expiry_ms)
        _, text = REASONS.find { |beginning, _| beginning.match?(reason) }
        return "librdkafka gives a reason that may quote the token" unless text

        text.sub("%s") { Time.at(expiry_ms.to_i / 1000).utc.strftime("%F %T UTC") }
      end

      # librdkafka ignores a text that is empty or has a zero byte, and would keep waiting for an answer.
      def safe(reason)
        text = reason.to_s
        text = text.dup.force_encoding("UTF-8") if text.encoding == Encoding::BINARY
        text = text.encode("UTF-8", invalid: :replace, undef: :replace)
        text = text.scrub("?").delete("\0").gsub(TOKEN, Secret::HIDDEN)
        text.empty? ? "no reason was given" : text
      rescue StandardError # to_s of the program's object may raise
        "the reason is not a valid text"
      end
    end
  end
end

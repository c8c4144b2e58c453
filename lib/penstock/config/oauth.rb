# frozen_string_literal: true

module Penstock
  # Settings of {Config#oauth}, {ConsumerConfig#oauth} and {AdminConfig#oauth}, for `sasl.mechanism` OAUTHBEARER.
  class OAuth < ConfigSection
    # Provides the tokens: its method `on_oauthbearer_token_refresh(event)` gives a token to `event[:bearer]`, a
    # {Native::Bearer}. A thread that all clients of the process share calls it before the first connection, and again before
    # each token expires. A consumer need not be polled for that. If the provider is slow, further threads serve the other
    # clients.
    # @return [#on_oauthbearer_token_refresh, nil]
    setting :token_provider_listener,
            object_with(:on_oauthbearer_token_refresh, "#on_oauthbearer_token_refresh",
                        "an object with the method on_oauthbearer_token_refresh")
  end
end

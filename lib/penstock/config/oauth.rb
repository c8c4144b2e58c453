# frozen_string_literal: true

module Penstock
  # Settings of {Config#oauth} and {ConsumerConfig#oauth}, for `sasl.mechanism` OAUTHBEARER.
  class OAuth
    include AsJson

    # Brings the tokens: its `on_oauthbearer_token_refresh(event)` gives one to `event[:bearer]`, a {Native::Bearer}. It is called
    # on a thread of that producer's or consumer's own, before it first connects, and again before each token expires, whether or
    # not a consumer is polled.
    # @return [#on_oauthbearer_token_refresh, nil] default nil
    attr_accessor :token_provider_listener

    def initialize
      @token_provider_listener = nil
    end
  end
end

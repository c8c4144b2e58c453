# frozen_string_literal: true

module Penstock
  module Native
    # The client in C of an {Admin} (ext/penstock/ruby/admin_client.c). Its methods take checked rows and the options of the
    # request in librdkafka's terms. They return an Array with an answer, as rows, or an {AdminError} for each request that they
    # sent. Some exist only if librdkafka has the request.
    #
    # @!method initialize(settings)
    #   @param settings [Hash{Symbol => Object}] by name: `id`, `kafka`, `poller`, `logger`, `token_refresher`;
    #     `close_timeout`, `rejection_timeout` and `unreachable_timeout` in ms; `consumer`: whether it is a consuming client,
    #     which some requests need
    #   @raise [KeyError] when one is missing
    # @api private
    class AdminClient
      include Uncopyable
    end
  end
end

# frozen_string_literal: true

module Penstock
  module Native
    # The client in C of an {Admin} (ext/penstock/ruby/admin_client.c). Its methods take checked rows and the options of the
    # request in librdkafka's terms. They return an Array with an answer, as rows, or an {AdminError} for each request that they
    # sent. Some exist only if librdkafka has the request.
    #
    # @!method initialize(id, kafka, poller, logger, close_timeout, rejection_timeout, token_refresher, consumer)
    # @api private
    class AdminClient
      include Uncopyable
    end
  end
end

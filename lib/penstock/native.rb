# frozen_string_literal: true

require_relative "instrumentation"

module Penstock
  # Ruby's side of the extension's classes that users never name. The file of each is in native/; that of {Poller}, which users
  # may name, is there too.
  module Native
  end
  private_constant :Native
end

require_relative "native/poller"
require_relative "native/async_one"
require_relative "native/event_source"
require_relative "native/event_worker"
require_relative "native/producer_client"
require_relative "native/consumer_client"
require_relative "native/admin_client"
require_relative "native/client_reference"
require_relative "native/ledger"
require_relative "native/weak_list"
require_relative "native/bearer"
require_relative "native/token_refresher"
require_relative "native/close_within"

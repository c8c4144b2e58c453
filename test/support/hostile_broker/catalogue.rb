# frozen_string_literal: true

require_relative "frames"
require_relative "fields"
require_relative "batches"
require_relative "bombs"
require_relative "giants"

class HostileBroker
  # All attacks. docs/security.md, "A broker that lies", describes the results.
  module Catalogue
    # Requests that more than one kind of client makes.
    CLIENTS = {
      metadata: %i[produce assign examine], api_versions: %i[produce examine], find_coordinator: %i[subscribe transact]
    }.freeze

    module_function

    # @return [Array<Attack>] the attacks on one request
    def of(api) = Frames.attacks(api) + Fields.attacks(api, clients: CLIENTS.fetch(api, [Attack::CLIENTS.fetch(api)]))

    # @return [Array<Attack>]
    def all
      GoodAnswers::NAMES.flat_map { |api| of(api) } + Fields.transaction_errors + Batches.attacks + Giants.attacks +
        Bombs.bounded + Bombs.unbounded
    end
  end
end

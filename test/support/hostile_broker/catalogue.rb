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

    # Requests that the admin client shares with others.
    ADMIN_CLIENTS = {
      metadata: %i[admin_describe_topics admin_all_topics admin_cluster],
      list_offsets: %i[admin_offsets admin_lag admin_reset_group_offsets],
      offset_fetch: %i[admin_group_offsets admin_lag admin_reset_group_offsets],
      offset_commit: %i[admin_alter_group_offsets admin_reset_group_offsets],
      find_coordinator: %i[admin_describe_groups admin_group_offsets]
    }.freeze

    # @return [Array<Attack>] on an admin client. This librdkafka sends only some of the requests
    def admin
      own = GoodAdminAnswers::NAMES.select { |api| Attack::CLIENTS.fetch(api).then { |client| sends?(client, api) } }
      own.flat_map { |api| of(api) } + ADMIN_CLIENTS.flat_map { |api, clients| Fields.attacks(api, clients:) }
    end

    def sends?(client, api)
      native = Penstock.const_get(:Native)::AdminClient
      needed = { admin_scram_users: :describe_scram_users, admin_alter_scram_users: :alter_scram_users,
                 admin_elect_leaders: :elect_leaders }[client]
      return native.method_defined?(needed) if needed

      older = native.method_defined?(:replace_configs)
      { alter_configs: older, incremental_alter_configs: !older }.fetch(api, true)
    end

    # @return [Array<Attack>] on producers, consumers and the doctor
    def all
      names = GoodAnswers::NAMES - GoodAdminAnswers::NAMES
      names.flat_map { |api| of(api) } + Fields.transaction_errors + Batches.attacks + Giants.attacks +
        Bombs.bounded + Bombs.unbounded
    end
  end
end

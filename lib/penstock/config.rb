# frozen_string_literal: true

require_relative "errors"
require_relative "config/secret"
require_relative "config/setting_table"
require_relative "config/settings"
require_relative "config/setting"
require_relative "config/config_section"
require_relative "config/codec"
require_relative "config/bootstrap_servers"
require_relative "config/topic_name"
require_relative "config/kafka_token_checks"
require_relative "config/kafka_warnings"
require_relative "config/kafka_checks"
require_relative "config/oauth"
require_relative "config/credential_checks"
require_relative "config/config_checks"

# What the configurations of all clients share. Those themselves are in producer/config.rb and consumer/config.rb.
module Penstock
  private_constant :Codec, :Setting, :ConfigSection, :Settings, :SettingTable, :BootstrapServers, :TopicName, :KafkaChecks,
                   :KafkaTokenChecks, :KafkaWarnings, :CredentialChecks, :ConfigChecks
end

# frozen_string_literal: true

module Penstock
  # The table of settings that librdkafka prints: which clients have a setting, what it accepts and what it is for.
  # @api private
  module SettingTable
    # clients: "P" for producers, "C" for consumers, "*" for both. A setting may have two rows, one of them for topics.
    Row = Struct.new(:name, :clients, :range, :description)
    OTHERS = { producer: "C", consumer: "P" }.freeze # programs give an admin client the settings of other clients
    private_constant :Row, :OTHERS

    class << self
      # @return [Hash{Symbol => Array<Row>}]
      def rows
        Native::ProducerClient.setting_lines.each_with_object({}) do |line, table|
          name, clients, range, _default, _importance, description = line.split("|", 6).map(&:strip)
          next if description.nil? || name.match?(/\A-+\z|\AProperty\z/)

          (table[name.to_sym] ||= []) << Row.new(name, clients, range, description)
        end
      end

      # @param rows [Array<Row>] of one setting
      # @param role [:producer, :consumer, :admin]
      # @return [Boolean] whether only clients of the other type have it
      def of_others?(rows, role) = rows.all? { |row| row.clients == OTHERS[role] }

      # @param settings [Hash{Symbol => Object}]
      # @param role [:producer, :consumer]
      # @return [Hash{Symbol => Object}] without those that only clients of the other type have
      def for_role(settings, role)
        table = rows
        settings.reject { |name, _| table.key?(name) && of_others?(table[name], role) }
      end

      # @param settings [Hash{Symbol => Object}]
      # @return [String, nil] a sentence about a name that librdkafka does not know
      def unknown(settings)
        return if settings.key?(:"plugin.library.paths") # a plugin may know it

        name = (settings.keys.map(&:to_s) - Native::ProducerClient.setting_names).first
        name && without(name)
      end

      # @param name [String]
      # @return [String] that librdkafka has no such setting, and the most similar one
      def without(name)
        shown = Settings.pem?(name) ? Secret::HIDDEN : name.inspect
        hint = Suggestion.hint(name, Native::ProducerClient.setting_names)
        "librdkafka #{Penstock.librdkafka_version} has no setting #{shown}#{hint}"
      end
    end
  end
end

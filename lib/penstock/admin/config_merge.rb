# frozen_string_literal: true

module Penstock
  class Admin
    # Changes single settings with a request that replaces all of them, for librdkafka before 2.2.0.
    # @api private
    module ConfigMerge
      # What cannot be merged without loss.
      class Impossible < StandardError; end

      class << self
        # @param entries [Array<ConfigEntry>] all settings of the topic
        # @param changes [Array<Array(String, Integer, Object)>] see {ConfigChanges.of}
        # @return [Array<Array(String, Integer, Object)>] the topic's own settings after the changes
        # @raise [Impossible]
        def merge(entries, changes)
          own = own_settings(entries)
          known = entries.to_h { |entry| [entry.name, entry.value] }
          changes.each do |name, operation, value|
            case operation
            when ConfigChanges::SET then own[name] = value
            when ConfigChanges::DELETE then own.delete(name)
            else own[name] = list(own.fetch(name) { known[name] }, operation, value)
            end
          end
          own.map { |name, value| [name, ConfigChanges::SET, value] }
        end

        private

        def own_settings(entries)
          entries.select { |entry| own?(entry) }.to_h do |entry|
            raise Impossible, "the value of #{entry.name}, which would have to be sent again, is hidden" if entry.value.nil?

            [entry.name, entry.value]
          end
        end

        def own?(entry)
          raise Impossible, "the brokers do not report the source of #{entry.name}" if entry.source == :unknown

          entry.source == :topic
        end

        # As the brokers do it.
        def list(before, operation, value)
          raise Impossible, "a hidden value is no part of a list" if value.is_a?(Secret)

          parts = before.to_s.split(",").map(&:strip).reject(&:empty?)
          changed = value.split(",").map(&:strip)
          (operation == ConfigChanges::APPEND ? parts | changed : parts - changed).join(",")
        end
      end
    end
    private_constant :ConfigMerge
  end
end

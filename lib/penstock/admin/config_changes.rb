# frozen_string_literal: true

module Penstock
  class Admin
    # Checks which resources a program wants settings of, and which changes of them, and makes the native client's rows.
    # @api private
    module ConfigChanges
      # librdkafka's numbers.
      TYPES = { topic: 2, group: 3, broker: 4 }.freeze
      SET = 0
      DELETE = 1
      APPEND = 2
      SUBTRACT = 3
      LISTS = { append: APPEND, subtract: SUBTRACT }.freeze
      OWNERS = { topics: :topic, brokers: :broker, groups: :group }.freeze
      private_constant :LISTS, :OWNERS

      class << self
        # @return [Array<Array(Symbol, Object)>] such as [:topic, "events"] and [:broker, 1]
        def resources(topics, brokers, groups)
          { topic: topics, broker: brokers, group: groups }.flat_map do |type, names|
            raise ArgumentError, "#{type}s must be an Array, not #{names.class}" unless names.is_a?(Array)

            twice, = names.tally.find { |_, count| count > 1 }
            raise ArgumentError, "#{type} #{twice.inspect} is given twice" if twice

            names.map { |name| [type, checked(type, name)] }
          end
        end

        # @return [Hash{Array(Symbol, Object) => Array<Array(String, Integer, Object)>}] for each resource the name of each
        #   setting, the operation, and a String, a {Secret} or nil
        def of(changes)
          hash("changes", changes).flat_map do |owner, resources|
            type = OWNERS.fetch(owner) do
              hint = OWNERS.any? { |key,| key.name == owner } ? " (write a Symbol)" : Suggestion.hint(owner, OWNERS.keys)
              raise ArgumentError, "unknown key #{owner.inspect}#{hint}; write topics, brokers or groups"
            end
            hash(owner, resources).map do |name, settings|
              [[type, checked(type, name)], settings("#{type} #{name.inspect}", settings)]
            end
          end.to_h
        end

        # @return [Array<Array(Integer, String)>]
        def rows(resources) = resources.map { |type, name| [TYPES.fetch(type), name.to_s] }

        private

        def hash(what, given)
          given.is_a?(Hash) ? given : raise(ArgumentError, "#{what} must be a Hash, not #{given.class}")
        end

        def checked(type, name)
          if type == :broker
            return name if Seconds.integer?(name) && name.between?(0, (2**31) - 1)

            raise ArgumentError, "the id of a broker must be an Integer that is not negative, not #{name.inspect}"
          end
          type == :topic ? Names.topic(name) : Names.of("the name of a group", name)
        end

        def settings(owner, settings)
          rows = hash("the changes of #{owner}", settings).map do |given, wanted|
            name = Specifications.setting_name(given)
            [name, *change("#{owner}: #{name}", name, wanted)]
          end
          twice, = rows.map(&:first).tally.find { |_, count| count > 1 }
          twice ? raise(ArgumentError, "#{owner}: #{twice} is given twice") : rows
        end

        # @return [Array(Integer, Object)]
        def change(where, name, wanted)
          return [DELETE, nil] if wanted.nil?
          return [SET, text(where, name, wanted)] unless wanted.is_a?(Hash)

          key, value = wanted.first
          operation = LISTS[key]
          return [operation, text(where, name, value)] if operation && wanted.size == 1

          raise ArgumentError, "#{where} must be a value, nil, { append: value } or { subtract: value }"
        end

        # @return [String, Secret]
        def text(where, name, value)
          if value.is_a?(Secret)
            return Settings.text?(value) ? value : raise(ArgumentError, "#{where} must be UTF-8 without a zero byte")
          end

          raise ArgumentError, "#{where} must not be empty" if value == []

          Settings.hide(name, Specifications.setting_value(where, value))
        end
      end
    end
    private_constant :ConfigChanges
  end
end

# frozen_string_literal: true

module Penstock
  class Admin
    # Checks what programs want of topics, and makes the native client's rows of it.
    # @api private
    module Specifications
      TOPIC = %i[partitions replication_factor config replicas].freeze
      PARTITIONS = %i[total replicas].freeze
      MOST = 100_000 # partitions
      MOST_ID = (2**31) - 1 # of brokers
      private_constant :PARTITIONS, :MOST, :MOST_ID

      class << self
        # @return [Array] rows for create_topics
        def topics(topics)
          hash_of("topics", topics).map do |name, spec|
            spec = keys("topic #{name.inspect}", spec, TOPIC)
            replicas = replicas("topic #{name.inspect}", spec[:replicas])
            both = replicas && (spec[:partitions] || spec[:replication_factor])
            raise ArgumentError, "topic #{name.inspect}: replicas stands for partitions and replication_factor" if both

            [Names.topic(name), replicas ? replicas.size : count(name, :partitions, spec[:partitions]),
             replicas ? -1 : count(name, :replication_factor, spec[:replication_factor]), settings(name, spec[:config] || {}),
             replicas]
          end
        end

        # @return [Array] rows for create_partitions
        def partitions(totals)
          hash_of("topics", totals).map do |name, wanted|
            spec = wanted.is_a?(Hash) ? keys("topic #{name.inspect}", wanted, PARTITIONS) : { total: wanted }
            total = count(name, :total, spec[:total])
            raise ArgumentError, "topic #{name.inspect}: how many partitions it has then must be given" if total.negative?

            [Names.topic(name), total, replicas("topic #{name.inspect}", spec[:replicas])]
          end
        end

        # @return [Array<Array(String, String)>] names and values of settings
        def settings(owner, config)
          hash_of("the config of #{owner.inspect}", config).map do |name, value|
            [setting_name(name), setting_value("#{owner}: #{name}", value)]
          end
        end

        # @return [String]
        def setting_name(name)
          text = name.is_a?(Symbol) ? name.name : name
          return -text if Names.text?(text) && !text.empty?

          raise ArgumentError, "the name of a setting must be a Symbol or a String, not #{name.inspect[0, 1000]}"
        end

        # @return [String]
        def setting_value(where, value)
          case value
          when String, Symbol then return short(where, -value.to_s) if Settings.text?(value.to_s)
          when Integer, true, false then return short(where, value.to_s)
          when Float then return value.to_s if value.finite?
          when Array then return short(where, value.map { |part| setting_value(where, part) }.join(",")) if value.none?(Array)
          end
          types = "a String, Symbol, number, true, false or an Array of them"
          raise ArgumentError, "#{where} must be #{types}, not of the class #{value.class}"
        end

        # @return [String] the text
        def short(where, text)
          return text if text.bytesize <= Names::LONGEST

          raise ArgumentError, "#{where} must have at most #{Names::LONGEST} bytes, not #{text.bytesize}"
        end

        private

        def hash_of(what, given)
          given.is_a?(Hash) ? given : raise(ArgumentError, "#{what} must be a Hash, not #{given.class}")
        end

        def keys(owner, spec, known)
          wrong = hash_of(owner, spec).keys.find { |key| !known.include?(key) } or return spec
          raise ArgumentError, "#{owner}: unknown key #{wrong.inspect}#{Suggestion.hint(wrong, known)}"
        end

        # @return [Integer] -1: the brokers' default
        def count(name, key, value)
          return -1 if value.nil?
          return value if Seconds.integer?(value) && value.between?(1, MOST)

          raise ArgumentError, "topic #{name.inspect}: #{key} must be an Integer from 1 to #{MOST}, not #{value.inspect}"
        end

        def replicas(owner, given)
          return if given.nil?

          copy = given.map { |ids| ids.is_a?(Array) ? ids.dup : ids } if given.is_a?(Array)
          return copy if copy&.any? && copy.all? { |ids| brokers?(ids) }

          raise ArgumentError, "#{owner}: replicas must be an Array with an Array of different ids of brokers for each " \
                               "partition, not #{given.inspect}"
        end

        def brokers?(ids)
          ids.is_a?(Array) && ids.any? && ids.uniq == ids && ids.all? { |id| Seconds.integer?(id) && id.between?(0, MOST_ID) }
        end
      end
    end
    private_constant :Specifications
  end
end

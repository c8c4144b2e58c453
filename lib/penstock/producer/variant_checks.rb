# frozen_string_literal: true

module Penstock
  class Producer
    # Checks the arguments of {Producer#with}.
    # @api private
    class VariantChecks
      SYNONYMS = [
        %i[acks request.required.acks], %i[compression.codec compression.type], %i[message.timeout.ms delivery.timeout.ms]
      ].freeze
      Ractor.make_shareable(SYNONYMS)
      private_constant :SYNONYMS

      # librdkafka uses the later one of two names of a setting, in the order of the Hash.
      # @return [Hash] the settings, some of them replaced
      def self.override(kafka, others)
        synonyms = SYNONYMS.select { |names| others.keys.intersect?(names) }.flatten
        kafka.except(*synonyms).merge(others)
      end

      # If idempotence is on by default only, a given `acks` turns it off.
      # @return [Hash] librdkafka's settings that replace the producer's
      def self.overrides(topic_config)
        names = %i[acks request.required.acks]
        name = names.find { |candidate| topic_config.key?(candidate) }
        return topic_config if name.nil? || Settings.read(name, topic_config[name]) == "-1"

        { "enable.idempotence": false, **topic_config }
      end

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
      end

      # @return [Hash{Symbol => Object}] the topic settings, frozen
      # @raise [VariantInvalidError] when a setting is invalid
      def call(max_wait_timeout, topic_config)
        unless max_wait_timeout.nil? || (Seconds.integer?(max_wait_timeout) && !max_wait_timeout.negative?)
          raise_invalid("max_wait_timeout must be an Integer of ms or nil, not #{max_wait_timeout.inspect}")
        end

        check_names(topic_config)
        topic_config = topic_config.transform_keys(&:to_sym).freeze
        check_values(topic_config) unless topic_config.empty?
        topic_config
      end

      private

      def check_names(topic_config)
        unless topic_config.is_a?(Hash) && topic_config.keys.all? { |name| name.is_a?(Symbol) || name.is_a?(String) }
          raise_invalid("topic_config must be a Hash with Symbols as names, not #{what_else(topic_config)}")
        end

        topic_config.each_key { |name| check_name(Text.printable(name).to_sym) }
        twins = Settings.twins(topic_config.keys.map(&:to_sym)) or return
        raise_invalid("topic_config: #{twins.join(" and ")} are two names of one setting: set only one of them")
      end

      # Values of a Hash may be secret.
      def what_else(given) = given.is_a?(Hash) ? "one with #{given.keys.grep_v(Symbol).grep_v(String).first.class}" : given.class

      def check_name(name)
        unless Variant::TOPIC_SETTINGS.include?(name)
          hint = Suggestion.hint(name, Variant::TOPIC_SETTINGS)
          raise_invalid("topic_config: #{name.inspect} is not a setting of a topic#{hint}")
        end

        if @internals.transactional?
          raise_invalid("topic_config: #{name} cannot be changed for a transactional producer, which has one client; " \
                        "set it in config.kafka")
        end
        return unless %i[acks request.required.acks].include?(name) && idempotence_asked_for?

        raise_invalid("topic_config: #{name} cannot be changed for an idempotent producer (enable.idempotence)")
      end

      def idempotence_asked_for? = @internals.idempotent? && @internals.config.given?(:"enable.idempotence")

      def check_values(topic_config)
        @internals.build_client(VariantChecks.override(@internals.config.kafka, VariantChecks.overrides(topic_config)))
      rescue ConfigurationInvalidError => e
        raise_invalid(e.message[/config\.kafka.*/m].sub("config.kafka", "topic_config"))
      end

      def raise_invalid(text) = raise(ErrorFactory.build(VariantInvalidError, text, producer_id: @internals.id))
    end
  end
end

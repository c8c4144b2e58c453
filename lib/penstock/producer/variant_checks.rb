# frozen_string_literal: true

module Penstock
  class Producer
    # What {Producer#with} refuses.
    # @api private
    class VariantChecks
      SYNONYMS = [
        %i[acks request.required.acks], %i[compression.codec compression.type], %i[message.timeout.ms delivery.timeout.ms]
      ].freeze
      Ractor.make_shareable(SYNONYMS)
      private_constant :SYNONYMS

      # librdkafka takes the later one of two names of a setting, in a Hash's order.
      # @return [Hash] the settings with others in place of some
      def self.override(kafka, others)
        synonyms = SYNONYMS.select { |names| others.keys.intersect?(names) }.flatten
        kafka.except(*synonyms).merge(others)
      end

      # An idempotence that nobody asked for gives way to an acks that somebody did.
      # @return [Hash] librdkafka's settings in place of the producer's
      def self.overrides(topic_config)
        names = %i[acks request.required.acks]
        name = names.find { |one| topic_config.key?(one) }
        return topic_config if name.nil? || Settings.read(name, topic_config[name]) == "-1"

        { "enable.idempotence": false, **topic_config }
      end

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
      end

      # @return [Hash{Symbol => Object}] the topic settings, frozen
      # @raise [VariantInvalidError]
      def call(max_wait_timeout, topic_config)
        unless max_wait_timeout.nil? || (Seconds.integer?(max_wait_timeout) && !max_wait_timeout.negative?)
          raise_invalid("max_wait_timeout is an Integer of ms or nil, not #{max_wait_timeout.inspect}")
        end

        check_names(topic_config)
        topic_config = topic_config.transform_keys(&:to_sym).freeze
        check_values(topic_config) unless topic_config.empty?
        topic_config
      end

      private

      def check_names(topic_config)
        unless topic_config.is_a?(Hash) && topic_config.keys.all? { |name| name.is_a?(Symbol) || name.is_a?(String) }
          raise_invalid("topic_config is a Hash of settings by name, a Symbol, not #{what_else(topic_config)}")
        end

        topic_config.each_key { |name| check_name(Text.printable(name).to_sym) }
        twins = Settings.twins(topic_config.keys.map(&:to_sym)) or return
        raise_invalid("topic_config: #{twins.join(" and ")} are two names of one setting: give one of them")
      end

      # Values of a Hash may be secret.
      def what_else(given) = given.is_a?(Hash) ? "one with #{given.keys.grep_v(Symbol).grep_v(String).first.class}" : given.class

      def check_name(name)
        unless Variant::TOPIC_SETTINGS.include?(name)
          raise_invalid("topic_config: no setting of a topic: #{name.inspect}#{Suggestion.hint(name, Variant::TOPIC_SETTINGS)}")
        end

        if @internals.transactional?
          raise_invalid("topic_config: a transaction has one client, and librdkafka fixes its topics' settings at their first use; " \
                 "set #{name} in config.kafka")
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

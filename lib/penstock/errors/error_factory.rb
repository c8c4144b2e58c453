# frozen_string_literal: true

module Penstock
  # The one place that builds the errors of Penstock, for C (error.c) and Ruby. Every message has one form:
  #
  #     What happened [producer, consumer, admin, group, topic, partition, offset, brokers]. Whether it may be stored. What to do.
  #
  # It begins with a capital letter and ends with a full stop. The context is at the end of the first sentence. Any Ractor.
  # @api private
  module ErrorFactory
    # The beginning of a message whose text starts with a name of code, which has no capital letter. The first class that
    # matches.
    OPENINGS = {
      VariantInvalidError => "Invalid variant", ConfigurationError => "Invalid configuration",
      MessageInvalidError => "Invalid message", TransactionalOffsetInvalidError => "Invalid offset",
      UnsupportedError => "Not supported", UsageError => "Wrong use",
      Error => "Reported by librdkafka"
    }.freeze

    # The consequence of errors of these classes, whatever their code is. The first class that matches.
    CONSEQUENCES = {
      MessageInvalidError => "Nothing was sent.",
      QueueFullError => "The message was not accepted.",
      WaitTimeoutError => "Messages without a delivery result are still in flight and may be delivered later.",
      FatalError => "The producer can do nothing more. Messages in flight still get their delivery results.",
      TransactionTimedOutError => "The cluster has aborted it, and accepts nothing more from this producer.",
      TransactionCommittedError => "Its messages and offsets are visible to all readers. Nothing was aborted."
    }.freeze
    # Codes of messages that certainly are not in the topic, and whose delivery fails again until the message, a setting or a
    # right changes.
    PERMANENT = %i[msg_size_too_large record_list_too_large invalid_msg_size invalid_record invalid_timestamp topic_exception
                   unsupported_for_message_format unsupported_compression_type unsupported_version invalid_required_acks
                   invalid_request policy_violation topic_authorization_failed cluster_authorization_failed
                   transactional_id_authorization_failed].freeze
    LOOK_FIRST = "Its messages are in their topics if it was. Read these with isolation.level \"read_committed\" before you " \
                 "send the messages again."
    AFTER_TIMEOUT = "If it was a change, it may still take effect: look before you repeat it."
    PART_OF_LIBRDKAFKA = /\A(?:\w+ (?:worker|response)[\w ]*(?:error|failed[\w ]*|response): )+/
    # A first word that can be capitalized, unlike topic_config or config.kafka.
    WORD = /\A(?!librdkafka)\p{Ll}[\p{Ll}'-]*(?=[,:]? |\z)/
    private_constant :OPENINGS, :CONSEQUENCES, :PERMANENT, :LOOK_FIRST, :AFTER_TIMEOUT, :PART_OF_LIBRDKAFKA,
                     :WORD

    class << self
      # @param error_class [Class]
      # @param text [String] what happened: one sentence without its full stop
      # @param following [String, nil] whole sentences: the consequence, and what to do
      # @param attributes [Hash] see {Error#initialize}
      # @return [Error]
      def build(error_class, text, following = nil, **attributes)
        attributes[:topic] &&= Text.printable(attributes[:topic])
        message = compose(error_class, Text.printable(text), nil, following, attributes)
        error_class.new(message, **attributes)
      end

      # For error.c.
      # @param text [String, nil] nil: the description
      # @param cause [Array] librdkafka's code as a number, its name and its description; the name of the error whose advice the
      #   message has, if that is another one
      # @param owner [Array] the ids of producer, consumer and admin client, and the brokers
      # @param problem [String, nil] the latest error of a connection
      # @param place [Array] topic, partition, offset and consumer group
      # @param traits [Array<Boolean>] fatal, retriable, abortable
      # @return [Error]
      def build_native(error_class, text, cause, owner, problem, place, traits)
        number, name, description, reason = cause
        producer_id, consumer_id, admin_id, brokers = owner
        topic, partition, offset, group = place
        fatal, retriable, abortable = traits
        code = code_of(name)
        retriable &&= fatal || !permanent?(error_class, code) # after a fatal error another client may send it
        attributes = { code:, number:, name:, producer_id:, topic: topic && Text.printable(topic), partition:,
                       fatal:, retriable:, abortable:, consumer_id:, admin_id:, offset:, group: }
        brokers = problem = nil if reason || !Advice.network?(error_class, code)
        text &&= without_context(Text.printable(text), attributes[:topic], partition, description)
        message = compose(error_class, with_cause(text, description, code), brokers,
                          problem && "Last problem: #{with_full_stop(problem)}", attributes, code_of(reason || name))
        error_class.new(message, **attributes)
      end

      # @return [Boolean] whether the message of a delivery result is certainly not in the topic, and fails again
      def permanent?(error_class, code) = error_class <= DeliveryError && PERMANENT.include?(code)

      # @return [String] the first sentence of an error's message, without context and full stop
      def reason(error)
        first = error.message[/\A.*?(?=(?: \[\w+ [^\]]*\])?\.(?: |\z))/m] || error.message
        first.sub(/\A\p{Lu}(?=\p{Ll})/, &:downcase)
      end

      # @param error [TransactionError] of a commit
      # @param failed [Error] of the message because of which it failed
      # @return [TransactionError] with the place of the message, and the message's error as `cause`
      def build_failed_commit(error, failed)
        attributes = { **error.deconstruct_keys(nil), topic: failed.topic, partition: failed.partition }
        build(error.class, "a message of the transaction failed: #{reason(failed)}",
              Advice.of(failed.class, failed.code, failed.message), **attributes)
      end

      # The commit may be repeated, but not the whole transaction.
      # @param error [TransactionError] of a commit
      # @param finds_out [Boolean] whether the next call asks the cluster how this one has ended
      # @return [TransactionOutcomeUnknownError]
      def build_undecided_commit(error, finds_out:)
        build(TransactionOutcomeUnknownError, "whether the transaction was committed is unknown (#{reason(error)})",
              finds_out ? "The next call with this consumer finds out." : LOOK_FIRST,
              **error.deconstruct_keys(nil), retriable: finds_out)
      end

      # @param error [Error] the first of a batch
      # @param dispatched [Array<DeliveryHandle>]
      # @param size [Integer] of the batch
      # @return [ProduceManyError]
      def build_many(error, dispatched, size)
        message = "Accepted #{dispatched.size} of #{Text.count(size, "message")}. First error: #{error.message}"
        ProduceManyError.new(message, dispatched:, **error.deconstruct_keys(nil))
      end

      private

      def code_of(name) = name&.delete_prefix("_")&.downcase&.to_sym

      def compose(error_class, text, brokers, following, attributes, advised = attributes[:code])
        first = [beginning(error_class, text.delete_suffix(".")), context(brokers, **attributes)].compact.join(" ")
        [with_full_stop(first), following, consequence(error_class, **attributes),
         Advice.of(error_class, advised, text)].compact.uniq.join(" ")
      end

      # Some texts of librdkafka name the partition and end with the description, which the message has anyway. Those of admin
      # requests begin with the part of librdkafka that has failed.
      def without_context(text, topic, partition, description)
        text.sub(PART_OF_LIBRDKAFKA, "").delete_prefix("#{topic} [#{partition}]: ")
            .delete_suffix(" (#{description})").delete_suffix(": #{description}").delete_prefix("#{description}: ")
      end

      def with_cause(text, description, code)
        cause = description && "#{description} (#{code})"
        said = [description, description&.sub(/\A(?:Broker|Local): /, "")].include?(text&.delete_suffix("."))
        (said ? [cause] : [text&.delete_suffix("."), cause]).compact.join(": ")
      end

      def beginning(error_class, text)
        return text if text.match?(/\A\p{Lu}/)
        return text.sub(/\A\p{Ll}/, &:upcase) if text.match?(WORD)

        _, opening = OPENINGS.find { |known, _| error_class <= known }
        "#{opening}: #{text}"
      end

      def with_full_stop(text) = text.match?(/[.!?]\z/) ? text : "#{text}."

      def context(brokers, producer_id: nil, consumer_id: nil, admin_id: nil, group: nil, topic: nil, partition: nil,
                  offset: nil, **)
        known = { producer: producer_id, consumer: consumer_id, admin: admin_id, group:, topic:, partition:, offset:, brokers: }
        parts = known.filter_map { |name, value| "#{name} #{value}" unless value.nil? || value == "" }
        "[#{parts.join(", ")}]" unless parts.empty?
      end

      def consequence(error_class, code: nil, fatal: false, retriable: false, abortable: false, **)
        _, known = CONSEQUENCES.find { |owner, _| error_class <= owner }
        return "The message was not accepted." if error_class <= MessageInvalidError && code
        return known if known
        return after_transaction_call(fatal, retriable, abortable) if error_class <= TransactionError
        return after_admin_call(code, retriable) if error_class <= AdminError

        "The producer met a fatal error before it sent the message." if error_class <= DeliveryError && fatal
      end

      # Of those that have no code, the text says what is changed.
      def after_admin_call(code, retriable)
        AFTER_TIMEOUT if %i[timed_out transport request_timed_out all_brokers_down].include?(code) && !retriable
      end

      def after_transaction_call(fatal, retriable, abortable)
        if fatal
          "The producer can do nothing more. The cluster aborts the transaction unless it was being committed."
        elsif abortable
          "The transaction cannot be committed any more. Leaving its block aborts it; then run it again."
        elsif retriable
          "It may still succeed. Make the same call again."
        end
      end
    end
  end
end

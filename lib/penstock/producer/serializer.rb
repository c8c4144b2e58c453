# frozen_string_literal: true

module Penstock
  # Calls `config.serializer` for payloads, for a producer and its handles in other Ractors. Frozen; shareable if the given
  # object is.
  # @api private
  class Serializer
    # @param given [:json, #dump, #call]
    # @param producer_id [String] for errors
    def initialize(given, producer_id)
      @given = given
      @codec = Codec.resolved(given, :dump)
      @dumps = Codec.method_of(given, :dump) == :dump
      @producer_id = producer_id.dup.freeze
      freeze
    end

    # @param message [Hash, Object] left unchanged; produce raises for an object that is no message
    # @param index [Integer, nil] its place in the batch
    # @return [Hash, Object] a copy with a String as payload; the message itself if it has none
    # @raise [SerializationError] when the serializer raises or returns no String
    def run(message, index = nil)
      return message unless message.is_a?(Hash)

      payload = message.fetch(:payload, nil)
      return message if nil.equal?(payload) # the payload may be a BasicObject without nil?

      { **message, payload: serialized(payload, message[:topic], index) }
    end

    # @param messages [Array<Hash>, Object]
    # @return [Array<Hash>, Object]
    # @raise [SerializationError] when the serializer fails; the error names the message
    def run_many(messages)
      return messages unless messages.is_a?(Array)

      messages.each_with_index.map { |message, index| run(message, index) }
    end

    # @return [String] for messages
    def name = Codec.name_of(@given)

    private

    def serialized(payload, topic, index)
      string = made_of(payload, topic, index)
      return string if string.is_a?(String)

      raise_error("returned #{string.class} instead of a String", payload, topic, index)
    end

    def made_of(payload, topic, index)
      @dumps ? @codec.dump(payload) : @codec.call(payload)
    rescue StandardError, ScriptError, SystemStackError => e
      raise_error("raised #{e.class}", payload, topic, index, first_line_of(e))
    end

    def first_line_of(error)
      text = error.message
      line = text.encoding.dummy? ? text : text.lines.first # Ruby cannot look into a UTF-7 String
      line && Text.printable(line).delete_suffix("\\n")
    end

    def raise_error(what, payload, topic, index, why = nil)
      kind = Kernel.instance_method(:class).bind_call(payload)
      text = "#{"message #{index} of the batch: " if index}the serializer #{name} #{what} for a payload of the class #{kind}"
      text << ": " << why.delete_suffix(".") if why
      topic = topic.is_a?(String) || topic.is_a?(Symbol) ? topic.to_s : nil
      raise ErrorFactory.build(SerializationError, text, producer_id: @producer_id, topic:)
    end
  end
end

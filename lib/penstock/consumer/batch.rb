# frozen_string_literal: true

module Penstock
  # The messages that one call of {Consumer#poll_batch} took. Immutable and shareable between Ractors. It stays valid after its
  # consumer is closed.
  #
  #     batch = consumer.poll_batch(max: 1_000)
  #     batch.payloads.each { |payload| handle(payload) } # the fastest way
  #     batch.each { |message| handle(message.payload, message.headers) }
  #
  # It is Enumerable, and can be used like an Array of {Message}s. Messages are in order within a partition.
  #
  # A batch keeps its messages' bytes in one piece of memory. A {Message} or batch that your program keeps keeps this memory, also
  # if it is one message of a thousand. {#release} frees it early. Strings that were read are independent of it.
  #
  # None of its methods blocks. Any thread, fiber or Ractor may call them.
  class Batch
    include Enumerable
    include AsJson

    # @!method size
    #   @return [Integer] how many messages it has
    # @!method length
    #   @return [Integer] the same
    # @!method bytesize
    #   @return [Integer] of all keys and payloads, also after {#release}
    # @!method each
    #   @yieldparam message [Message] made for this call
    #   @return [self, Enumerator]
    # @!method payloads(first = 0, count = size)
    #   @param first [Integer] an index, from 0 to `size`; of a part of the batch
    #   @param count [Integer] how many from there on, at most
    #   @return [Array<String, nil>] frozen, with frozen binary Strings; nil for a tombstone
    #   @raise [BatchReleasedError]
    #   @raise [IndexError] when `first` is outside the batch
    # @!method each_payload
    #   Like `payloads.each`, with one String at a time.
    #   @yieldparam payload [String, nil] frozen; nil for a tombstone
    #   @return [self, Enumerator]
    #   @raise [BatchReleasedError]
    # @!method epoch
    #   @return [Integer] the number of the consumer's assignment when the batch was taken. It grows with each assignment and
    #     revocation. {Consumer#mark} compares it, and returns false for what was taken away since
    # @!method keys(first = 0, count = size)
    #   The arguments are those of {#payloads}.
    #   @return [Array<String, nil>] frozen, with frozen binary Strings; nil for messages without a key
    #   @raise [BatchReleasedError, IndexError]
    # @!method offsets(first = 0, count = size)
    #   The arguments are those of {#payloads}.
    #   @return [Array<Integer>] frozen
    #   @raise [IndexError]
    # @!method timestamps(first = 0, count = size)
    #   The arguments are those of {#payloads}.
    #   @raise [IndexError]
    #   @return [Array<Integer, nil>] frozen; ms since the epoch, nil for messages without a timestamp
    # @!method partitions
    #   @return [Array<Integer>] frozen
    # @!method topics
    #   @return [Array<String>] frozen
    # @!method release
    #   Frees the memory of keys, payloads and headers now, not when the batch and its messages are garbage-collected. Reading
    #   them raises {BatchReleasedError} afterwards. Everything else can be read as before. A second call does nothing.
    #   @return [nil]

    # @return [Boolean]
    def empty? = size.zero?

    # @param index [Integer, Range] as for an Array
    # @param count [Integer, nil]
    # @return [Message, Array<Message>, nil]
    def [](index, count = nil)
      return at(index) if count.nil? && index.is_a?(Integer)

      count ? to_a[index, count] : to_a[index]
    end

    # @param count [Integer, nil]
    # @return [Message, Array<Message>, nil]
    def last(count = nil) = count ? to_a.last(count) : at(-1)

    # So that a batch can be added to an Array.
    # @return [Array<Message>]
    alias to_ary to_a

    # The errors of messages that cannot be read completely, see {Message#error}. The messages are in the batch all the same.
    # @return [Array<ConsumeError>] frozen; each has topic, partition and offset
    def errors = (damaged? ? filter_map(&:error) : []).freeze

    # The partitions of which the consumer has now got everything. Only with `enable.partition.eof: true` in
    # {ConsumerConfig#kafka}; {Consumer#poll_batch} then also returns when it meets an end, perhaps without a message. A partition
    # that gets more messages ends again later.
    # @return [Hash{String => Hash{Integer => Integer}}] by topic and partition: the offset of its next message
    def ends = call_ends.group_by(&:first).transform_values { |list| list.to_h { |_, partition, offset| [partition, offset] } }

    # The objects of the payloads, as {ConsumerConfig#deserializer} reads them; without one, the payloads. Each call decodes them
    # anew, and a {Message} keeps its own.
    #
    #     batch.values                               # raises for the first that cannot be decoded
    #     batch.values { |error| set_aside(error) }  # the block's result takes its place
    #
    # @param first [Integer] see {#payloads}
    # @param count [Integer]
    # @yieldparam error [DeserializationError] has `topic`, `partition` and `offset`
    # @yieldreturn [Object]
    # @return [Array<Object, nil>] frozen; nil for a tombstone
    # @raise [DeserializationError] without a block, for the first payload that cannot be decoded
    # @raise [BatchReleasedError, IndexError]
    def values(first = 0, count = size, &) = decoded(payloads(first, count), deserializer&.value, first, &)

    # The same for the keys ({ConsumerConfig#key_deserializer}).
    # @param first [Integer] see {#payloads}
    # @param count [Integer]
    # @yieldparam error [DeserializationError]
    # @yieldreturn [Object]
    # @return [Array<Object, nil>] frozen; nil for messages without a key
    # @raise [DeserializationError, BatchReleasedError] see {#values}
    def decoded_keys(first = 0, count = size, &) = decoded(keys(first, count), deserializer&.key, first, &)

    # @return [Hash{String => Hash{Integer => Array<Message>}}] messages by topic and partition, in order
    def group_by_partition
      each_with_object({}) do |message, topics|
        ((topics[message.topic] ||= {})[message.partition] ||= []) << message
      end
    end

    # @return [Boolean] whether the other is a batch or Array with equal messages
    def ==(other) = (other.is_a?(Batch) || other.is_a?(Array)) && to_a == other.to_a

    # @return [String] without payloads and keys
    def inspect = "#<#{self.class} #{size} #{size == 1 ? "message" : "messages"}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = map(&:as_json)

    private

    def decoded(column, part, first)
      return column if part.nil?

      Array.new(column.size) do |index|
        part.read(column[index], self, first + index)
      rescue DeserializationError => e
        block_given? ? yield(e) : raise
      end.freeze
    end
  end
end

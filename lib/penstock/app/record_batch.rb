# frozen_string_literal: true

module Penstock
  # What {Processor} gets in `process_batch`: messages of one partition, in order.
  #
  #     def process_batch(batch)
  #       batch.each_slice(200) do |slice|
  #         break if cancelled?
  #
  #         Store.insert(slice.map(&:value))
  #         batch.done(slice) # an error later repeats only the rest
  #       end
  #     end
  #
  # Columns are the fastest way, as they need no {Message} objects:
  #
  #     def process_batch(batch) = Store.insert(batch.offsets.zip(batch.values))
  #
  # Belongs to the call that has got it.
  class RecordBatch
    include Enumerable

    # @return [Integer]
    attr_reader :size

    # Programs make one only to test their processors.
    # @param records [Array<Message>] of one partition, in order
    def initialize(records)
      @records = records
      @size = records.size
      @done = 0
    end

    # @yieldparam record [Message]
    # @return [self, Enumerator]
    def each(&block)
      return to_enum(:each) { size } unless block

      records.each(&block)
      self
    end

    # @param index [Integer, Range]
    # @return [Message, Array<Message>, nil]
    def [](index) = records[index]

    # @return [Message]
    def last = records.last

    # @return [String]
    def topic = self[0].topic

    # @return [Integer] of the topic. With a block, as for an Array
    def partition(&block) = block ? super : self[0].partition

    # @return [Array<String, nil>] frozen binary Strings; nil for a tombstone
    def payloads = records.map(&:payload)

    # The objects of the payloads, as the option `value` of the route reads them; without it, the payloads. Each call decodes them
    # anew.
    # @yieldparam error [DeserializationError] of a payload that cannot be decoded
    # @yieldreturn [Object] takes its place
    # @return [Array<Object, nil>] nil for a tombstone
    # @raise [DeserializationError] without a block
    def values
      records.map do |record|
        record.value
      rescue DeserializationError => e
        block_given? ? yield(e) : raise
      end
    end

    # @return [Array<String, nil>] frozen binary Strings; nil for messages without a key
    def keys = records.map(&:key)

    # @return [Array<Integer>]
    def offsets = records.map(&:offset)

    # @return [Array<Integer, nil>] ms since the epoch, nil for messages without a timestamp
    def timestamps = records.map(&:timestamp)

    # Says that these messages, and all before them, are processed. If the method raises later, or returns because of
    # {Processor#cancelled?}, only those behind come again. The batch drops its references to the {Message} objects, with what
    # their payloads were decoded to; to read one again makes it anew. Never blocks.
    # @param what [Message, Array<Message>, Integer] an Integer: so many, from the beginning
    # @return [Integer] how many messages of the batch are processed now
    def done(what)
      @done = [@done, count_to(what)].max
    end

    # @return [Integer] how many messages {#done} has named, with those before them
    def done_count = @done

    # @return [String]
    def inspect = "#<#{self.class} #{Text.count(size, "message")}>"

    private

    attr_reader :records

    # @return [Integer]
    def count_to(what)
      return count_of(what) if what.is_a?(Integer)

      last = what.is_a?(Array) ? what.last : what
      return 0 if last.nil?

      index = offsets.rindex(last.offset)
      index.nil? ? raise(ArgumentError, "the message with the offset #{last.offset} is not in the batch") : index + 1
    end

    def count_of(number)
      return number if number.between?(0, size)

      raise ArgumentError, "the batch has #{Text.count(size, "message")}, not #{number}"
    end
  end

  class App
    # Messages of slices. It makes the {Message} objects only when somebody asks for one, and keeps them until they are done.
    # @api private
    class SlicedBatch < RecordBatch
      # @param slices [Array<Slice>]
      def initialize(slices) # rubocop:disable Lint/MissingSuper -- it has no Array
        @parts = slices.map { |slice| [slice.run.batch, slice.first, slice.count] }
        @size = slices.sum(&:count)
        @done = 0
        @made = [] # by index
      end

      # @yieldparam record [Message]
      # @return [self, Enumerator]
      def each
        return to_enum(:each) { size } unless block_given?

        at = 0
        @parts.each do |batch, first, count|
          count.times { |i| yield @made[at + i] ||= batch[first + i] }
          at += count
        end
        self
      end

      # @param index [Integer, Range]
      # @return [Message, Array<Message>, nil]
      def [](index) = index.is_a?(Integer) && index.between?(0, size - 1) ? record_at(index) : to_a[index]

      # @return [Message, nil]
      def last = self[size - 1]

      # @param what [Message, Array<Message>, Integer]
      # @return [Integer]
      def done(what)
        before = @done
        super.tap { |count| @made.fill(nil, before, [count, @made.size].min - before) if @made.size > before }
      end

      def payloads = column(:payloads)
      def values(&) = column(:values, &)
      def keys = column(:keys)
      def offsets = column(:offsets)
      def timestamps = column(:timestamps)

      # @return [String]
      def inspect = super.sub(self.class.name, RecordBatch.name)

      private

      def record_at(index)
        @made[index] ||= begin
          at = index
          batch, first, count = @parts.find { |_, _, size| (at -= size).negative? }
          batch[first + at + count]
        end
      end

      def column(name, &)
        columns = @parts.map { |batch, first, count| batch.public_send(name, first, count, &) }
        columns.size == 1 ? columns.first : columns.flatten(1)
      end
    end
    private_constant :SlicedBatch
  end
end

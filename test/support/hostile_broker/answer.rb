# frozen_string_literal: true

class HostileBroker
  # The body of one response, field by field, in the order of the protocol. An attack replaces the bytes of one field, so each
  # field knows its name and type.
  class Answer
    Field = Struct.new(:name, :type, :bytes)

    INTEGERS = { int8: "c", int16: "s>", int32: "l>", int64: "q>", error: "s>" }.freeze

    # @return [String] the number in as few bytes as possible; the caller does the zigzag encoding
    def self.varint(number)
      bytes = []
      while number > 0x7f
        bytes << ((number & 0x7f) | 0x80)
        number >>= 7
      end
      (bytes << number).pack("C*")
    end

    attr_reader :fields

    # @param flexible [Boolean] compact strings and arrays, and tagged fields (KIP-482)
    def initialize(flexible: false)
      @flexible = flexible
      @fields = []
      @path = []
    end

    def flexible? = @flexible

    INTEGERS.each do |type, format|
      define_method(type) { |name, value = 0| add(name, type, [value].pack(format)) }
    end

    # @param value [String, nil]
    def string(name, value)
      add(name, string_type, self.class.string(value, flexible: @flexible))
    end

    # Kafka's BYTES; record batches are of this type, too.
    def bytes(name, value, type: :bytes)
      add(name, type, value ? [value.bytesize].pack("l>") + value : [-1].pack("l>"))
    end

    # @yield each item, which adds its fields
    def array(name, items)
      add(name, array_type, self.class.count(items.size, flexible: @flexible))
      items.each do |item|
        @path.push(name)
        yield item
        @path.pop
      end
    end

    # Only flexible answers have tags.
    def tags = @flexible && add(:tags, :tags, "\0")

    # @return [String] the body
    def to_s = fields.map(&:bytes).join

    # @param index [Integer] the field's index
    # @return [String] the body with these bytes in place of the field's
    def with(index, bytes)
      fields.each_with_index.map { |field, i| i == index ? bytes : field.bytes }.join
    end

    def self.string(value, flexible: false)
      return (value ? varint(value.bytesize + 1) + value.b : "\0".b) if flexible

      value ? [value.bytesize].pack("s>") + value.b : [-1].pack("s>")
    end

    def self.count(size, flexible: false) = flexible ? varint(size + 1) : [size].pack("l>")

    private

    def string_type = @flexible ? :compact_string : :string
    def array_type = @flexible ? :compact_array : :array

    def add(name, type, bytes)
      @fields << Field.new([*@path, name].join("."), type, bytes.b)
      nil
    end
  end
end

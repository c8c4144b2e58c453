# frozen_string_literal: true

module Penstock
  class Admin
    # Checks names and other texts that programs give. Kafka's protocol has 16 bits for the length of a text. librdkafka cuts off
    # what is above them, and brokers would read the rest of the text as other fields of the request.
    # @api private
    module Names
      LONGEST = 32_767 # bytes

      class << self
        # @return [Boolean] whether librdkafka sends it unchanged
        def text?(value) = value.is_a?(String) && value.bytesize <= LONGEST && Settings.text?(value)

        # @return [String] a frozen copy in UTF-8, which no other thread can change
        # @raise [ArgumentError] unless it is a name
        def of(what, name)
          unless name.is_a?(String) && !name.empty? && Settings.text?(name)
            raise ArgumentError, "#{what} must be a non-empty UTF-8 String without a zero byte, not #{shown(name)}"
          end
          raise ArgumentError, "#{what} must have at most #{LONGEST} bytes, not #{name.bytesize}" if name.bytesize > LONGEST

          -String.new(name, encoding: Encoding::UTF_8)
        end

        # @return [String] the same
        def topic(name)
          copy = of("the name of a topic", name)
          return copy if TopicName.valid?(copy)

          raise ArgumentError, "the name of a topic must be #{TopicName::FORM}, not #{shown(copy)}"
        end

        private

        def shown(name) = name.is_a?(String) && name.bytesize > 1000 ? "one of #{name.bytesize} bytes" : name.inspect
      end
    end
    private_constant :Names
  end
end

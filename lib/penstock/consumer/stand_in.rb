# frozen_string_literal: true

module Penstock
  # Extends a consumer that has a `config.client_class`: every method of Consumer that is written in C calls the method of the
  # same name of that client. So nothing reaches librdkafka, and all of Consumer's Ruby code is the real one's.
  # @api private
  module ConsumerStandIn
    # What is called before a consumer is extended.
    CONFIGURING = %i[call_configure].freeze

    # @return [Array<Symbol>] the methods in C
    def self.native_methods
      all = Consumer.public_instance_methods(false) + Consumer.private_instance_methods(false)
      all.select { |name| Consumer.instance_method(name).source_location.nil? } - CONFIGURING
    end

    # @param consumer [Consumer]
    def self.extend_object(consumer)
      consumer.__send__(:call_close, 0.0) # so that no call in C can ever connect
      consumer.instance_variable_set(:@client, consumer.config.client_class.new(consumer))
      (native_methods - instance_methods(false) - private_instance_methods(false)).each do |name|
        define_method(name) { |*given, **keywords| client.__send__(name, *given, **keywords) }
        private name if Consumer.private_method_defined?(name)
      end
      super
    end
  end
  private_constant :ConsumerStandIn
end

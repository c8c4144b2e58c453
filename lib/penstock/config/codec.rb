# frozen_string_literal: true

require "json"

module Penstock
  # What serializers and deserializers have in common: which objects may be given, and which method of them is called.
  # @api private
  module Codec
    # What `:json` stands for: documents that every JSON parser can read. It also stands in for Ruby's JSON module as a
    # deserializer, whose `load` would make objects of every class that a document names.
    module Documents
      def self.dump(object) = ::JSON.generate(object)
      def self.load(text) = ::JSON.parse(text)
    end

    class << self
      # @param given [Object] a setting's value
      # @param name [:dump, :load]
      # @return [Symbol, nil] the method that will be called: this one if the object has it, or `call`. One that takes something
      #   else, such as String#dump, does not count
      def method_of(given, name)
        object = resolved(given, name)
        [name, :call].find { |method| object.respond_to?(method) && [1, -1, -2].include?(object.method(method).arity) }
      end

      # @return [Object] the one that has the method
      def resolved(given, name)
        case given
        when :json then Documents
        else ::JSON.equal?(given) && name == :load ? Documents : given
        end
      end

      # @return [String] for messages
      def name_of(given) = given.is_a?(Symbol) ? given.inspect : Text.name_of(given)
    end
  end
end

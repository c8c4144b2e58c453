# frozen_string_literal: true

require_relative "signatures"
require "rbs/test"

# Makes calls, and compares their arguments, blocks and results with the signatures.
#
#     calls.on(producer).produce_sync(message) # => the report, after it was checked
class SignedCalls
  # A call that no signature permits, or with a result that the signature excludes.
  class Mismatch < StandardError; end

  # Passes each method call on, through {SignedCalls#call}.
  class Caller < BasicObject
    def initialize(calls, receiver)
      @calls = calls
      @receiver = receiver
    end

    def respond_to_missing?(*) = true

    def method_missing(name, *arguments, **keywords, &block) = @calls.call(@receiver, name, arguments, keywords, &block)
  end

  # @return [Array<String>] the methods that were called, such as "Penstock::Producer#purge"
  attr_reader :called

  # @param signatures [Signatures]
  def initialize(signatures)
    @signatures = signatures
    @called = []
  end

  # @param receiver [Object] of one of the signed classes, or one of them itself
  def on(receiver) = Caller.new(self, receiver)

  # Calls each method that needs no argument and no block. For objects that do nothing but answer.
  # @return [Object] the receiver
  def read(receiver, except: [])
    names = @signatures.methods_of(room_of(receiver.class), :instance).select { |_, method| reader?(method) }.keys
    (names - except).each { |name| call(receiver, name, [], {}) }
    call(receiver, :deconstruct_keys, [nil], {}) if names.include?(:to_h) && receiver.respond_to?(:deconstruct_keys)
    receiver
  end

  # @raise [Mismatch] when the call and the signature differ
  def call(receiver, name, arguments, keywords, &block)
    method = signature_of(receiver, name)
    block_calls = []
    result = receiver.public_send(name, *arguments, **keywords, &(block && recording(block, block_calls)))
    check(receiver, name, method, returned([*arguments, *([keywords] unless keywords.empty?)], result), block_calls, !block.nil?)
    result
  end

  private

  # A block is called with what the method yields, also where that is an Array.
  def recording(block, calls)
    proc do |*yielded|
      block.call(*yielded).tap { |value| calls << returned(yielded, value) }
    end
  end

  def returned(arguments, value) = RBS::Test::ArgumentsReturn.return(arguments:, value:)

  # @return [String] the name of the nearest class that has a signature
  def room_of(klass) = klass.ancestors.map(&:name).find { |name| name && @signatures.room?(name) }

  def signature_of(receiver, name)
    kind, mark, klass = receiver.is_a?(Module) ? [:singleton, ".", receiver] : [:instance, "#", receiver.class]
    room = room_of(klass)
    method = @signatures.methods_of(room, kind)[name] or raise Mismatch, "#{room}#{mark}#{name} has no signature"
    @called << "#{method.implemented_in.to_s.delete_prefix("::")}#{mark}#{name}"
    method
  end

  def reader?(method)
    method.defined_in.to_s.start_with?("::Penstock") && method.accessibility == :public &&
      method.method_types.any? { |type| permits_nothing?(type) }
  end

  def permits_nothing?(type)
    type.type.required_positionals.empty? && type.type.required_keywords.empty? && !type.block&.required
  end

  def type_check(receiver)
    self_class, instance_class = receiver.is_a?(Module) ? [receiver.singleton_class, receiver] : [receiver.class] * 2
    RBS::Test::TypeCheck.new(self_class:, instance_class:, class_class: Module, builder: @signatures.builder, sample_size: nil,
                             unchecked_classes: [])
  end

  def check(receiver, name, method, method_call, block_calls, block_given)
    trace = RBS::Test::CallTrace.new(method_name: name, method_call:, block_calls:, block_given:)
    errors = type_check(receiver).overloaded_call(method, "##{name}", trace, errors: [])
    return if errors.empty?

    raise Mismatch, "#{called.last}: #{errors.map { |error| RBS::Test::Errors.to_string(error) }.join("; ")} " \
                    "(#{method.method_types.join(" | ")}; returned #{method_call.return_value.inspect})"
  end
end

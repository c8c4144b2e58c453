# frozen_string_literal: true

# How a method may be called: how many positional arguments, which keywords, and whether with a block.
class CallShape
  # A parameter of this name is there to raise an error that helps; see Penstock::Keywords. It accepts nothing.
  REJECTING = { rest: :more, keyrest: :wrong }.freeze

  # `most`: nil: any number. `keywords`: nil: unknown. `others`: whether it accepts any other keywords. `block`: nil: unknown.
  Shape = Struct.new(:least, :most, :keywords, :required, :others, :block, keyword_init: true)

  # @param method [UnboundMethod]
  # @return [Shape]
  def self.of_code(method)
    body = RubyVM::InstructionSequence.of(method) or return of_native(method) # attr_writer has none either

    names = method.parameters.reject { |kind, name| REJECTING[kind] == name }.group_by(&:first)
                  .transform_values { |parameters| parameters.map { |parameter| parameter[1] } }
    names.default = [].freeze
    rest = names.key?(:rest)
    Shape.new(least: names[:req].size, most: rest ? nil : names[:req].size + names[:opt].size,
              keywords: (names[:key] + names[:keyreq]).sort, required: names[:keyreq].sort, others: names.key?(:keyrest),
              block: rest ? nil : names.key?(:block) || body.disasm.include?("invokeblock"))
  end

  # @param types [Array<RBS::MethodType>] overloads
  # @return [Shape] of calls that at least one of them permits
  def self.of_signature(types)
    functions = types.map(&:type)
    most = functions.map { |type| positional(type) + type.optional_positionals.size unless type.rest_positionals }
    Shape.new(least: functions.map { |type| positional(type) }.min, most: most.include?(nil) ? nil : most.max,
              keywords: functions.flat_map { |type| type.required_keywords.keys + type.optional_keywords.keys }.uniq.sort,
              required: functions.map { |type| type.required_keywords.keys }.reduce(:&).sort,
              others: functions.any?(&:rest_keywords), block: types.any?(&:block))
  end

  def self.positional(type) = type.required_positionals.size + type.trailing_positionals.size

  # C tells the number of arguments only, and of optional ones nothing.
  def self.of_native(method)
    arity = method.arity
    return Shape.new(least: arity, most: arity, keywords: [], required: [], others: false) unless arity.negative?

    Shape.new(least: -arity - 1)
  end

  private_class_method :positional, :of_native

  # @param code [Shape]
  # @param signature [Shape]
  # @param checked [Array<Symbol>] keywords that the code requires although they have a default
  # @return [Array<String>] how they differ
  def self.differences(code, signature, checked: [])
    return [] if code.keywords.nil? && signature.least >= code.least

    [positional_difference(code, signature), keyword_difference(code, signature),
     required_difference(code, signature, checked), block_difference(code, signature)].compact
  end

  class << self
    private

    def positional_difference(code, signature)
      return if signature.least == code.least && signature.most == code.most
      return if code.most.nil? && signature.least >= code.least

      "positional arguments: #{[code.least, code.most].inspect}, signature: #{[signature.least, signature.most].inspect}"
    end

    def keyword_difference(code, signature)
      return if code.others && (code.keywords - signature.keywords).empty?
      return if code.keywords == signature.keywords && !signature.others

      "keywords: #{code.keywords.inspect}, signature: #{signature.keywords.inspect}"
    end

    def required_difference(code, signature, checked)
      required = code.others ? signature.required : (code.required + checked).uniq.sort
      "required keywords: #{required.inspect}, signature: #{signature.required.inspect}" if required != signature.required
    end

    def block_difference(code, signature)
      return if code.block.nil? || code.block == signature.block

      "a block: #{code.block}, signature: #{signature.block}"
    end
  end
end

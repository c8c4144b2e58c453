# frozen_string_literal: true

# What programs may use: the constants of Penstock that are neither private nor marked @api private, and the public methods
# that Penstock's own classes and modules define.
module PublicApi
  # A Struct's own methods; the signature of Struct has them.
  OF_STRUCT = %i[new [] inspect members keyword_init?].freeze
  ABOVE = /\A\s*#/
  private_constant :OF_STRUCT, :ABOVE

  # @return [Hash{String => Object}] by full name
  def self.constants(room = Penstock)
    room.constants(false).sort.each_with_object({}) do |name, found|
      value = room.const_get(name, false)
      next if marked?(*room.const_source_location(name))

      found["#{room}::#{name}"] = value
      found.update(constants(value)) if room?("#{room}::#{name}", value)
    end
  end

  # @return [Boolean] whether this is the name of the class or module itself, and not a second name
  def self.room?(name, value) = value.is_a?(Module) && value.name == name

  # @param kind [:instance, :singleton]
  # @return [Hash{Symbol => UnboundMethod}] also of Penstock's modules and superclasses; `initialize` too
  def self.methods_of(room, kind)
    owner = kind == :instance ? room : room.singleton_class
    names = owner.public_instance_methods
    names += [:initialize] if kind == :instance && room.is_a?(Class)
    names -= OF_STRUCT if kind == :singleton && room.is_a?(Class) && room < Struct
    names.map { |name| [name, owner.instance_method(name)] }.select { |_, method| ours?(method.owner) }.to_h
  end

  def self.ours?(owner) = owner.inspect.match?(/\A(#<Class:)?Penstock\b/)

  # @param file [String, false, nil] of a definition; none: it is in C
  def self.marked?(file, line)
    return false unless file && line.positive?

    @lines ||= Hash.new { |lines, path| lines[path] = File.readlines(path) }
    @lines[file].first(line - 1).reverse.take_while { |text| text.match?(ABOVE) }.any? { |text| text.include?("@api private") }
  end
  private_class_method :ours?, :marked?
end

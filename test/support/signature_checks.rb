# frozen_string_literal: true

require "rbs/test"
require_relative "call_shape"
require_relative "public_api"
require_relative "signatures"

# Compares signatures with the code that is loaded. Each check returns what differs, as lines.
class SignatureChecks
  # Keywords that have a default, so that the error for a call without them can show how to call.
  CHECKED_KEYWORDS = { "Penstock::Message.new" => [:topic], "Penstock::EmbeddedCluster#set_round_trip_time" => [:seconds] }.freeze

  MARKS = { instance: "#", singleton: "." }.freeze

  def initialize(signatures)
    @signatures = signatures
  end

  # @return [Array<String>] all findings; of invalid signatures, only why they are invalid
  def call
    problems = @signatures.problems
    problems.empty? ? constants + ancestors + methods_of_the_code + methods_of_the_signatures : problems
  end

  # @return [Array<String>]
  def constants
    public_constants = PublicApi.constants
    missing = public_constants.filter_map do |name, value|
      signed = PublicApi.room?(name, value) ? @signatures.room?(name) : @signatures.constants.key?(name)
      "#{name} has no signature" unless signed
    end
    gone = [*@signatures.rooms, *@signatures.constants.keys].reject { |name| defined_here?(name) }
    missing + gone.map { |name| "#{name} does not exist" } + constants_of_other_types
  end

  # @return [Array<String>]
  def ancestors
    rooms.flat_map do |name, room|
      above = room.is_a?(Class) ? room.superclass : nil
      { "superclass" => [above&.name, @signatures.superclass_of(name)],
        "included modules" => [own_modules(room, above), @signatures.included_in(name)],
        "extending modules" => [own_modules(room.singleton_class, above ? above.singleton_class : Module),
                                @signatures.extending(name)] }.filter_map do |what, (code, signature)|
        "#{name}: #{what} #{code.inspect}, signature: #{signature.inspect}" if code != signature
      end
    end
  end

  # @return [Array<String>] public methods without a signature, or with one for other calls
  def methods_of_the_code
    public_rooms.flat_map do |name, room|
      MARKS.keys.flat_map do |kind|
        PublicApi.methods_of(room, kind).flat_map { |method, code| differences(name, kind, method, code) }
      end
    end.uniq
  end

  # @return [Array<String>] signatures without a public method
  def methods_of_the_signatures
    rooms.flat_map do |name, room|
      MARKS.flat_map do |kind, mark|
        owner = kind == :instance ? room : room.singleton_class
        gone = @signatures.own_methods(name, kind).reject do |method|
          owner.public_method_defined?(method) || (method == :initialize && room.is_a?(Class))
        end
        gone.map { |method| "#{name}#{mark}#{method} does not exist" }
      end
    end
  end

  private

  # @return [Hash{String => Module}] private ones too
  def rooms = @rooms ||= @signatures.rooms.select { |name| defined_here?(name) }.to_h { |name| [name, value_of(name)] }

  def public_rooms
    @public_rooms ||= { "Penstock" => Penstock, **PublicApi.constants.select { |name, value| PublicApi.room?(name, value) } }
                      .select { |name, _| @signatures.room?(name) }
  end

  # Also of a private constant.
  def value_of(name) = name.split("::").drop(1).reduce(Penstock) { |room, part| room.const_get(part, false) }

  def defined_here?(name)
    value_of(name)
    true
  rescue NameError
    false
  end

  def constants_of_other_types
    check = RBS::Test::TypeCheck.new(self_class: Object, builder: @signatures.builder, sample_size: nil, unchecked_classes: [],
                                     instance_class: Object, class_class: Module)
    @signatures.constants.filter_map do |name, type|
      "#{name} is no #{type}" if defined_here?(name) && !check.value(value_of(name), type)
    end
  end

  def own_modules(room, above)
    direct = room.included_modules - (above ? above.included_modules : [])
    direct.reject { |one| direct.any? { |other| other != one && other.include?(one) } }.map(&:name).sort
  end

  def differences(name, kind, method, code)
    label = "#{name}#{MARKS.fetch(kind)}#{method}"
    signature = @signatures.methods_of(name, kind)[method] or return "#{label} has no signature"
    return "#{label} is private, according to its signature" if signature.accessibility == :private && method != :initialize

    CallShape.differences(CallShape.of_code(code), CallShape.of_signature(signature.method_types),
                          checked: CHECKED_KEYWORDS.fetch(label, [])).map { |difference| "#{label}: #{difference}" }
  end
end

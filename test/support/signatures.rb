# frozen_string_literal: true

require "fileutils"
require "pathname"
require "rbs"
require "tmpdir"

# The signatures of a directory such as sig/, together with those of Ruby's core. Names are full names, such as
# "Penstock::Producer". Works with RBS 2.7 and newer.
class Signatures
  DIRECTORY = File.expand_path("../../sig", __dir__)

  # For tests of the checks.
  # @param changes [Array<Array(String, String, String)>] a file of sig/penstock, a text of it, and another text in its place
  # @yieldparam directory [String] sig/ with these changes
  def self.changed(changes)
    Dir.mktmpdir do |directory|
      FileUtils.cp_r(File.join(DIRECTORY, "."), directory)
      changes.each do |file, text, other|
        path = File.join(directory, "penstock", "#{file}.rbs")
        before = File.read(path)
        before.include?(text) or raise ArgumentError, "#{path} does not contain #{text.inspect}"
        File.write(path, before.sub(text) { other })
      end
      yield directory
    end
  end

  # @yieldparam signatures [Signatures]
  def self.with_changes(changes) = changed(changes) { |directory| yield new(directory) }

  # @return [RBS::Environment, RBS::DefinitionBuilder]
  attr_reader :env, :builder

  # @raise [RBS::BaseError] when a file cannot be parsed, or declares a name twice
  def initialize(directory = DIRECTORY)
    loader = RBS::EnvironmentLoader.new
    loader.add(path: Pathname(directory))
    @env = RBS::Environment.from_loader(loader).resolve_type_names
    @builder = RBS::DefinitionBuilder.new(env: @env)
    @constants = ours(@env.constant_decls)
    @rooms = ours(@env.class_decls)
    @types = {}
    @definitions = {}
  end

  # @return [Array<String>] the classes and modules
  def rooms = @rooms.keys

  # @return [Hash{String => Object}] the types of all other constants
  def constants = @constants.transform_values { |entry| entry.decl.type }

  def room?(name) = @rooms.key?(name)

  # @param kind [:instance, :singleton]
  # @return [Hash{Symbol => RBS::Definition::Method}] with inherited methods
  def methods_of(name, kind)
    @definitions[[name, kind]] ||= builder.public_send(:"build_#{kind}", type_name(name)).methods
  end

  # @return [Array<Symbol>] those that the signature of this class declares itself
  def own_methods(name, kind)
    own = type_name(name)
    methods_of(name, kind).select { |_, method| [method.implemented_in, method.defined_in].all?(own) }.keys
  end

  # @return [String, nil] the superclass; nil for a module
  def superclass_of(name) = plain(builder.ancestor_builder.one_instance_ancestors(type_name(name)).super_class&.name)

  # @return [Array<String>]
  def included_in(name)
    names_of(builder.ancestor_builder.one_instance_ancestors(type_name(name)).included_modules)
  end

  # @return [Array<String>]
  def extending(name)
    names_of(builder.ancestor_builder.one_singleton_ancestors(type_name(name)).extended_modules)
  end

  # @return [Array<String>] problems: types that do not exist, contradictory declarations
  def problems
    aliases = @env.respond_to?(:type_alias_decls) ? @env.type_alias_decls : @env.alias_decls # its name before RBS 3
    parts = rooms.map { |name| -> { types_of_methods(name) } }
    parts += ours(@env.interface_decls).each_value.map { |entry| -> { types_in(builder.build_interface(entry.name).methods) } }
    parts += [*constants.values, *ours(aliases).values.map { |entry| entry.decl.type }].map { |type| -> { [type] } }
    parts.filter_map { |part| problem_of(&part) }.uniq
  end

  private

  def names_of(ancestors) = ancestors.map { |ancestor| plain(ancestor.name) }.sort

  def ours(declarations)
    declarations.select { |name, _| name.to_s.match?(/\A::Penstock(::|\z)/) }.transform_keys { |name| plain(name) }
  end

  def plain(name) = name&.to_s&.delete_prefix("::")

  def type_name(name) = @types[name] ||= @env.class_decls.keys.find { |known| known.to_s == "::#{name}" }

  def types_of_methods(name) = %i[instance singleton].flat_map { |kind| types_in(methods_of(name, kind)) }

  def types_in(methods)
    methods.each_value.select { |method| method.defined_in.to_s.start_with?("::Penstock") }
           .flat_map { |method| method.method_types.flat_map { |type| type.each_type.to_a } }
  end

  def problem_of
    yield.each { |type| builder.validate_type_presence(type) }
    nil
  rescue RBS::BaseError => e
    e.message
  end
end

# frozen_string_literal: true

require "ripper"

# The constants that Ruby files define and use, found without running them. A use belongs to the definition that Ruby would find
# through the modules around it; constants of superclasses and included modules are not looked for.
class RoomConstants
  # @param sources [Hash{String => String}] the text of each file
  def initialize(sources)
    @defined = Hash.new { |all, path| all[path] = [] } # which files define it
    @used = Hash.new { |all, file| all[file] = [] } # [modules around the use, path] of each
    sources.each { |file, source| walk(Ripper.sexp(source) || raise("#{file} cannot be parsed"), file, []) }
  end

  # @return [Hash{String => Array<String>}] the constants that each file uses, by their full names
  def used = @used.transform_values { |uses| uses.filter_map { |around, path| resolve(around, path) }.uniq }

  # @return [Array<String>] the files that define it
  def files_of(name) = @defined.fetch(name).uniq

  private

  def resolve(around, path)
    absolute = path.first.empty?
    candidates = absolute ? [path.drop(1)] : around.size.downto(0).map { |size| around.first(size) + path }
    candidates.each do |names|
      own = names.size - path.size + (absolute ? 1 : 0)
      next unless @defined.key?(names.first(own + 1).join("::"))

      return names.size.downto(1).map { |size| names.first(size).join("::") }.find { |name| @defined.key?(name) }
    end
    nil
  end

  def walk(node, file, around)
    return unless node.is_a?(Array)

    case node.first
    when :module, :class then walk_module(node, file, around)
    when :assign then walk_assignment(node, file, around)
    when :var_ref, :const_path_ref, :top_const_ref then walk_use(node, file, around)
    else node.each { |child| walk(child, file, around) }
    end
  end

  def walk_module((type, name, *rest), file, around)
    inner = full(around, path_of(name))
    @defined[inner.join("::")] << file
    walk(name[1], file, around) if name.first == :const_path_ref
    walk(rest.shift, file, around) if type == :class # the superclass
    rest.each { |child| walk(child, file, inner) }
  end

  def walk_assignment((_, target, value), file, around)
    path = path_of(target)
    path ? @defined[full(around, path).join("::")] << file : walk(target, file, around)
    walk(value, file, around)
  end

  def walk_use(node, file, around)
    path = path_of(node)
    path ? @used[file] << [around, path] : node.drop(1).each { |child| walk(child, file, around) }
  end

  def full(around, path) = path.first.empty? ? path.drop(1) : around + path

  # @return [Array<String>, nil] the names of a constant; the first one is empty if it begins with "::". nil: it is no constant
  def path_of(node)
    case node.first
    when :@const then [node[1]]
    when :const_ref, :var_ref, :var_field then path_of(node[1])
    when :top_const_ref, :top_const_field then ["", *path_of(node[1])]
    when :const_path_ref, :const_path_field
      parent = path_of(node[1])
      parent && [*parent, *path_of(node[2])]
    end
  end
end

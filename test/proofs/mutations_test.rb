# frozen_string_literal: true

require_relative "../test_helper"
require_relative "mutations"

# Whether the tests fail without the protections takes too long for here: rake test:mutations.
class MutationsTest < PenstockTest
  def test_each_mutation_finds_its_tag_and_changes_the_line
    Mutation.all.each do |mutation|
      refute_equal File.read(File.join(Mutation::ROOT, mutation.file)), mutation.mutated, mutation.name
    end
  end

  def test_each_tag_occurs_once_and_has_a_mutation
    assert_empty Tags.all.keys - Mutation.all.map(&:tag), "tags that no mutation names"
    assert_empty(Tags.all.select { |_, places| places.size > 1 })
  end

  def test_each_mutation_names_a_test_that_exists
    Mutation.all.group_by(&:test).each do |file, mutations|
      assert_path_exists File.join(Mutation::ROOT, file), mutations.first.name
    end
  end
end

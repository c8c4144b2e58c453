# frozen_string_literal: true

require_relative "../test_helper"
require_relative "mutations"

# Whether the tests fail without the protections takes too long for here: rake test:mutations.
class MutationsTest < PenstockTest
  def test_every_protection_that_can_be_taken_out_is_there
    refute_empty Mutation.all
    Mutation.all.each { |mutation| refute_empty mutation.mutated }
  end
end

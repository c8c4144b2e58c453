# frozen_string_literal: true

module Penstock
  # For classes whose objects are of no use before their initialize has run: a subclass whose own does not call super is told
  # so where it is made, and not by a NoMethodError somewhere else. Such a class has a private method `initialized?`.
  # @api private
  module RequiresSuper
    # @raise [TypeError] a subclass's initialize did not call super
    def new(...)
      made = super
      return made if made.__send__(:initialized?)

      ours = instance_method(:initialized?).owner
      raise TypeError, "#{self}: initialize of #{ours} was not called; initialize of a subclass has to call super"
    end

    # @raise [TypeError]
    def allocate = raise TypeError, "a #{self} is made by new, which calls initialize"
  end
end

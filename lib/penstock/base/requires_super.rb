# frozen_string_literal: true

module Penstock
  # For classes whose objects are unusable before their initialize has run. If the initialize of a subclass does not call
  # super, `new` raises, instead of a NoMethodError in a later call. Such a class has a private method `initialized?`.
  # @api private
  module RequiresSuper
    # @raise [TypeError] when the initialize of a subclass did not call super
    def new(...)
      made = super
      owner = ancestors.reverse_each.find { |one| one.is_a?(RequiresSuper) }
      # A subclass may have a method of this name.
      return made if owner.instance_method(:initialized?).bind_call(made)

      raise TypeError, "#{self}: initialize of #{owner} was not called; initialize of a subclass must call super"
    end

    # @raise [TypeError] always
    def allocate = raise TypeError, "a #{self} must be made by new, which calls initialize"
  end
end

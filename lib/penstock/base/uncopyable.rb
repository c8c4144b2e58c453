# frozen_string_literal: true

module Penstock
  # For classes whose objects have what there is once: connections, locks, threads. A copy would share them, and neither would
  # know of the other.
  # @api private
  module Uncopyable
    private

    # @raise [TypeError]
    def initialize_copy(_other)
      raise TypeError, "a #{self.class} cannot be copied: the copy would share its connections and locks; make another by new"
    end

    # @raise [TypeError]
    def marshal_dump
      raise TypeError, "a #{self.class} cannot be dumped: its connections and locks belong to this process"
    end
  end
end

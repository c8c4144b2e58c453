# frozen_string_literal: true

module Penstock
  # For classes whose objects own connections, locks and threads. A copy would share them without coordination.
  # @api private
  module Uncopyable
    private

    # @raise [TypeError] always
    def initialize_copy(_other)
      raise TypeError, "a #{self.class} cannot be copied: the copy would share its connections and locks; make another with new"
    end

    # @raise [TypeError] always
    def marshal_dump
      raise TypeError, "a #{self.class} cannot be dumped: its connections and locks belong to this process"
    end
  end
end

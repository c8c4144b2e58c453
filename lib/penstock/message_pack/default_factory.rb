# frozen_string_literal: true

module Penstock
  module MessagePack
    # The same for the whole process, and shareable. Nothing can be registered with it: make a {Factory} for that.
    DefaultFactory = Ractor.make_shareable(Factory.new)
  end
end

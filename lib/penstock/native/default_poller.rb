# frozen_string_literal: true

module Penstock
  class Poller
    DEFAULT = new.freeze
    private_constant :DEFAULT
  end
end

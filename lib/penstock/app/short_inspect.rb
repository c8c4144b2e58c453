# frozen_string_literal: true

module Penstock
  class App
    # For objects from which the settings can be reached, and with them passwords: Ruby prints what an object has in its own
    # errors' messages.
    # @api private
    module ShortInspect
      # @return [String]
      def inspect = "#<#{self.class}>"
      alias to_s inspect
    end
    private_constant :ShortInspect
  end
end

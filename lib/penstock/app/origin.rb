# frozen_string_literal: true

module Penstock
  class App
    # Where a program has set something, for `penstock routes`.
    # @api private
    module Origin
      OWN = File.expand_path("../..", __dir__)
      private_constant :OWN

      # @return [String, nil] the file and line of the program that calls Penstock
      def self.here
        found = caller_locations.find { |location| !location.absolute_path.to_s.start_with?(OWN) } or return
        path = found.absolute_path || found.path
        "#{path.delete_prefix("#{Dir.pwd}/")}:#{found.lineno}"
      end

      # The part of {Builder} that notes where its settings come from.
      module OfSettings
        NAMES = %i[kafka producer_kafka threads commit_interval drain_timeout shutdown_timeout stall_after probe memory logger
                   monitor producer].freeze
        NAMES.each do |name|
          define_method(:"#{name}=") do |value|
            (@origins ||= {})[name] = Origin.here
            super(value)
          end
        end
      end
    end
    private_constant :Origin
  end
end

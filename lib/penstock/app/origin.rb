# frozen_string_literal: true

module Penstock
  class App
    # Where a program has set something, for `penstock routes`.
    # @api private
    module Origin
      OWN = File.expand_path("../..", __dir__).freeze
      private_constant :OWN

      # @return [String, nil] the file and line of the program that calls Penstock
      def self.here
        found = caller_locations.find { |location| !location.absolute_path.to_s.start_with?(OWN) } or return
        path = found.absolute_path || found.path
        "#{path.delete_prefix("#{Dir.pwd}/")}:#{found.lineno}"
      end

      # Makes the settings of {Builder} note where they come from.
      # @param builder [Class]
      # @param names [Array<Symbol>]
      def self.note(builder, names)
        names.each do |name|
          writer = builder.instance_method(:"#{name}=")
          builder.remove_method(:"#{name}=")
          builder.define_method(:"#{name}=") do |value|
            (@origins ||= {})[name] = Origin.here
            writer.bind_call(self, value)
          end
        end
      end
    end
    private_constant :Origin
  end
end

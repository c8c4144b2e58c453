# frozen_string_literal: true

module Penstock
  module CLI
    # The options that name a cluster: --bootstrap, --config and -X. The last two are librdkafka's settings.
    # Never repeats a value: it may be a password.
    # @api private
    class KafkaOptions
      # Nothing else is repeated as a name: of "sasl.password:c2VjcmV0==" the part before the "=" is no name.
      NAME = /\A[a-zA-Z][\w.-]*\z/
      private_constant :NAME

      def initialize
        @bootstrap = nil
        @from_files = {}
        @given = {}
      end

      # @param parser [OptionParser]
      def define(parser)
        parser.on("-b", "--bootstrap HOST:PORT[,...]", "the cluster") do |servers|
          raise UsageError, "--bootstrap is empty: name the cluster, as HOST:PORT" if servers.delete(", ").empty?

          @bootstrap = servers
        end
        parser.on("--config FILE", "settings of librdkafka, such as security.protocol: lines of NAME=VALUE") do |file|
          @from_files.merge!(read(file))
        end
        parser.on("-X NAME=VALUE", "one such setting; put secrets into a file,",
                  "because other users can see command lines") do |text|
          @given.store(*pair(text, "-X"))
        end
      end

      # @return [Array<String>] HOST:PORT; none when no cluster was named
      def servers = (@bootstrap || merged[:"bootstrap.servers"]).to_s.split(",").map(&:strip).reject(&:empty?)

      # @return [Hash{Symbol => String}] without the servers
      def settings = merged.except(:"bootstrap.servers")

      private

      def merged = @from_files.merge(@given)

      def read(file)
        lines = File.readlines(file, chomp: true, encoding: "UTF-8").map(&:strip)
        lines.each_with_index.reject { |line, _| line.empty? || line.start_with?("#", ";") }
             .to_h { |line, i| pair(line, "--config, line #{i + 1}") }
      rescue SystemCallError => e
        raise UsageError, "--config: #{SystemCallError.new(e.errno).message}" # without the file's name: it may be a setting
      rescue ArgumentError
        raise UsageError, "--config: the file is not valid UTF-8"
      end

      def pair(text, where)
        name, value = text.split("=", 2).map(&:strip)
        raise UsageError, "#{where}: expected NAME=VALUE" unless value && name.match?(NAME) # M:doctor_repeats_no_value

        name = "bootstrap.servers" if name == "metadata.broker.list"
        [name.to_sym, value]
      end
    end
  end
end

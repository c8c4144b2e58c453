# frozen_string_literal: true

module Penstock
  module Doctor
    # librdkafka, and its features.
    # @api private
    class Library
      CODECS = %w[gzip snappy lz4 zstd].freeze
      MECHANISMS = { "PLAIN" => "sasl_plain", "SCRAM-SHA-256, SCRAM-SHA-512" => "sasl_scram", "GSSAPI" => "sasl_gssapi",
                     "OAUTHBEARER" => "sasl_oauthbearer" }.freeze
      SCRAM_MENDED = "2.6.1"
      STICKY_MENDED = "2.3.0"
      private_constant :CODECS, :MECHANISMS, :SCRAM_MENDED, :STICKY_MENDED

      # @param objects [SharedObjects]
      def initialize(objects, linked: Penstock.librdkafka_version, compiled: Penstock.librdkafka_compiled_version,
                     features: Native::ProducerClient.features)
        @objects = objects
        @linked = linked
        @compiled = compiled
        @features = features
      end

      # @return [Array<Fact>]
      def facts = [penstock, version, features, tls, sasl, codecs, assignors]

      private

      def penstock = Fact.ok("penstock", VERSION)

      def version
        file = @objects.named(/\Alibrdkafka\.so/).first
        text = "#{@linked}#{", #{file}" if file}; compiled against #{@compiled}"
        return Fact.ok("librdkafka", text) if number(@linked) >= number(@compiled)

        Fact.problem("librdkafka", "#{text}: the loaded library is older than the one that Penstock was compiled against",
                     "Compile Penstock again (gem pristine penstock), or install the newer librdkafka here.")
      end

      def number(text) = Gem::Version.new(text[/\d+(\.\d+)*/])

      def features = Fact.ok("features", @features.join(" "))

      def tls
        @features.include?("ssl") ? Fact.ok("tls", openssl) : Fact.note("tls", "librdkafka was built without it")
      end

      def openssl
        files = @objects.named(/\Alibssl/)
        files.empty? ? "yes" : "yes, with #{files.join(", ")}"
      end

      def sasl
        mechanisms = MECHANISMS.select { |_, feature| @features.include?(feature) }.keys
        return Fact.note("sasl", "librdkafka was built without it") if mechanisms.empty?

        mended = number(@linked) >= Gem::Version.new(SCRAM_MENDED)
        return Fact.ok("sasl", mechanisms.join(", ")) if mended || !@features.include?("sasl_scram")

        Fact.note("sasl", "#{mechanisms.join(", ")}; " \
                          "brokers of 2024 and newer reject SCRAM of librdkafka older than #{SCRAM_MENDED}")
      end

      def assignors
        return Fact.ok("assignors", "range roundrobin cooperative-sticky") if number(@linked) >= Gem::Version.new(STICKY_MENDED)

        Fact.note("assignors", "range roundrobin cooperative-sticky; with librdkafka older than #{STICKY_MENDED} a consumer " \
                               "that joins with cooperative-sticky waits for its assignment before it closes")
      end

      def codecs
        missing = CODECS - @features
        text = "none #{(CODECS & @features).join(" ")}".strip
        missing.empty? ? Fact.ok("compression", text) : Fact.note("compression", "#{text}; built without #{missing.join(" ")}")
      end
    end
  end
end

# frozen_string_literal: true

module Penstock
  # Finds errors in librdkafka's settings that librdkafka itself would find only when it connects, or never: settings that
  # contradict each other, that have no effect, or that need a feature this librdkafka was built without.
  # @api private
  class KafkaChecks
    include KafkaWarnings
    include KafkaTokenChecks

    # Pairs of which the first must not be above the second, where the user has set the first or both.
    ORDERED = [
      [%i[linger.ms queue.buffering.max.ms], %i[message.timeout.ms delivery.timeout.ms],
       "messages would time out before they are sent"],
      [%i[request.timeout.ms], %i[message.timeout.ms delivery.timeout.ms],
       "messages would time out before a broker has to answer"],
      [%i[retry.backoff.ms], %i[retry.backoff.max.ms], "the first pause would be longer than the longest"],
      [%i[reconnect.backoff.ms], %i[reconnect.backoff.max.ms], "the first pause would be longer than the longest"],
      [%i[heartbeat.interval.ms], %i[session.timeout.ms], "the group would remove the consumer between two heartbeats"],
      [%i[session.timeout.ms], %i[max.poll.interval.ms], "librdkafka requires it"]
    ].freeze
    Ractor.make_shareable(ORDERED) # M:constants_shareable

    # The feature of librdkafka that a value requires.
    FEATURES = {
      "PLAIN" => "sasl_plain", "SCRAM-SHA-256" => "sasl_scram", "SCRAM-SHA-512" => "sasl_scram", "GSSAPI" => "sasl_gssapi",
      "OAUTHBEARER" => "sasl_oauthbearer", "gzip" => "gzip", "snappy" => "snappy", "lz4" => "lz4", "zstd" => "zstd"
    }.freeze

    SYNONYMS = { "sasl.mechanism": :"sasl.mechanisms", "compression.codec": :"compression.type" }.freeze
    PASSWORDS = /\A(PLAIN|SCRAM-SHA-(256|512))\z/
    NO_TLS_NEEDED = %i[ssl.endpoint.identification.algorithm].freeze
    # Compared by the value that librdkafka reads, because they can be spelled in several ways.
    READ = %i[
      security.protocol ssl.endpoint.identification.algorithm enable.ssl.certificate.verification sasl.oauthbearer.method
      enable.sasl.oauthbearer.unsecure.jwt compression.codec compression.type
    ].freeze
    FILES = %i[
      ssl.ca.location ssl.certificate.location ssl.key.location ssl.keystore.location ssl.crl.location https.ca.location
      sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    ].freeze
    PEMS = %i[ssl.ca.pem ssl.certificate.pem ssl.key.pem https.ca.pem sasl.oauthbearer.assertion.private.key.pem].freeze
    COOPERATIVE = "cooperative-sticky"
    ASSIGNORS = ["range", "roundrobin", COOPERATIVE].freeze
    private_constant :COOPERATIVE, :ASSIGNORS, :ORDERED, :FEATURES, :SYNONYMS, :PASSWORDS, :NO_TLS_NEEDED, :READ, :FILES, :PEMS

    # @param given [Hash{Symbol => Object}] what the user has set
    # @param effective [Hash{Symbol => Object}] that, and the defaults of Penstock
    # @param role [:producer, :consumer, :admin]
    # @param token_provider [Object, nil]
    # @param features [Array<String>] what librdkafka was built with
    def initialize(given, effective, role:, token_provider: nil, features: Native::ProducerClient.features)
      @given = given
      @effective = effective
      @role = role
      @token_provider = token_provider
      @features = features
    end

    # @raise [ConfigurationInvalidError] when a setting is certainly wrong; the message names the first
    # @return [Array<String>] warnings: settings that work, but probably not as intended
    def call
      check_aliases
      check_names
      check_client_id
      return [] if READ.any? { |name| @effective.key?(name) && read(name).nil? } # librdkafka rejects it and says why

      check_order
      check_tls
      check_login
      check_files
      check_features
      check_assignment
      warnings
    end

    private

    def raise_invalid(sentence)
      raise ErrorFactory.build(ConfigurationInvalidError, "config.kafka: #{sentence}")
    end

    def value(name)
      given = [name, *SYNONYMS[name]].find { |candidate| !@effective[candidate].nil? } or return
      READ.include?(given) ? read(given) : @effective[given].to_s
    end

    def read(name) = Settings.read(name, @effective[name])

    def given?(name) = [name, *SYNONYMS[name]].any? { |candidate| @given.key?(candidate) }
    def protocol = value(:"security.protocol") || "plaintext"
    def tls? = protocol.end_with?("ssl")
    def login? = protocol.start_with?("sasl")
    def mechanism = (value(:"sasl.mechanism") || "GSSAPI").upcase
    def true?(name) = value(name) == "true"

    # ---- names ----

    # librdkafka would use the later one.
    def check_aliases
      twins = Settings.twins(@given.keys) or return
      raise_invalid "#{twins.join(" and ")} are two names of one setting: set only one of them"
    end

    # First, so that an unknown name is not reported as having no effect.
    def check_names
      unknown = (@given.keys.map(&:to_s) - Native::ProducerClient.setting_names).find { |name| name.start_with?("ssl.", "sasl.") }
      Settings.raise_invalid_setting(unknown) if unknown
    end

    # librdkafka writes it into the JSON of its statistics as it is.
    def check_client_id
      return unless @given[:"client.id"].to_s.match?(/["\\\x00-\x1F]/)

      raise_invalid "client.id must not contain quotes, backslashes or control characters: " \
                    "librdkafka's statistics would not be valid JSON"
    end

    # ---- times ----

    def check_order
      ORDERED.each do |lesser, greater, why|
        lesser = lesser.find { |name| @given.key?(name) }
        greater = greater.find { |name| @given.key?(name) }
        next unless lesser && greater

        next unless above?(*@given.values_at(lesser, greater))

        raise_invalid "#{lesser} (#{@given[lesser]}) must not be above #{greater} (#{@given[greater]}): #{why}"
      end
    end

    # librdkafka itself rejects a value that is no number. 0 means no limit.
    def above?(*values)
      lesser, greater = values.map { |value| Rational(value.to_s, exception: false) }
      lesser && greater && !greater.zero? && lesser > greater
    end

    # ---- TLS and SASL ----

    def check_tls
      check_keystore
      useless = @given.keys.find { |name| name.start_with?("ssl.") && !NO_TLS_NEEDED.include?(name) } unless tls?
      raise_invalid "#{useless} has no effect without TLS: set security.protocol to \"ssl\" or \"sasl_ssl\"" if useless
      %i[certificate key].permutation do |one, other|
        next unless either?(:"ssl.#{one}") && !either?(:"ssl.#{other}") && !@given.key?(:"ssl.keystore.location")

        raise_invalid "a client certificate requires ssl.certificate.location (or .pem) and ssl.key.location (or .pem); " \
               "the #{other} is missing"
      end
    end

    def check_keystore
      return unless @given.key?(:"ssl.keystore.location") && !@given.key?(:"ssl.keystore.password")

      raise_invalid "ssl.keystore.location requires ssl.keystore.password"
    end

    def either?(stem) = @given.key?(:"#{stem}.location") || @given.key?(:"#{stem}.pem")

    def check_login
      return check_no_login unless login?

      if given?(:"sasl.username") && !given?(:"sasl.mechanism")
        raise_invalid "sasl.mechanism is missing: librdkafka would use GSSAPI (Kerberos), which does not use sasl.username"
      end
      check_mechanism
      check_password if PASSWORDS.match?(mechanism)
      mechanism == "OAUTHBEARER" ? check_token : raise_invalid_provider
    end

    def check_no_login
      useless = @given.keys.find { |name| name.start_with?("sasl.") }
      if useless
        raise_invalid "#{useless} has no effect without SASL: set security.protocol to \"sasl_ssl\" or \"sasl_plaintext\""
      end

      raise_invalid_provider
    end

    # librdkafka would quote the value when it connects, and it may be a password in the wrong place.
    def check_mechanism
      known = FEATURES.keys.grep(/\A[A-Z]/)
      return if known.include?(mechanism)

      raise_invalid "sasl.mechanism is unknown to librdkafka: set it to one of " \
                    "#{known.join(", ")}#{Suggestion.hint(mechanism, known)}"
    end

    def check_password
      missing = %i[sasl.username sasl.password].find { |name| @effective[name].nil? || blank?(@effective[name]) }
      raise_invalid "sasl.mechanism #{mechanism} requires #{missing}" if missing
    end

    def raise_invalid_provider
      return unless @token_provider

      raise ErrorFactory.build(ConfigurationInvalidError,
                               "config.oauth.token_provider_listener has an effect only with " \
                               "sasl.mechanism \"OAUTHBEARER\" and security.protocol \"sasl_ssl\" or \"sasl_plaintext\"")
    end

    def blank?(value) = value.is_a?(Secret) ? value.empty? : value.to_s.empty?

    # The values may be keys in the wrong place, so errors do not repeat them.
    def check_files
      FILES.each { |name| check_file(name) }
      PEMS.each do |name|
        next if @effective[name].nil? || Settings.pem?(@effective[name])

        raise_invalid "#{name} is not a PEM: it has no line such as -----BEGIN CERTIFICATE-----"
      end
    end

    def check_file(name)
      file = @effective[name]
      if Settings.pem?(file)
        pem = :"#{name.to_s.delete_suffix(".location").delete_suffix(".file")}.pem"
        raise_invalid "#{name} must be the name of a file, not a PEM#{": set #{pem} instead" if PEMS.include?(pem)}"
      end
      file = file.to_s
      return if file.empty? || (name.end_with?(".ca.location") && file == "probe") || File.readable?(file)

      raise_invalid "#{name}: #{File.exist?(file) ? "this process may not read the file" : "there is no such file#{where(file)}"}"
    end

    # The part of the path that exists is certainly the name of a directory, so the error may show it.
    def where(file)
      directory = File.dirname(file)
      directory = File.dirname(directory) until File.directory?(directory)
      file.start_with?("/") ? " (#{directory} exists)" : " (from #{Dir.pwd})"
    rescue SystemCallError
      nil
    end

    # ---- values that librdkafka would quote when it connects ----

    def check_assignment
      words = @given[:"partition.assignment.strategy"].to_s.split(",").map(&:lstrip) # librdkafka does not strip the right side
      wrong = words.find { |word| !ASSIGNORS.include?(word) }
      hint = wrong && Suggestion.hint(wrong, ASSIGNORS)
      raise_invalid "partition.assignment.strategy must be one of #{ASSIGNORS.join(", ")}#{hint}" if wrong
      return unless words.include?(COOPERATIVE) && words.uniq.size > 1

      raise_invalid "partition.assignment.strategy must not combine \"#{COOPERATIVE}\" with other strategies: its members keep " \
                    "their partitions in a rebalance, and those of the others give them up"
    end

    # ---- what librdkafka was built with ----

    def check_features
      need("security.protocol", protocol, "ssl") if tls?
      need("security.protocol", protocol, "sasl") if login?
      need("sasl.mechanism", mechanism, FEATURES[mechanism]) if login?
      codec = value(:"compression.codec")
      need("compression.codec", codec, FEATURES[codec]) if codec
    end

    def need(name, value, feature)
      return if feature.nil? || @features.include?(feature)

      raise_invalid "#{name} #{value} requires a librdkafka that was built with #{feature}; this one, " \
             "#{Penstock.librdkafka_version}, has #{@features.join(", ")}"
    end
  end
end

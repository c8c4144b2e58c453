# frozen_string_literal: true

module Penstock
  # What is wrong with settings of librdkafka that it would find only when it connects, or never: settings that contradict each
  # other, that do nothing, or that need what this librdkafka was built without. Each with a sentence.
  # @api private
  class KafkaChecks
    include KafkaWarnings

    # Pairs of which the first must not be above the second, where the user has set the first or both.
    ORDERED = [
      [%i[linger.ms queue.buffering.max.ms], %i[message.timeout.ms delivery.timeout.ms],
       "messages would time out before they are sent"],
      [%i[request.timeout.ms], %i[message.timeout.ms delivery.timeout.ms],
       "messages would time out before a broker has to answer"],
      [%i[retry.backoff.ms], %i[retry.backoff.max.ms], "the first pause would be longer than the longest"],
      [%i[reconnect.backoff.ms], %i[reconnect.backoff.max.ms], "the first pause would be longer than the longest"],
      [%i[heartbeat.interval.ms], %i[session.timeout.ms], "the consumer would be thrown out of its group between two heartbeats"],
      [%i[session.timeout.ms], %i[max.poll.interval.ms], "librdkafka wants it so"]
    ].freeze
    Ractor.make_shareable(ORDERED)

    # Which feature of librdkafka a value needs.
    FEATURES = {
      "PLAIN" => "sasl_plain", "SCRAM-SHA-256" => "sasl_scram", "SCRAM-SHA-512" => "sasl_scram", "GSSAPI" => "sasl_gssapi",
      "OAUTHBEARER" => "sasl_oauthbearer", "gzip" => "gzip", "snappy" => "snappy", "lz4" => "lz4", "zstd" => "zstd"
    }.freeze

    SYNONYMS = { "sasl.mechanism": :"sasl.mechanisms", "compression.codec": :"compression.type" }.freeze
    PASSWORDS = /\A(PLAIN|SCRAM-SHA-(256|512))\z/
    NO_TLS_NEEDED = %i[ssl.endpoint.identification.algorithm].freeze
    # Of these the value counts that librdkafka reads, in whatever spelling they are given.
    READ = %i[
      security.protocol ssl.endpoint.identification.algorithm enable.ssl.certificate.verification sasl.oauthbearer.method
      enable.sasl.oauthbearer.unsecure.jwt compression.codec compression.type
    ].freeze
    FILES = %i[
      ssl.ca.location ssl.certificate.location ssl.key.location ssl.keystore.location ssl.crl.location https.ca.location
      sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    ].freeze
    PEMS = %i[ssl.ca.pem ssl.certificate.pem ssl.key.pem https.ca.pem sasl.oauthbearer.assertion.private.key.pem].freeze
    ASSIGNORS = %w[range roundrobin cooperative-sticky].freeze
    private_constant :ASSIGNORS, :ORDERED, :FEATURES, :SYNONYMS, :PASSWORDS, :NO_TLS_NEEDED, :READ, :FILES, :PEMS

    # The table that librdkafka prints of its settings.
    # @return [Hash{Symbol => Array<Array(String, String)>}] by name: "P", "C" or "*" for both, and the description
    def self.table
      Native::ProducerClient.setting_lines.each_with_object({}) do |line, table|
        name, use, *, description = line.split("|").map(&:strip)
        (table[name.to_sym] ||= []) << [use, description] if description && !name.match?(/\A-+\z|\AProperty\z/)
      end
    end

    # @param given [Hash{Symbol => Object}] what the user has set
    # @param effective [Hash{Symbol => Object}] that and our defaults
    # @param role [:producer, :consumer]
    # @param token_provider [Object, nil]
    # @param features [Array<String>] what librdkafka was built with
    def initialize(given, effective, role:, token_provider: nil, features: Native::ProducerClient.features)
      @given = given
      @effective = effective
      @role = role
      @token_provider = token_provider
      @features = features
    end

    # @raise [ConfigurationInvalidError] the first thing that cannot be meant
    # @return [Array<String>] what is harmless, and yet not what somebody may think
    def call
      check_aliases
      check_names
      return [] if READ.any? { |name| @effective.key?(name) && read(name).nil? } # which librdkafka refuses, saying why

      check_order
      check_tls
      check_login
      check_files
      check_features
      check_assignment
      warnings
    end

    private

    def refuse(sentence)
      raise ErrorFactory.build(ConfigurationInvalidError, "config.kafka: #{sentence}")
    end

    def value(name)
      given = [name, *SYNONYMS[name]].find { |one| !@effective[one].nil? } or return
      READ.include?(given) ? read(given) : @effective[given].to_s
    end

    def read(name) = Settings.read(name, @effective[name])

    def given?(name) = [name, *SYNONYMS[name]].any? { |one| @given.key?(one) }
    def protocol = value(:"security.protocol") || "plaintext"
    def tls? = protocol.end_with?("ssl")
    def login? = protocol.start_with?("sasl")
    def mechanism = (value(:"sasl.mechanism") || "GSSAPI").upcase
    def true?(name) = value(name) == "true"

    # ---- names ----

    # librdkafka would take the later one.
    def check_aliases
      twins = Settings.twins(@given.keys) or return
      refuse "#{twins.join(" and ")} are two names of one setting: give one of them"
    end

    # Before a name that is not known is said to have no effect.
    def check_names
      unknown = (@given.keys.map(&:to_s) - Native::ProducerClient.setting_names).find { |name| name.start_with?("ssl.", "sasl.") }
      Settings.raise_invalid_setting(unknown) if unknown
    end

    # ---- times ----

    def check_order
      ORDERED.each do |lesser, greater, why|
        lesser = lesser.find { |name| @given.key?(name) }
        greater = greater.find { |name| @given.key?(name) }
        next unless lesser && greater

        next unless above?(*@given.values_at(lesser, greater))

        refuse "#{lesser} (#{@given[lesser]}) must not be above #{greater} (#{@given[greater]}): #{why}"
      end
    end

    # What is no number librdkafka refuses; and 0 is no limit.
    def above?(*values)
      lesser, greater = values.map { |value| Rational(value.to_s, exception: false) }
      lesser && greater && !greater.zero? && lesser > greater
    end

    # ---- TLS and SASL ----

    def check_tls
      useless = @given.keys.find { |name| name.start_with?("ssl.") && !NO_TLS_NEEDED.include?(name) } unless tls?
      refuse "#{useless} has no effect without TLS: set security.protocol to \"ssl\" or \"sasl_ssl\"" if useless
      %i[certificate key].permutation do |one, other|
        next unless either?(:"ssl.#{one}") && !either?(:"ssl.#{other}") && !@given.key?(:"ssl.keystore.location")

        refuse "a client certificate takes ssl.certificate.location (or .pem) and ssl.key.location (or .pem); " \
               "the #{other} is missing"
      end
    end

    def either?(stem) = @given.key?(:"#{stem}.location") || @given.key?(:"#{stem}.pem")

    def check_login
      return check_no_login unless login?

      if given?(:"sasl.username") && !given?(:"sasl.mechanism")
        refuse "sasl.mechanism is missing: librdkafka would take GSSAPI (Kerberos), which has no use for sasl.username"
      end
      check_mechanism
      check_password if PASSWORDS.match?(mechanism)
      mechanism == "OAUTHBEARER" ? check_token : raise_invalid_provider
    end

    def check_no_login
      useless = @given.keys.find { |name| name.start_with?("sasl.") }
      refuse "#{useless} has no effect without SASL: set security.protocol to \"sasl_ssl\" or \"sasl_plaintext\"" if useless
      raise_invalid_provider
    end

    # librdkafka would quote it when it connects, and it may be a password in the wrong place.
    def check_mechanism
      known = FEATURES.keys.grep(/\A[A-Z]/)
      return if known.include?(mechanism)

      refuse "sasl.mechanism is none that librdkafka knows: set it to one of #{known.join(", ")}#{Suggestion.hint(mechanism,
                                                                                                                  known)}"
    end

    def check_password
      missing = %i[sasl.username sasl.password].find { |name| @effective[name].nil? || blank?(@effective[name]) }
      refuse "sasl.mechanism #{mechanism} needs #{missing}" if missing
    end

    def check_token
      others = [("sasl.oauthbearer.method=oidc" if value(:"sasl.oauthbearer.method") == "oidc"),
                ("enable.sasl.oauthbearer.unsecure.jwt" if true?(:"enable.sasl.oauthbearer.unsecure.jwt"))].compact
      if @token_provider && others.any?
        refuse "#{others.first} and config.oauth.token_provider_listener would both bring tokens: choose one"
      end
      return if @token_provider || others.any?

      refuse "sasl.mechanism OAUTHBEARER needs somebody who brings tokens: " \
             "set config.oauth.token_provider_listener, or sasl.oauthbearer.method to \"oidc\""
    end

    def raise_invalid_provider
      return unless @token_provider

      raise ErrorFactory.build(ConfigurationInvalidError,
                               "config.oauth.token_provider_listener is only asked with sasl.mechanism \"OAUTHBEARER\" and " \
                               "security.protocol \"sasl_ssl\" or \"sasl_plaintext\"")
    end

    def blank?(value) = value.is_a?(Secret) ? value.empty? : value.to_s.empty?

    # What is in their place may be a key, so no value is repeated.
    def check_files
      FILES.each { |name| check_file(name) }
      PEMS.each do |name|
        next if @effective[name].nil? || Settings.pem?(@effective[name])

        refuse "#{name} is no PEM: it has no line such as -----BEGIN CERTIFICATE-----"
      end
    end

    def check_file(name)
      file = @effective[name]
      if Settings.pem?(file)
        pem = :"#{name.to_s.delete_suffix(".location").delete_suffix(".file")}.pem"
        refuse "#{name} takes the name of a file, and got a PEM#{": that is for #{pem}" if PEMS.include?(pem)}"
      end
      file = file.to_s
      return if file.empty? || (name.end_with?(".ca.location") && file == "probe") || File.readable?(file)

      refuse "#{name}: #{File.exist?(file) ? "this process may not read the file" : "there is no such file#{where(file)}"}"
    end

    # As far as it is there, it is certainly the name of a directory.
    def where(file)
      directory = File.dirname(file)
      directory = File.dirname(directory) until File.directory?(directory)
      file.start_with?("/") ? " (#{directory} exists)" : " (from #{Dir.pwd})"
    rescue SystemCallError
      nil
    end

    # ---- values that librdkafka would quote when it connects ----

    def check_assignment
      words = @given[:"partition.assignment.strategy"].to_s.split(",").map(&:strip)
      wrong = words.find { |word| !ASSIGNORS.include?(word) } or return
      refuse "partition.assignment.strategy takes #{ASSIGNORS.join(", ")}#{Suggestion.hint(wrong, ASSIGNORS)}"
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

      refuse "#{name} #{value} needs a librdkafka that was built with #{feature}; this one, " \
             "#{Penstock.librdkafka_version}, has #{@features.join(", ")}"
    end
  end
end

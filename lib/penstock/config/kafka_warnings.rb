# frozen_string_literal: true

module Penstock
  # Part of {KafkaChecks}: settings that work, but probably not as intended, and settings that are a security risk.
  # @api private
  module KafkaWarnings
    LOOPBACK = /\A(localhost|.*\.localhost|127\.[\d.]+|\[?::1\]?)\z/i
    private_constant :LOOPBACK

    private

    def warnings
      [*@given.keys.filter_map { |name| about(name) }, *about_verification, *about_login]
    end

    def about(name)
      rows = (@table ||= SettingTable.rows)[name] or return
      deprecated = rows.all? { |row| row.description.include?("DEPRECATED") }
      return "#{name} is deprecated: #{plain(rows.first.description)}" if deprecated

      "#{name} has no effect on a #{@role}: it is a setting of the other client type" if SettingTable.of_others?(rows, @role)
    end

    def plain(description)
      description.gsub(/\*\*\w+\*\*:?|<br>.*|`/, "").strip
    end

    def about_verification
      return [] unless tls?
      return ["enable.ssl.certificate.verification is off: anyone can pretend to be a broker"] unless verified?
      return [] unless value(:"ssl.endpoint.identification.algorithm") == "none"

      ["ssl.endpoint.identification.algorithm is none: anyone with a certificate of the same authority can pretend to be " \
       "a broker"]
    end

    def verified? = (value(:"enable.ssl.certificate.verification") || "true") == "true"

    def about_login
      return [] unless login?

      [about_clear_text, about_unsecured_tokens].compact
    end

    def about_clear_text
      return if tls? || !%w[PLAIN OAUTHBEARER].include?(mechanism) || hosts.all?(LOOPBACK)

      what = mechanism == "PLAIN" ? "the password" : "tokens"
      "security.protocol is sasl_plaintext: #{what} can be read on the way to the brokers; set it to \"sasl_ssl\""
    end

    def about_unsecured_tokens
      return unless mechanism == "OAUTHBEARER" && true?(:"enable.sasl.oauthbearer.unsecure.jwt")

      "enable.sasl.oauthbearer.unsecure.jwt: anyone can make tokens without a signature; use it in tests only"
    end

    def hosts
      servers = @effective[:"bootstrap.servers"] || @effective[:"metadata.broker.list"]
      servers.to_s.split(",").map { |server| server.strip.sub(%r{\A\w+://}, "").sub(/:\d*\z/, "") }.reject(&:empty?)
    end
  end
end

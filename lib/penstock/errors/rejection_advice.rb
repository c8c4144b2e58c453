# frozen_string_literal: true

module Penstock
  # What to check when brokers refuse a client, found by what the cause looks like in OpenSSL's and librdkafka's words.
  # @api private
  module RejectionAdvice
    # The first that fits.
    CHECKS = {
      /another host name|another IP address|hostname mismatch|ip address mismatch/i =>
        "Connect by a name that the broker's certificate has: in bootstrap.servers, and in the brokers' advertised.listeners. " \
        "To do without that check, set ssl.endpoint.identification.algorithm to \"none\".",
      /has expired|not yet valid|certificate expired/i =>
        "Renew the certificate, and check the clocks of the broker and of this machine.",
      /has been revoked|certificate revoked/i => "Replace the certificate that was revoked.",
      /not known here|self-signed|self signed|verify failed|not be verified|was not accepted/i =>
        "Check that ssl.ca.location or ssl.ca.pem has the authority that signed the brokers' certificates.",
      /bad certificate|certificate required|unknown ca|unexpected message|certificate unknown/i =>
        "The broker wants a client certificate that it trusts: check ssl.certificate.location (or .pem), ssl.key.location " \
        "(or .pem), and that the broker knows the authority that signed it.",
      /supported mechanisms: *(\(|\z)|not valid in current sasl state|sasl handshake not supported/i =>
        "The port does not ask for SASL: check the port in bootstrap.servers, and security.protocol.",
      /supported mechanisms|unsupported sasl/i => "Set sasl.mechanism to one that the brokers offer on this port.",
      /oauthbearer|token/i => "Check what config.oauth.token_provider_listener gives: the token, its principal and lifetime.",
      /scram/i =>
        "Check sasl.username and sasl.password. With librdkafka older than 2.6.1 (this is %s) newer brokers refuse SCRAM " \
        "altogether.",
      /security\.protocol.*ssl listener/i =>
        "The port may want TLS: check the port in bootstrap.servers, and set security.protocol to \"ssl\" or \"sasl_ssl\".",
      /sasl authentication error|authentication failed/i => "Check sasl.username and sasl.password, and sasl.mechanism.",
      /sasl authentication/i =>
        "The port may want SASL: check the port in bootstrap.servers, and set security.protocol to \"sasl_ssl\" or " \
        "\"sasl_plaintext\".",
      /hang up without a word|in state UP/ =>
        "The port may want TLS or SASL, or do without: check the port in bootstrap.servers, and security.protocol.",
      /(no\ answer\ to\ the\ tls\ |state\ ssl_)handshake|unexpected\ eof|wrong\ version|packet\ length\ too\ long|disconnected|
       connection\ reset/xi =>
        "The port may speak another protocol, without TLS: check the port in bootstrap.servers, and security.protocol."
    }.freeze
    private_constant :CHECKS

    # @param text [String] what the rejection was told with
    # @return [String, nil]
    def self.advice(text)
      _, advice = CHECKS.find { |cause, _| cause.match?(text) }
      advice&.sub("%s", Penstock.librdkafka_version)
    end
  end
end

# frozen_string_literal: true

module Penstock
  # What to check when brokers reject a client. Found by the texts of OpenSSL and librdkafka.
  # @api private
  module RejectionAdvice
    # The first pattern that matches.
    CHECKS = {
      # The program's own reason, or ours, in any words.
      /failed to acquire sasl oauthbearer token/i =>
        "Check the token, principal and lifetime that config.oauth.token_provider_listener provides.",
      /another host name|another IP address|hostname mismatch|ip address mismatch/i =>
        "Use host names that the broker's certificate has, in bootstrap.servers and in the brokers' advertised.listeners. " \
        "To disable the check, set ssl.endpoint.identification.algorithm to \"none\".",
      /has expired|not yet valid|certificate expired/i =>
        "Renew the certificate, and check the clocks of the broker and of this machine.",
      /has been revoked|certificate revoked/i => "Replace the certificate that was revoked.",
      /not known here|self-signed|self signed|verify failed|not be verified|was not accepted/i =>
        "Check that ssl.ca.location or ssl.ca.pem contains the authority that signed the brokers' certificates.",
      /bad certificate|certificate required|unknown ca|unexpected message|certificate unknown/i =>
        "The broker requires a client certificate that it trusts: check ssl.certificate.location (or .pem), ssl.key.location " \
        "(or .pem), and that the broker trusts the authority that signed it.",
      /supported mechanisms: *(\(|\z)|not valid in current sasl state|sasl handshake not supported/i =>
        "The port does not use SASL: check the port in bootstrap.servers, and security.protocol.",
      /supported mechanisms|unsupported sasl/i => "Set sasl.mechanism to one that the brokers offer on this port.",
      /oauthbearer|token/i => "Check the token, principal and lifetime that config.oauth.token_provider_listener provides.",
      /scram/i =>
        "Check sasl.username and sasl.password. Newer brokers reject SCRAM of librdkafka older than 2.6.1 " \
        "altogether (this is %s).",
      /security\.protocol.*ssl listener/i =>
        "The port may require TLS: check the port in bootstrap.servers, and set security.protocol to \"ssl\" or \"sasl_ssl\".",
      /sasl authentication error|authentication failed/i => "Check sasl.username and sasl.password, and sasl.mechanism.",
      /sasl authentication/i =>
        "The port may require SASL: check the port in bootstrap.servers, and set security.protocol to \"sasl_ssl\" or " \
        "\"sasl_plaintext\".",
      /close the connection without a reason|in state UP/ =>
        "The port may require TLS or SASL, or plain text: check the port in bootstrap.servers, and security.protocol.",
      /(no\ answer\ to\ the\ tls\ |state\ ssl_)handshake|unexpected\ eof|wrong\ version|packet\ length\ too\ long|disconnected|
       connection\ reset/xi =>
        "The port may speak another protocol, without TLS: check the port in bootstrap.servers, and security.protocol."
    }.freeze
    private_constant :CHECKS

    # @param text [String] the text of the rejection
    # @return [String, nil]
    def self.advice(text)
      _, advice = CHECKS.find { |cause, _| cause.match?(text) }
      advice&.sub("%s", Penstock.librdkafka_version)
    end
  end
end

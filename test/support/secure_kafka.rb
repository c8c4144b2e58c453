# frozen_string_literal: true

# The listeners and users of a Kafka that was started with bin/kafka up --secure; bin/kafka env names them.
module SecureKafka
  VARIABLES = %i[SSL MTLS STRANGER SASL SASL_SSL USER PASSWORD GUEST GUEST_PASSWORD CA CERT KEY].freeze
  VARIABLES.each do |name|
    const_set(name, ENV.fetch("PENSTOCK_KAFKA_#{name}") { abort "needs a Kafka of bin/kafka up --secure: run bin/test" })
  end
  PLAINTEXT = ENV.fetch("PENSTOCK_KAFKA")

  # librdkafka settings
  TLS = { "security.protocol": "ssl", "ssl.ca.location": CA }.freeze
  LOGIN = { "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN",
            "sasl.username": USER, "sasl.password": PASSWORD }.freeze
  TLS_LOGIN = { **LOGIN, "security.protocol": "sasl_ssl", "ssl.ca.location": CA }.freeze
  AS_GUEST = { **LOGIN, "sasl.username": GUEST, "sasl.password": GUEST_PASSWORD }.freeze
end

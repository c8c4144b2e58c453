# frozen_string_literal: true

module Penstock
  # Checks `bootstrap.servers`. librdkafka silently drops or changes what it cannot read there: it takes port 99999 for 34463,
  # "abc" for 0, and a list of URLs of another protocol for no brokers at all.
  #
  # A broker is `host:port` or `host`, whose port is 9092. As in librdkafka, spaces may follow a comma, entries may be blank if
  # one is not, and a line end may follow a port. librdkafka also takes `SSL://host:port` if `security.protocol` is the same.
  # That is an error here, so that the protocol has one place.
  #
  # A URL may hold a password. So an error shows its scheme, and its host and port only if they are well-formed.
  # @api private
  module BootstrapServers
    NAMES = %i[bootstrap.servers metadata.broker.list].freeze
    BROKER = /\A *(?:\[[\h:.]+(?:%\w+)?\]|[\w.-]+)(?::(?<port>\d{1,5})\s*)?\z/
    HOST = /\A(?:\[[\h:.]+\]|[\w.-]+)\z/
    URL = %r{\A\s*(?<scheme>[A-Za-z][\w+.-]*)://(?<rest>.*)\z}m
    PROTOCOLS = {
      "plaintext" => "plaintext", "kafka" => "plaintext", "tcp" => "plaintext",
      "ssl" => "ssl", "tls" => "ssl", "kafka+ssl" => "ssl", "kafka+tls" => "ssl", "kafkas" => "ssl",
      "sasl_plaintext" => "sasl_plaintext", "kafka+sasl" => "sasl_plaintext",
      "sasl_ssl" => "sasl_ssl", "kafka+sasl+ssl" => "sasl_ssl", "kafka+ssl+sasl" => "sasl_ssl"
    }.freeze
    private_constant :NAMES, :BROKER, :HOST, :URL, :PROTOCOLS

    class << self
      # @param settings [Hash{Symbol => Object}]
      # @raise [ConfigurationInvalidError] naming the first broker that is wrong, and what to write
      def check(settings)
        NAMES.each do |name|
          servers = settings[name]
          next unless servers.is_a?(String) && !servers.empty? && servers.valid_encoding?

          brokers = servers.split(",")
          raise ConfigurationInvalidError, "config.kafka: #{name} is blank" if brokers.all? { |broker| broker.strip.empty? }

          brokers.each.with_index(1) do |broker, number|
            problem = problem_of(broker) or next
            where = brokers.size > 1 ? "broker #{number} of #{name}" : name
            raise ConfigurationInvalidError, "config.kafka: #{where} #{problem}"
          end
        end
      end

      private

      # @return [String, nil]
      def problem_of(broker)
        match = BROKER.match(broker)
        return if match ? (match[:port] || 9092).to_i.between?(1, 65_535) : broker.match?(/\A *\z/)
        return about_url(*URL.match(broker).captures) if URL.match?(broker)
        return "has a space or line end within it: write host:port" if broker.strip.match?(/\s/) || HOST.match?(broker.strip)

        about_port(broker)
      end

      def about_port(broker)
        host, port = broker.rpartition(":").values_at(0, 2)
        return "has no port after #{host}: write #{host}:9092 (or the port of your brokers)" if HOST.match?(host) && port.empty?
        return "has a port that is not a number from 1 to 65535, after #{host}" if HOST.match?(host) && port.match?(/\A[\w-]+\z/)

        "is not of the form host:port, such as kafka.example:9092 or [::1]:9092"
      end

      def about_url(scheme, rest)
        user, place = rest.rpartition("@").values_at(0, 2)
        place = place[%r{\A[^\s/?#]*}]
        place = BROKER.match?(place) ? place : "host:port"
        "is a URL (#{scheme}://): write #{place}#{about_protocol(PROTOCOLS[scheme.downcase], user)}"
      end

      def about_protocol(protocol, user)
        return ". Brokers speak Kafka's protocol on a port of their own" unless protocol

        protocol = "sasl_#{protocol}" if !user.empty? && !protocol.start_with?("sasl")
        advice = ", and set security.protocol to #{protocol.inspect}"
        advice += ", the default" if protocol == "plaintext"
        user.empty? ? advice : "#{advice}, and sasl.mechanism, sasl.username and sasl.password"
      end
    end
  end
end

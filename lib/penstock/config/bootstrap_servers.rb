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
      # @raise [ConfigurationInvalidError] when a broker is invalid; the message names the first, and what to write
      def check(settings)
        NAMES.each do |name|
          servers = settings[name]
          raise_invalid_list(name, servers) if servers.is_a?(Array)
          check_list(name, servers) if servers.is_a?(String) && !servers.empty? && servers.valid_encoding?
        end
      end

      # @param broker [String] of a list
      # @param shown [Boolean] whether its scheme and its host may be repeated if they are well-formed
      # @return [String, nil] what is wrong, and what to write, such as "is a URL (ssl://): write host:port, ..."
      def problem_of(broker, shown: false)
        match = BROKER.match(broker)
        return if match ? (match[:port] || 9092).to_i.between?(1, 65_535) : broker.match?(/\A *\z/)
        return about_url(*URL.match(broker).captures, shown) if URL.match?(broker)
        return "has a space or line end within it: write host:port" if broker.strip.match?(/\s/) || HOST.match?(broker.strip)

        about_port(*broker.rpartition(":").values_at(0, 2), shown)
      end

      private

      def check_list(name, servers)
        brokers = servers.split(",")
        raise_invalid("#{name} is blank") if brokers.all? { |broker| broker.strip.empty? }

        brokers.each.with_index(1) do |broker, number|
          problem = problem_of(broker, shown: true) or next
          where = brokers.size > 1 ? "broker #{number} of #{name}" : name
          raise_invalid("#{where} #{problem}")
        end
      end

      def raise_invalid_list(name, servers)
        example = servers.size > 1 ? "kafka-1:9092,kafka-2:9092" : "kafka-1:9092"
        raise_invalid("#{name} must be a String such as #{example.inspect}, not Array: join the brokers with commas " \
               "(servers.join(\",\"))")
      end

      def raise_invalid(sentence) = raise(ErrorFactory.build(ConfigurationInvalidError, "config.kafka: #{sentence}"))

      def about_port(host, port, shown)
        if HOST.match?(host)
          name = shown ? host : "the host"
          return "has no port after #{name}: write #{shown ? host : "host"}:9092 (or the port of your brokers)" if port.empty?
          return "has a port that is not a number from 1 to 65535, after #{name}" if port.match?(/\A[\w-]+\z/)
        end

        "is not of the form host:port, such as kafka.example:9092 or [::1]:9092"
      end

      def about_url(scheme, rest, shown)
        user, place = rest.rpartition("@").values_at(0, 2)
        place = place[%r{\A[^\s/?#]*}]
        place = shown && BROKER.match?(place) ? place : "host:port"
        protocol = PROTOCOLS[scheme.downcase]
        "is a URL#{" (#{scheme}://)" if shown || protocol}: write #{place}#{about_protocol(protocol, user)}"
      end

      def about_protocol(protocol, user)
        return "; brokers speak Kafka's protocol on a port of their own" unless protocol

        protocol = "sasl_#{protocol}" if !user.empty? && !protocol.start_with?("sasl")
        advice = ", and set security.protocol to #{protocol.inspect}"
        advice += ", the default" if protocol == "plaintext"
        user.empty? ? advice : "#{advice}, and sasl.mechanism, sasl.username and sasl.password"
      end
    end
  end
end

# frozen_string_literal: true

require "socket"

module Penstock
  module Doctor
    # Where a broker is.
    # @api private
    Address = Struct.new(:host, :port) do
      # @param text [String] HOST, HOST:PORT, [IPv6]:PORT, also behind a protocol and "://"
      # @return [Address]
      # @raise [ArgumentError]
      def self.parse(text)
        match = text.to_s.strip.match(%r{\A(?:\w+://)?(?:\[([\h:.]+)\]|([^\s:/\[\]]+))(?::(\d{1,5}))?\z})
        port = Integer(match&.[](3) || "9092", 10)
        raise ArgumentError, "#{text.inspect} is no HOST:PORT" unless match && port.between?(1, 65_535)

        new(match[1] || match[2], port)
      end

      # @return [String]
      def to_s = host.include?(":") ? "[#{host}]:#{port}" : "#{host}:#{port}"
    end

    # The way to a cluster's brokers, step by step: those that are given, and those that they name (advertised.listeners), as
    # it is these that clients work with.
    # @api private
    class Cluster
      # What a broker of the cluster says.
      Answer = Struct.new(:cluster_id, :controller, :brokers, :apis, :ms)
      # Left out: what would disturb others (a transactional.id shuts out who has it), and what we set.
      WITHOUT = %i[bootstrap.servers metadata.broker.list transactional.id transaction.timeout.ms enable.idempotence
                   enable.gapless.guarantee debug log_level statistics.interval.ms].freeze
      SHOWN = %w[Produce Fetch Metadata InitProducerId].freeze
      SLICE = 500 # ms between two looks at whether brokers refuse us
      TRIES = 3
      private_constant :WITHOUT, :SHOWN, :SLICE, :TRIES

      # Keeps what librdkafka logs, which is where it tells the versions of a broker's requests.
      class Log
        def initialize
          @lines = Queue.new
        end

        def add(_severity, message = nil, _program = nil) = @lines << message.to_s

        # @return [Hash{String => String}] the request's name => versions
        def apis
          lines = Array.new(@lines.size) { @lines.pop }
          lines.filter_map { |line| line.match(/ApiKey (\w+) \(-?\d+\) Versions (\d+)\.\.(\d+)/)&.captures }
               .to_h { |name, least, most| [name, "#{least}-#{most}"] }
        end
      end
      private_constant :Log

      # @param addresses [Array<Address>]
      # @param settings [Hash] librdkafka's
      # @param timeout [Numeric] seconds for each step
      def initialize(addresses, settings, timeout:)
        @addresses = addresses.uniq
        @settings = settings.transform_keys(&:to_sym).except(*WITHOUT)
        @timeout = timeout
        @facts = []
        @cluster_id = nil
        @local = false
      end

      # @return [Array<Fact>]
      def facts
        producer(@addresses.first, Log.new).close
        answers = @addresses.filter_map { |address| look_at(address, address.to_s) }
        advertised(answers)
        @facts
      rescue ConfigurationInvalidError => e
        @facts << Fact.problem("settings", e.message, "Mend the setting.")
      end

      private

      def ok(name, value) = @facts << Fact.ok(name, value)

      def problem(name, value, advice)
        @facts << Fact.problem(name, value, advice)
        nil
      end

      def ms_since(start) = ((now - start) * 1000).round(1)
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      # @return [Answer, nil]
      def look_at(address, name, broker: nil)
        found = resolve(address, name, broker:) or return
        @local ||= found.any?(&method(:loopback?)) unless broker
        return if broker && astray?(address, found, name)

        connect(found, address, name) and log_in(address, name)
      end

      # ---- its name ----

      def resolve(address, name, broker:)
        start = now
        found = within { Addrinfo.getaddrinfo(address.host, address.port, nil, :STREAM) }
        return problem("#{name} name", "#{address.host} was not resolved within #{@timeout} s", unresolved(broker)) unless found

        ok("#{name} name", "#{address.host} is #{found.map(&:ip_address).join(", ")} (#{ms_since(start)} ms)")
        found
      rescue SocketError => e
        problem("#{name} name", "#{address.host} cannot be resolved: #{e.message}", unresolved(broker))
      end

      def unresolved(broker)
        return "Check the name, and DNS or /etc/hosts on this machine." unless broker

        "Broker #{broker} tells its clients to connect to this name (advertised.listeners): set that to a name that clients " \
          "can resolve, or let this machine's DNS or /etc/hosts know it."
      end

      # A look-up cannot be called off: its thread is left behind, and ends by itself.
      def within(&block)
        thread = Thread.new(&block)
        thread.report_on_exception = false
        thread.join(@timeout)&.value
      end

      def loopback?(info) = info.ipv4_loopback? || info.ipv6_loopback?

      # The most frequent mistake there is: a broker in a container or elsewhere says "localhost".
      def astray?(address, found, name)
        return false if @local || !found.all?(&method(:loopback?))

        problem("#{name} address", "it advertises #{address}, which is this machine, and the cluster was reached elsewhere",
                "Set the broker's advertised.listeners to a name or address by which clients reach it.")
        true
      end

      # ---- a connection ----

      def connect(found, address, name)
        start = now
        failures = []
        found.each do |info|
          info.connect(timeout: @timeout).close
          failed = " (not #{failures.join(", ")})" if failures.any?
          ok("#{name} tcp", "connected to #{info.ip_address} port #{address.port} in #{ms_since(start)} ms#{failed}")
          return true
        rescue SystemCallError, IOError => e
          failures << "#{info.ip_address}: #{e.message[/\A[^-]*/].strip}"
        end
        problem("#{name} tcp", "no connection to port #{address.port} (#{failures.join("; ")})",
                "Check that a broker listens there, the port, and firewalls in between.")
      end

      # ---- Kafka, and TLS and SASL before it ----

      def log_in(address, name)
        answer = own_answer(address)
        safe(name)
        ok("#{name} sasl", "#{mechanism} was accepted") if sasl?
        describe(answer, name)
        answer
      rescue TlsError => e
        refused("#{name} tls", e)
      rescue AuthenticationError => e
        safe(name)
        refused("#{name} sasl", e)
      rescue RefusedError => e
        refused("#{name} kafka", e)
      rescue Error => e
        problem("#{name} kafka", "no answer of a Kafka within #{@timeout} s#{last_problem(e)}",
                "Check that a Kafka listens on this port, and that security.protocol (#{protocol}) is what the port wants.")
      end

      def safe(name)
        return unless tls?

        verified = @settings[:"enable.ssl.certificate.verification"].to_s.downcase != "false"
        ok("#{name} tls", verified ? "the broker's certificate was accepted" : "agreed on; nobody has verified the certificate")
      end

      def refused(name, error)
        advice = Refusals.advice(error.message)
        cause = error.message.delete_suffix(advice.to_s).sub(/ \[producer [^\]]*\]\.? *\z/, "")
        problem(name, cause, advice || "Check security.protocol and what belongs to it.")
      end

      def last_problem(error)
        text = error.message[/Last problem: (.*?)\.(?: [A-Z]|\z)/, 1]
        text && " (#{text})"
      end

      # librdkafka asks whom it knows by then, which may be a broker that this one has told of, and of another cluster. So
      # what does not tell of the broker itself is asked for again; but many are known by another name than their own.
      def own_answer(address)
        answers = []
        until answers.last&.brokers&.any? { |_, host, port| Address.new(host, port) == address }
          return answers.first if answers.size == TRIES

          answers << ask(address)
        end
        answers.last
      end

      def ask(address)
        log = Log.new
        start = now
        producer = producer(address, log)
        client = producer.build_client(producer.config.kafka)
        cluster_id, controller, brokers = patiently { |ms| client.brokers(ms) }
        took = ms_since(start)
        client.close(1_000) # after which all is logged
        Answer.new(cluster_id, controller, brokers, apis_of(log), took)
      ensure
        client&.close(0)
        producer&.close
      end

      # librdkafka gives a request all its time, also when brokers have refused us.
      def patiently
        deadline = now + @timeout
        begin
          yield [[(deadline - now) * 1000, SLICE].min.ceil, 1].max
        rescue RefusedError
          raise
        rescue Error
          now < deadline ? retry : raise
        end
      end

      # The dispatcher takes a moment to hand them over.
      def apis_of(log)
        deadline = now + 1
        loop do
          apis = log.apis
          return apis unless apis.empty? && now < deadline

          sleep 0.01
        end
      end

      def producer(address, log)
        Producer.new do |config|
          config.kafka = { **@settings, "bootstrap.servers": address.to_s, "enable.idempotence": false, log_level: 7,
                                        debug: "feature" }
          config.logger = log
          config.close_timeout = 1_000
        end
      end

      def describe(answer, name)
        if @cluster_id && answer.cluster_id != @cluster_id
          problem("#{name} kafka", "it is of the cluster #{answer.cluster_id}, not of #{@cluster_id}",
                  "Check bootstrap.servers, and what brokers advertise.")
        else
          @cluster_id ||= answer.cluster_id
          ok("#{name} kafka", "cluster #{answer.cluster_id || "without an id"}, #{count(answer.brokers.size, "broker")}, " \
                              "controller #{answer.controller}, answered in #{answer.ms} ms")
        end
        ok("#{name} apis", apis_text(answer.apis))
      end

      def apis_text(apis)
        return "this librdkafka has not told" if apis.empty?

        "#{apis.size}: #{apis.slice(*SHOWN).map { |api, versions| "#{api} #{versions}" }.join(", ")}"
      end

      def count(number, noun) = "#{number} #{noun}#{"s" unless number == 1}"

      def protocol = (@settings[:"security.protocol"] || "plaintext").to_s.downcase
      def tls? = protocol.end_with?("ssl")
      def sasl? = protocol.start_with?("sasl")
      def mechanism = @settings.values_at(:"sasl.mechanism", :"sasl.mechanisms").compact.first || "GSSAPI"

      # ---- what the brokers call themselves ----

      def advertised(answers)
        brokers = answers.flat_map(&:brokers).uniq
        brokers.each do |id, host, port|
          address = Address.new(host, port)
          next ok("broker #{id}", "advertises #{address}, as given") if @addresses.include?(address)

          ok("broker #{id}", "advertises #{address}")
          look_at(address, "broker #{id}", broker: id)
        end
      end
    end
  end
end

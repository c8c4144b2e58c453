# frozen_string_literal: true

require "socket"

module Penstock
  module Doctor
    # The steps of the way to one server: its name, a connection, TLS and SASL, Kafka. What {Cluster} does with each of them.
    # @api private
    module Steps
      # What a broker of the cluster says.
      Answer = Struct.new(:cluster_id, :controller, :brokers, :apis, :ms)
      SHOWN = %w[Produce Fetch Metadata InitProducerId].freeze
      SLICE = 500 # ms between two checks for a rejection by brokers
      TRIES = 8
      # librdkafka from 2.11 on lets go of the bootstrap server when it knows the brokers that this one advertises. If none of
      # them can be reached, it returns to the bootstrap server in about one of six attempts to connect; with its own intervals
      # that took over 5 s in 3 of 100 requests (2.14). Not with SASL: servers may count wrong passwords.
      AT_ONCE = { "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20 }.freeze
      private_constant :SHOWN, :SLICE, :TRIES, :AT_ONCE

      # The time for a server, or for all advertised brokers, ran out.
      class OutOfTime < StandardError; end
      private_constant :OutOfTime

      # Keeps librdkafka's log, which contains the versions of a broker's requests.
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

      private

      # @return [Numeric] seconds for the next step
      def patience
        left = [@timeout, @deadline - now].min
        left.positive? ? left : raise(OutOfTime)
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

      # A look-up cannot be cancelled: its thread continues, and ends by itself.
      def within(&block)
        thread = Thread.new(&block)
        thread.report_on_exception = false
        thread.join(patience)&.value
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
          info.connect(timeout: patience).close
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
        rejected("#{name} tls", e)
      rescue AuthenticationError => e
        safe(name)
        rejected("#{name} sasl", e)
      rescue BrokerRejectedError => e
        rejected("#{name} kafka", e)
      rescue Error => e
        problem("#{name} kafka", "no answer from Kafka within #{@timeout} s#{last_problem(e)}",
                "Check that Kafka listens on this port, and that the port expects security.protocol #{protocol}.")
      end

      def safe(name)
        return unless tls?

        verified = read(:"enable.ssl.certificate.verification") != "false"
        ok("#{name} tls", verified ? "the broker's certificate was accepted" : "agreed on; the certificate was not verified")
      end

      def rejected(name, error)
        advice = RejectionAdvice.advice(error.message)
        cause = error.message.delete_suffix(advice.to_s).sub(/ \[producer [^\]]*\]\.? *\z/, "")
        problem(name, cause, advice || "Check security.protocol and what belongs to it.")
      end

      def last_problem(error)
        text = error.message[/Last problem: (.*?)\.(?: [A-Z]|\z)/, 1]
        text && " (#{text})"
      end

      # librdkafka requests metadata from any broker that it knows by then. That may be a broker that this one advertises, even
      # one of another cluster. So an answer that does not list this broker's address is requested again, up to TRIES times:
      # many brokers advertise another address than the one that was dialled. If a later request fails, the first answer counts.
      def own_answer(address)
        first = nil
        TRIES.times do
          answer = ask(address)
          return answer if answer.brokers.any? { |_, host, port| Address.new(host, port) == address }

          first ||= answer
        rescue Error, OutOfTime
          first ? break : raise
        end
        first
      end

      def ask(address)
        log = Log.new
        start = now
        producer = producer(address, log)
        client = ProducerRegistry.of(producer).build_client(producer.config.kafka)
        cluster_id, controller, brokers = patiently { |ms| client.brokers(ms) }
        took = ms_since(start)
        client.close(1_000) # after which all is logged
        Answer.new(cluster_id, controller, brokers, apis_of(log), took)
      ensure
        client&.close(0)
        producer&.close
      end

      # librdkafka waits for the whole timeout of a request, also when brokers have rejected the client.
      def patiently
        deadline = now + patience
        begin
          yield [[(deadline - now) * 1000, SLICE].min.ceil, 1].max
        rescue BrokerRejectedError
          raise
        rescue Error
          now < deadline ? retry : raise # M:doctor_step_limit
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
          fast = sasl? ? {} : AT_ONCE
          config.kafka = { **fast, **@settings, "bootstrap.servers": address.to_s, "enable.idempotence": false, log_level: 7,
                                                debug: "feature" }
          config.logger = log
          config.close_timeout = 1_000
        end
      end

      def describe(answer, name)
        if @cluster_id && answer.cluster_id != @cluster_id
          problem("#{name} kafka", "it belongs to the cluster #{answer.cluster_id}, not to #{@cluster_id}",
                  "Check bootstrap.servers, and what brokers advertise.")
        else
          @cluster_id ||= answer.cluster_id
          ok("#{name} kafka", "cluster #{answer.cluster_id || "without an id"}, #{count(answer.brokers.size, "broker")}, " \
                              "controller #{answer.controller}, answered in #{answer.ms} ms")
        end
        ok("#{name} apis", apis_text(answer.apis))
      end

      def apis_text(apis)
        return "unknown to this librdkafka" if apis.empty?

        "#{apis.size}: #{apis.slice(*SHOWN).map { |api, versions| "#{api} #{versions}" }.join(", ")}"
      end

      def count(number, noun) = "#{number} #{noun}#{"s" unless number == 1}"

      def read(name) = @settings.key?(name) ? Settings.read(name, @settings[name]) : nil
      def protocol = read(:"security.protocol") || "plaintext"
      def tls? = protocol.end_with?("ssl")
      def sasl? = protocol.start_with?("sasl")
      def mechanism = @settings.values_at(:"sasl.mechanism", :"sasl.mechanisms").compact.first || "GSSAPI"
    end
  end
end

# frozen_string_literal: true

require "json"
require "penstock"
require "penstock/doctor"

# The program under attack. It reads orders (a line of JSON each), does what an application does, and reports what its application
# code observed. It judges only texts. test/proofs/hostile_broker_test.rb judges the report.
class HostileBroker
  class Client
    TOPIC = "attacked"
    QUICK = {
      "socket.timeout.ms": 400, "socket.connection.setup.timeout.ms": 1_000, "reconnect.backoff.ms": 5,
      "reconnect.backoff.max.ms": 20, "retry.backoff.ms": 5, "topic.metadata.refresh.fast.interval.ms": 10,
      "allow.auto.create.topics": false
    }.freeze
    PRODUCING = { **QUICK, "linger.ms": 0, "message.timeout.ms": 700, "request.timeout.ms": 300 }.freeze
    CONSUMING = {
      **QUICK,
      "fetch.wait.max.ms": 10, "fetch.error.backoff.ms": 5, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 50,
      "check.crcs": true, "auto.offset.reset": "earliest"
    }.freeze
    SASL = { "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p" }.freeze
    IDEMPOTENT_MS = 1_500 # librdkafka 2.14 waits half a second before the first message
    MESSAGES = 3
    CLOSING = 1 # second
    LISTENING = 3 # seconds

    # Receives whatever an application logs.
    class Texts
      def initialize
        @texts = Queue.new
      end

      def add(_severity, message = nil, _program = nil) = @texts << message
      def to_a = Array.new(@texts.size) { @texts.pop }
    end

    def self.run(input, output)
      input.each_line do |line|
        output.puts(JSON.generate(new(**JSON.parse(line, symbolize_names: true)).call))
        output.flush
      end
    end

    # @param what [String] the name of one of the private methods below
    # @param seconds [Numeric] how long a consumer polls if nothing arrives
    def initialize(what:, server:, seconds:, settings: {})
      @what = what
      @server = server
      @settings = settings
      @seconds = seconds
      @texts = Texts.new
      @seen = { accepted: 0, settled: 0, published: 0, consumed: 0, errors: Hash.new(0), foreign: [] }
    end

    # @return [Hash] the observations
    def call
      GC.start
      before = memory("VmRSS")
      forget_peak
      start = now
      send(@what)
      @seen.merge(seconds: now - start, grown_kb: [memory("VmHWM") - before, 0].max, kept_kb: memory("VmRSS"), unclean:)
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    def memory(name) = File.read("/proc/self/status")[/^#{name}:\s+(\d+)/, 1].to_i
    def forget_peak = File.write("/proc/self/clear_refs", "5")

    # @return [Array<String>] texts that should reach neither a terminal nor a log file
    def unclean = @texts.to_a.reject { |text| clean?(text) }.uniq.first(3).map(&:inspect)

    def clean?(text)
      text = text.encode(Encoding::UTF_8)
      text.valid_encoding? && !text.match?(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/)
    rescue EncodingError
      false
    end

    # Only Penstock's errors may be raised.
    def attempt
      yield
    rescue Penstock::Error => e
      note(e)
      nil
    rescue StandardError, SystemStackError, NoMemoryError => e
      @seen[:foreign] << "#{e.class}: #{e.message.inspect[0, 300]} #{e.backtrace.first(3)}"
      nil
    end

    def note(error)
      @seen[:errors][error.class.name] += 1
      @texts.add(nil, error.message)
      @texts.add(nil, error.inspect)
      @texts.add(nil, error.full_message(highlight: false).force_encoding(Encoding::UTF_8)) # Ruby labels it as binary
    end

    # ---- a producer ----

    def producer(**settings)
      made = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": @server, **PRODUCING, **settings, **@settings }
        config.logger = @texts
        config.rejection_timeout = 500
        config.max_wait_timeout = 2_000
        config.max_attempts_on_transaction_command = 2
        config.wait_backoff_on_transaction_command = 10
        config.wait_backoff_on_idempotent_fatal_error = 10
        config.wait_backoff_on_transaction_fatal_error = 10
        config.max_attempts_on_idempotent_fatal_error = 1
        config.max_attempts_on_transaction_fatal_error = 1
      end
      listen(made)
      made
    end

    def listen(producer)
      @published = Queue.new
      %w[message.acknowledged message.purged].each { |name| producer.monitor.subscribe(name) { @published << name } }
      producer.monitor.subscribe("error.occurred") do |event|
        @published << event[:type] if event[:type] == "librdkafka.dispatch_error"
        @texts.add(nil, event[:error].message)
      end
    end

    def with_producer(**settings)
      producer = attempt { producer(**settings) } or return
      yield producer
    ensure
      attempt { finish(producer) } if producer
    end

    # When the producer is closed, every message has its result, which was published exactly once.
    def finish(producer)
      close(producer)
      @seen[:accepted] = @handles&.size || 0
      @seen[:published] = published
      @handles&.each { |handle| look_at(handle) }
    end

    # close waits for listeners at most for its timeout, which a busy machine may exceed. More than one result for a message is
    # wrong as well.
    def published
      deadline = now + LISTENING
      sleep 0.01 while @published.size < @seen[:accepted] && now < deadline
      @published.size
    end

    def look_at(handle)
      @seen[:settled] += 1 unless handle.pending?
      @texts.add(nil, handle.inspect)
      report = handle.report or return
      @texts.add(nil, report.inspect)
      note(report.error) if report.error
    end

    def close(client)
      start = now
      client.close(timeout: CLOSING)
      @seen[:closing] = now - start
    end

    def send_messages(producer)
      @handles = []
      attempt do
        @handles = producer.produce_many_async(Array.new(MESSAGES) { |i| { topic: TOPIC, payload: "p#{i}", partition: 0 } })
      rescue Penstock::ProduceManyError => e
        @handles = e.dispatched # librdkafka accepted these before it rejected one
        raise
      end
      @handles.each { |handle| attempt { handle.wait(max_wait_timeout_ms: 4_000) } }
    end

    def produce(**settings)
      with_producer("enable.idempotence": false, **settings) do |producer|
        send_messages(producer)
        attempt { producer.partition_count(TOPIC) } if @seen[:errors].empty? # otherwise the call takes its 5 seconds
      end
    end

    def produce_idempotently
      with_producer("message.timeout.ms": IDEMPOTENT_MS) { |producer| send_messages(producer) }
    end

    def produce_sasl = produce(**SASL)

    def transact
      with_producer("transactional.id": "attacked", "transaction.timeout.ms": 1_000) do |producer|
        attempt { producer.transaction { send_messages(producer) } }
      end
    end

    # ---- a consumer ----

    def with_consumer(**settings)
      consumer = attempt { consumer(**settings) } or return
      yield consumer
    ensure
      attempt { close(consumer) } if consumer
    end

    def consumer(**settings)
      Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": @server, **CONSUMING, **settings, **@settings }
        config.logger = @texts
        config.rejection_timeout = 500
      end
    end

    def take(consumer)
      deadline = now + @seconds
      while @seen[:consumed] < 12 && now < deadline
        attempt { consumer.poll_batch(max: 100, timeout: 0.1) }&.each do |message|
          @seen[:consumed] += 1
          @texts.add(nil, message.inspect)
        end
      end
    end

    def assign
      with_consumer do |consumer|
        attempt { consumer.assign(TOPIC => { 0 => :beginning }) }
        take(consumer)
        attempt { consumer.watermarks(TOPIC, 0, timeout: 0.5) }
      end
    end

    def subscribe
      with_consumer("group.id": "attacked", "enable.auto.commit": false) do |consumer|
        attempt { consumer.subscribe(TOPIC) }
        take(consumer)
        attempt { consumer.commit(timeout: 0.5) } if @seen[:consumed].positive?
      end
    end

    # ---- an admin client ----

    ADMIN = { # each asks for one thing, and says which key its answer has
      create_topics: ->(one) { [one.create_topics({ TOPIC => {} }, wait: false), TOPIC] },
      delete_topics: ->(one) { [one.delete_topics(TOPIC, wait: false), TOPIC] },
      create_partitions: ->(one) { [one.create_partitions({ TOPIC => 2 }), TOPIC] },
      describe_topics: ->(one) { [one.topics(TOPIC), TOPIC] },
      all_topics: lambda(&:topics),
      cluster: lambda(&:cluster),
      describe_configs: ->(one) { [one.configs(topics: [TOPIC]), [:topic, TOPIC]] },
      alter_configs: ->(one) { [one.alter_configs({ topics: { TOPIC => { "retention.ms" => 1 } } }), [:topic, TOPIC]] },
      list_groups: lambda(&:groups),
      describe_groups: ->(one) { [one.describe_groups(TOPIC), TOPIC] },
      delete_groups: ->(one) { [one.delete_groups(TOPIC), TOPIC] },
      group_offsets: ->(one) { [one.group_offsets({ TOPIC => { TOPIC => [0] } }), TOPIC] },
      alter_group_offsets: ->(one) { [one.alter_group_offsets(TOPIC, { TOPIC => { 0 => 1 } }), [TOPIC, 0]] },
      reset_group_offsets: ->(one) { [one.reset_group_offsets(TOPIC, to: 1, topics: { TOPIC => [0] }), [TOPIC, 0]] },
      delete_group_offsets: ->(one) { [one.delete_group_offsets(TOPIC, { TOPIC => [0] }), [TOPIC, 0]] },
      lag: ->(one) { [one.lag(TOPIC), TOPIC] },
      offsets: ->(one) { [one.offsets({ TOPIC => { 0 => :end } }), [TOPIC, 0]] },
      delete_records: ->(one) { [one.delete_records({ TOPIC => { 0 => 1 } }), [TOPIC, 0]] },
      elect_leaders: ->(one) { [one.elect_leaders(:preferred, { TOPIC => [0] }), [TOPIC, 0]] },
      create_acls: ->(one) { [one.create_acls(ACL), ACL] },
      acls: ->(one) { one.acls(topic: TOPIC) },
      delete_acls: ->(one) { [one.delete_acls({ topic: TOPIC }), { topic: TOPIC }] },
      scram_users: ->(one) { [one.scram_users(TOPIC), TOPIC] },
      alter_scram_users: ->(one) { [one.alter_scram_users(delete: { TOPIC => :"SCRAM-SHA-256" }), TOPIC] }
    }.freeze
    ACL = Penstock::Admin::Acl.new(topic: TOPIC, principal: "User:#{TOPIC}", operation: :read)

    ADMIN.each { |name, ask| define_method(:"admin_#{name}") { administer(&ask) } }

    def administer
      one = attempt { admin } or return
      answer = attempt { yield one }
      look_at_answer(answer) if answer
    ensure
      attempt { close(one) } if one
    end

    def admin
      Penstock::Admin.new do |config|
        config.kafka = { "bootstrap.servers": @server, **QUICK, **@settings }
        config.logger = @texts
        config.timeout = 1_500
        config.rejection_timeout = 500
      end
    end

    # An answer has a value or an error for what was asked, and nothing else.
    def look_at_answer(answer)
      results, key = answer
      @texts.add(nil, answer.inspect)
      @seen[:foreign] << "not shareable: #{answer.inspect[0, 300]}" unless Ractor.shareable?(key ? results : answer)
      return unless results.is_a?(Penstock::Admin::Results)

      return unless key

      keys = results.keys
      @seen[:foreign] << "asked for #{key.inspect}, got #{keys.inspect[0, 300]}" unless keys == [key]
      results.to_h.each_value { |found| found.is_a?(Penstock::Error) ? note(found) : @seen[:foreign].concat(Array(odd(found))) }
    end

    def odd(found) = ("no value" if found.nil?)

    # ---- the doctor ----

    def examine
      report = attempt { Penstock::Doctor.examine(servers: [@server], settings: QUICK.merge(@settings), timeout: 1) } or return
      report.to_s.each_line(chomp: true) { |line| @texts.add(nil, line) }
      @texts.add(nil, JSON.generate(report.to_h))
    end
  end
end

HostileBroker::Client.run($stdin, $stdout) if $PROGRAM_NAME == __FILE__

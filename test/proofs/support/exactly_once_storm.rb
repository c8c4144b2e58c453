# frozen_string_literal: true

require "securerandom"
require "set"
require "timeout"
require_relative "../../support/kafka_topics"
require_relative "../../support/reader"

# A group whose members copy a topic to another one with Producer#transaction, while they are killed, closed and frozen. A reader
# of committed messages finds each message once.
class ExactlyOnceStorm
  PARTITIONS = 4 # Kafka's default in tests
  MEMBERS = 3
  LIBRARY = File.expand_path("../../../lib", __dir__)

  # A member has ended with an error, or messages are missing or come twice.
  class Failed < StandardError; end

  # Copies "in" to "out". It ends in good order with SIGTERM, and when its producer was fenced. Now and then a block raises,
  # aborts or takes long.
  MEMBER = <<~'RUBY'
    require "penstock"
    servers, topic, number, settings = ARGV
    settings = settings.split(",").to_h { |setting| setting.split("=") }
    stopping = false
    trap("TERM") { stopping = true }
    producer = Penstock::Producer.new("bootstrap.servers": servers, "transactional.id": "#{topic}-#{number}",
                                     "transaction.timeout.ms": 10_000, log_level: 0)
    consumer = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest", log_level: 0,
                       "enable.auto.commit": false, **settings }
    end
    consumer.subscribe("#{topic}-in")
    until stopping
      begin
        producer.transaction(consumer, max: rand(1..40), timeout: 0.2) do |batch|
          batch.each { |message| producer.produce_async(topic: "#{topic}-out", payload: message.payload, key: message.payload) }
          case rand(12)
          when 0 then raise "failed"
          when 1 then raise Penstock::AbortTransaction
          when 2 then sleep rand * 0.3
          end
        end
      rescue Penstock::ProducerFencedError
        stopping = true
      rescue RuntimeError, Penstock::TransactionError, Penstock::ConsumeTimeoutError # brokers did not answer: once more
        nil
      end
    end
    consumer.close
    producer.close
  RUBY

  CLASSIC = { "session.timeout.ms" => 6_000, "heartbeat.interval.ms" => 200 }.freeze
  PROTOCOLS = {
    "range" => CLASSIC.merge("partition.assignment.strategy" => "range"),
    "cooperative_sticky" => CLASSIC.merge("partition.assignment.strategy" => "cooperative-sticky"),
    "the_consumer_protocol" => { "group.protocol" => "consumer" }
  }.freeze

  # @return [Array<String>] names in PROTOCOLS that this librdkafka has in a version that is not a preview
  def self.protocols
    old = (Penstock.librdkafka_version.split(".").map(&:to_i) <=> [2, 12]).negative?
    PROTOCOLS.keys - (old ? ["the_consumer_protocol"] : [])
  end

  # @return [String] the group, and the beginning of the topics' names
  attr_reader :name
  # @return [Hash{Integer => Integer}] process ids of the members
  attr_reader :members

  # @param servers [String]
  # @param protocol [String] a name in PROTOCOLS
  def initialize(servers, protocol)
    @servers = servers
    @settings = PROTOCOLS.fetch(protocol)
    @name = "penstock-once-#{SecureRandom.hex(6)}"
    @members = {}
  end

  def input = "#{@name}-in"

  # @param before [Array<String>] arguments of Ruby
  def join(number, *before)
    @members[number] = Process.spawn(RbConfig.ruby, "-I", LIBRARY, *before, "-e", MEMBER, @servers, @name, number.to_s,
                                     @settings.map { |pair| pair.join("=") }.join(","))
  end

  def join_all = MEMBERS.times { |number| join(number) }

  # @raise [Failed] when a member has ended with an error
  def replace_ended
    @members.to_a.each do |number, pid|
      _, status = Process.wait2(pid, Process::WNOHANG)
      next unless status

      @members.delete(number)
      check_end(number, status)
      join(number)
    end
  end

  # Ends one member, in turns without and with notice, and starts it again.
  def disturb(times)
    number = times % MEMBERS
    leave(number, times.even? ? :KILL : :TERM)
    join(number)
  end

  # @raise [Failed] when the member does not end within 40 s, or not in good order
  def leave(number, signal)
    pid = @members.delete(number)
    Process.kill(signal, pid)
    _, status = Timeout.timeout(40, Failed, "member #{number} does not end") { Process.wait2(pid) }
    check_end(number, status) unless signal == :KILL
  end

  def kill_all = leave_all(:KILL)

  # Waits until each message has an output, and ends the members.
  # @param seconds [Numeric] how long it may take
  # @return [Array<String>] the outputs
  # @raise [Failed] when outputs are missing
  def finish(count, seconds: 60)
    deadline = now + seconds
    until (found = visible).uniq.size == count
      raise Failed, "#{found.uniq.size} of #{count} outputs within #{seconds} s: #{state(found)}" if now > deadline

      replace_ended
      sleep 1
    end

    leave_all(:TERM)
    visible
  end

  # @return [Array<String>] what there is to copy
  def inputs = Reader.new(@servers).read(input, partitions: 0...PARTITIONS, seconds: 60).map(&:payload)

  # @param committed [Boolean] whether outputs of open and aborted transactions are left out
  # @return [Array<String>] outputs
  def visible(committed: true)
    reader = Reader.new(@servers, "isolation.level": committed ? "read_committed" : "read_uncommitted")
    reader.read("#{@name}-out", partitions: 0...PARTITIONS, seconds: 20).map(&:payload)
  rescue RuntimeError
    [] # an open transaction keeps readers from the end
  end

  private

  # What is missing although it was committed is lost; else the group is stuck.
  def state(found)
    inputs = Reader.new(@servers).read(input, partitions: 0...PARTITIONS, seconds: 20)
    outputs = found.to_set
    missing = inputs.reject { |message| outputs.include?(message.payload) }.group_by(&:partition)
    missing.transform_values! { |messages| messages.map(&:offset).minmax << messages.size }
    KafkaTopics.admin(@servers) do |admin|
      committed = admin.group_offsets({ @name => nil })[@name].fetch(input, {}).transform_values { |one| one&.offset }
      members = admin.group(@name).members.map { |member| [member.client_id, member.assignment] }
      "missing by partition (first, last, count) #{missing}, committed #{committed}, members #{members}, processes #{@members}"
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def leave_all(signal) = @members.each_key { |number| leave(number, signal) }

  def check_end(number, status)
    raise Failed, "member #{number}: #{status.inspect}" unless status.success? || killed?(status)
  end

  # SIGTERM ends a member that has no trap for it yet. With librdkafka 2.0.2, a member that leaves while it assigns partitions as
  # the group's leader fails an assertion (rd_kafka_sticky_assignor_state_destroy). Both are as good as a SIGKILL.
  def killed?(status) = %w[TERM ABRT].include?(Signal.signame(status.termsig.to_i))
end

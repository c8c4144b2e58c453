# frozen_string_literal: true

require "test_helper"
require_relative "../support/hostile_broker"
require_relative "../support/hostile_broker/catalogue"
require_relative "../support/hostile_broker/faults"
require_relative "../support/hostile_broker/mutations"
require_relative "../support/hostile_broker/plain_client"
require_relative "../support/hostile_broker/victim"

# Brokers that answer with anything (support/hostile_broker.rb). After each attack, the process lives, unless librdkafka has a
# known defect there (faults.rb). Its memory grew by less than the attack's limit. Calls ended within their timeouts. Each
# accepted message has one result. Only Penstock's errors were raised. No text has control bytes or invalid UTF-8.
class HostileBrokerTest < PenstockTest
  ATTACKERS = 20 # the clients wait most of the time
  ROUNDS = 60
  SEED = 16
  # Requests whose frames are attacked in every way. The other requests go through the same code of librdkafka.
  FRAMED = %i[api_versions metadata produce fetch join_group sasl_authenticate].freeze

  ABORT = "seed 1, round 2 (assign): died, pid 3 SIGABRT (signal 6)\n" \
          "ruby3.1: rd.h:351: rd_refcnt_sub0: Assertion `!*\"refcnt sub-zero\"' failed.\n"
  HANGING_TRANSACTION = <<~'RUBY'
    require "penstock"
    require "support/hostile_broker"
    require "support/hostile_broker/frames"
    lies = HostileBroker::Frames.attacks(:add_partitions_to_txn)
    lie = lies.find { |attack| attack.name.end_with?(": a body without its last byte") }
    broker = HostileBroker.new { |exchange| lie.call(exchange) }
    lines = Queue.new
    log = Object.new
    log.define_singleton_method(:add) { |_severity, message = nil, _program = nil| lines << message }
    producer = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": broker.address, "transactional.id": "attacked", "transaction.timeout.ms": 1_000,
                       "message.timeout.ms": 700, "linger.ms": 0, "topic.metadata.refresh.interval.ms": 100 }
      config.logger = log
      config.max_attempts_on_transaction_command = 1
    end
    begin
      producer.transaction do
        producer.produce_async(topic: "attacked", payload: "p", partition: 0)
        nil until lines.pop.include?("AddPartitionsToTxn") # librdkafka has not understood the answer
        asked = broker.counts[:metadata]
        sleep 0.01 until broker.counts[:metadata] > asked # librdkafka refreshes its metadata of the topic
      end
    rescue Penstock::TransactionError => e
      puts "#{e.class}: #{e.message}"
    end
    count = producer.partition_count("attacked")
    producer.transaction { producer.produce_async(topic: "attacked", payload: "p", partition: 0) }
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    producer.close(timeout: 1)
    seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
    puts "then: #{count} partition, a transaction committed, closed #{seconds < 10 ? "in time" : "after #{seconds} s"}"
  RUBY

  @victims = Queue.new

  class << self
    attr_reader :victims
  end

  Minitest.after_run { victims.pop.close until victims.empty? }

  def test_an_honest_broker_serves_every_admin_call
    honest = Struct.new(:client, :name, :settings, :seconds) { def call(_exchange) = nil }
    HostileBroker::Catalogue.admin.map(&:client).uniq.select { |client| client.start_with?("admin_") }.each do |client|
      broker = HostileBroker.new
      report = with_victim { |victim| victim.report(honest.new(client, "honest", {}, 10), broker) }
      assert_equal [{}, []], report.values_at(:errors, :foreign), client
    ensure
      broker&.close
    end
  end

  def test_an_honest_broker_serves_every_client
    honest = Struct.new(:client, :name, :settings, :seconds) { def call(_exchange) = nil }
    seen = HostileBroker::Mutations::CLIENTS.to_h do |client|
      broker = HostileBroker.new
      [client, with_victim { |victim| victim.report(honest.new(client, "honest", {}, 10), broker) }]
    ensure
      broker&.close
    end
    seen.each { |client, report| assert_equal [{}, []], report.values_at(:errors, :foreign), client }
    assert_equal [12, 12], seen.values_at(:assign, :subscribe).map { |report| report[:consumed] }
    assert_equal [3, 3, 3], seen[:transact].values_at(:accepted, :settled, :published)
  end

  def test_the_judge_finds_each_kind_of_problem
    good = { foreign: [], unclean: [], accepted: 3, settled: 3, published: 3, seconds: 1, closing: 1, grown_kb: 1 }
    bad = [{ foreign: ["TypeError"] }, { unclean: ["\e"] }, { settled: 2 }, { published: 4 }, { seconds: 60 }, { closing: 30 },
           { grown_kb: 1 << 30 }]
    victim = HostileBroker::Victim.new
    attack = HostileBroker::Mutations.new(0, 0)
    assert_empty victim.problems(attack, good)
    bad.each { |wrong| assert_equal 1, victim.problems(attack, { **good, **wrong }).size, wrong }
    assert_equal ["died"], victim.problems(attack, "died")
  end

  def test_the_judge_reports_a_client_that_dies
    victim = HostileBroker::Victim.new
    killer = HostileBroker::Attack.new("kill", :metadata) { Process.kill(:KILL, victim.pid) }
    assert_match(/kill: died.*SIGKILL/, victim.suffer(killer).join)
    assert_predicate victim, :died?
  ensure
    victim.close
  end

  def test_the_judge_recognises_only_known_defects
    defects = %i[assign subscribe].map { |client| HostileBroker.defect(changed(client, :fetch), [ABORT], "2.0.2") }
    assert_equal ["a partition released twice"] * 2, defects.map(&:name)
  end

  def test_crashes_that_differ_from_a_known_defect_are_findings
    fetched = changed(:assign, :fetch)
    {
      "another version" => [fetched, [ABORT], "2.14.2"], "another role" => [changed(:produce, :fetch), [ABORT], "2.0.2"],
      "good answers to Fetch" => [changed(:assign, :metadata), [ABORT], "2.0.2"],
      "no random round" => [HostileBroker::Batches.cut_with_error, [ABORT], "2.0.2"],
      "another assertion" => [fetched, [ABORT.sub("refcnt sub-zero", "refcnt")], "2.0.2"],
      "another place" => [fetched, [ABORT.sub("rd.h:351", "rd.h:352")], "2.0.2"],
      "another function" => [fetched, [ABORT.sub("rd_refcnt_sub0", "rd_refcnt_add0")], "2.0.2"],
      "another signal" => [fetched, [ABORT.sub("SIGABRT (signal 6)", "SIGSEGV (signal 11)")], "2.0.2"],
      "a hang" => [fetched, [ABORT.sub("died, pid 3 SIGABRT (signal 6)", "hung: still ran after 10 s")], "2.0.2"],
      "two problems" => [fetched, [ABORT, "an error that is not Penstock's"], "2.0.2"]
    }.each { |what, (attack, found, version)| assert_nil HostileBroker.defect(attack, found, version), what }
  end

  def test_clients_survive_malformed_answers_to_api_versions = assert_survived(short(:api_versions))
  def test_clients_survive_malformed_metadata = assert_survived(short(:metadata))
  def test_clients_survive_malformed_answers_to_produce = assert_survived(short(:produce))
  def test_clients_survive_malformed_answers_to_sasl = assert_survived(short(:sasl_handshake, :sasl_authenticate))
  def test_clients_survive_malformed_answers_to_find_coordinator = assert_survived(short(:find_coordinator))

  def test_clients_survive_malformed_answers_of_consumer_groups
    assert_survived(short(:join_group, :sync_group, :heartbeat, :leave_group))
  end

  def test_clients_survive_malformed_offsets = assert_survived(short(:list_offsets, :offset_fetch, :offset_commit))
  def test_clients_survive_malformed_answers_to_fetch = assert_survived(short(:fetch))
  def test_clients_survive_malformed_record_batches = assert_survived(HostileBroker::Batches.attacks)

  def test_clients_survive_malformed_answers_of_transactions
    assert_survived(short(:init_producer_id, :add_partitions_to_txn, :end_txn) + HostileBroker::Fields.transaction_errors)
  end

  def test_clients_survive_metadata_of_100_000_topics_partitions_and_brokers
    assert_survived(HostileBroker::Giants.attacks(%i[produce]), 2)
  end

  def test_clients_survive_bombs_that_a_setting_bounds = assert_survived(HostileBroker::Bombs.bounded, 6)
  def test_memory_for_bombs_is_bounded_by_the_bytes_received = assert_survived(HostileBroker::Bombs.unbounded, 2)

  def test_admin_clients_survive_malformed_answers = assert_survived(HostileBroker::Catalogue.admin)

  # defect 27
  def test_clients_survive_answers_changed_at_random
    assert_survived(Array.new(ROUNDS) { |round| HostileBroker::Mutations.new(SEED, round) })
  end

  def test_a_batch_with_many_headers_ends_early_and_the_rest_follows
    bytes = HostileBroker::Batches.headers(40_000, messages: 5)
    attack = HostileBroker::Batches.attack("headers", bytes)
    broker = HostileBroker.new { |exchange| attack.call(exchange) }
    consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": broker.address, "fetch.wait.max.ms": 10 } }
    consumer.assign(HostileBroker::GoodAnswers::TOPIC => { 0 => :beginning })
    eventually { !consumer.poll_batch(max: 1, timeout: 1).empty? }
    assert_equal [1, 2, 3], (consumer.poll_batch(max: 100, timeout: 5).map(&:offset))
    assert_equal 4, consumer.poll(timeout: 5).offset
  ensure
    consumer&.close
    broker&.close
  end

  # An attack that ends a process with Penstock, in a place that faults.rb names, ends a process without Penstock as well.
  def test_known_faults_also_end_a_process_without_penstock
    HostileBroker::FAULTS.each do |fault|
      attacks = HostileBroker::Catalogue.of(fault.example[/\w+/].to_sym) + HostileBroker::Batches.attacks
      attack = attacks.find { |candidate| candidate.name == fault.example } or flunk fault.example
      next unless with_victim { |victim| victim.suffer(attack) && victim.died? }

      assert dies_without_penstock?(attack), "only Penstock dies of: #{fault.example}"
    end
  end

  # The answer is cut at a point where librdkafka has locked the topic. The next Metadata hangs the client.
  def test_a_truncated_answer_to_add_partitions_to_txn_hangs_a_client_without_penstock
    attacks = HostileBroker::Frames.attacks(:add_partitions_to_txn)
    attack = attacks.find { |candidate| candidate.name.end_with?(": a body without its last byte") }
    broker = HostileBroker.new { |exchange| attack.call(exchange) }
    hangs = HostileBroker::PlainClient.hangs?(:transact, broker)
    assert hangs, "librdkafka survives it: take it out of faults.rb and docs/security.md"
  ensure
    broker&.close
  end

  # Penstock bounds the calls then. The producer goes on with another client, and closes within its timeout.
  def test_a_transaction_ends_when_librdkafka_hangs_in_it
    output, status = Limited.capture2e(RbConfig.ruby, "-w", "-Ilib", "-Itest", "-e", HANGING_TRANSACTION, seconds: 60)
    assert_predicate status, :success?, output
    assert_match(/^Penstock::TransactionError: .*so this client hangs/, output)
    assert_match(/^then: 1 partition, a transaction committed, closed in time$/, output)
  end

  # -1 brokers and no topics: librdkafka's copy of the metadata needs more memory than the answer had bytes.
  def test_metadata_that_crashes_the_doctor_crashes_a_client_without_penstock
    attack = HostileBroker::Mutations.new(77, 1_080)
    assert_equal :examine, attack.client
    return unless with_victim { |victim| victim.suffer(attack) && victim.died? }

    assert dies_without_penstock?(attack)
  end

  private

  # @return [HostileBroker::Mutations] a round that has changed an answer to one kind of request
  def changed(client, api)
    round = (0..).lazy.map { |number| HostileBroker::Mutations.new(SEED, number) }.find { |each| each.client == client }
    exchange = Struct.new(:api, :request, :answer) do
      def respond(_body) = nil
      def send(_bytes) = nil
      def ignore = nil
      def cut = nil
      def frame = +"a frame of a body"
    end
    (1..).each do |count|
      round.call(exchange.new(api, HostileBroker::Request.new(api, 1, 1, "", count), "a body"))
      return round if round.changed?(api)
    end
  end

  # @return [Array<HostileBroker::Attack>]
  def short(*apis)
    apis.flat_map do |api|
      fields = HostileBroker::Fields.attacks(api)
      FRAMED.include?(api) ? HostileBroker::Frames.attacks(api) + fields : HostileBroker::Frames.few(api) + fields
    end
  end

  def with_victim
    victim = self.class.victims.empty? ? HostileBroker::Victim.new(slack: 3) : self.class.victims.pop
    yield victim
  ensure
    self.class.victims << victim
  end

  def assert_survived(attacks, attackers = ATTACKERS)
    queue = Queue.new
    attacks.each { |attack| queue << attack }
    queue.close
    problems = Array.new(attackers) { Thread.new { with_victim { |victim| attack_with(queue, victim) } } }.flat_map(&:value)
    assert_empty problems, problems.join("\n")
  end

  def attack_with(queue, victim)
    problems = []
    while (attack = queue.pop)
      found = victim.suffer(attack)
      problems.concat(found) unless HostileBroker.defect(attack, found) || (victim.died? && librdkafkas_own?(attack, found))
    end
    problems
  end

  def librdkafkas_own?(attack, found)
    return found.all?(HostileBroker::ADMIN_CRASH) if attack.client.start_with?("admin_")
    return dies_without_penstock?(attack) if attack.is_a?(HostileBroker::Mutations)

    HostileBroker::FAULTS.any? { |fault| fault.pattern.match?(attack.name) }
  end

  def dies_without_penstock?(attack)
    HostileBroker::PlainClient.dies?(attack.client, attack.settings) do |try|
      again = attack.again(try)
      HostileBroker.new { |exchange| again.call(exchange) }
    end
  end
end

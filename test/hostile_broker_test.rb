# frozen_string_literal: true

require "test_helper"
require_relative "support/hostile_broker"
require_relative "support/hostile_broker/faults"
require_relative "support/hostile_broker/mutations"
require_relative "support/hostile_broker/plain_client"
require_relative "support/hostile_broker/victim"

# Brokers that answer with anything (support/hostile_broker.rb). After each attack: the process lives, unless librdkafka has a
# fault there (faults.rb); its memory grew by less than the attack says; calls ended in their time; each accepted message has one
# result; only Penstock's errors came out; and no text has control bytes or is not UTF-8.
class HostileBrokerTest < PenstockTest
  ATTACKERS = 20 # most of the time the clients wait
  ROUNDS = 60
  SEED = 16
  # Requests whose frames are attacked in each way; with the others it is the same code of librdkafka's.
  FRAMED = %i[api_versions metadata produce fetch join_group sasl_authenticate].freeze

  @victims = Queue.new

  class << self
    attr_reader :victims
  end

  Minitest.after_run { victims.pop.close until victims.empty? }

  def test_a_broker_that_does_not_lie_serves_every_client
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

  def test_the_judge_finds_what_is_wrong
    good = { foreign: [], unclean: [], accepted: 3, settled: 3, published: 3, seconds: 1, closing: 1, grown_kb: 1 }
    bad = [{ foreign: ["TypeError"] }, { unclean: ["\e"] }, { settled: 2 }, { published: 4 }, { seconds: 60 }, { closing: 30 },
           { grown_kb: 1 << 30 }]
    victim = HostileBroker::Victim.new
    attack = HostileBroker::Mutations.new(0, 0)
    assert_empty victim.problems(attack, good)
    bad.each { |wrong| assert_equal 1, victim.problems(attack, { **good, **wrong }).size, wrong }
    assert_equal ["died"], victim.problems(attack, "died")
  end

  def test_the_judge_finds_a_client_that_dies
    victim = HostileBroker::Victim.new
    killer = HostileBroker::Attack.new("kill", :metadata) { Process.kill(:KILL, victim.pid) }
    assert_match(/kill: died.*SIGKILL/, victim.suffer(killer).join)
    assert_predicate victim, :died?
  ensure
    victim.close
  end

  def test_answers_to_api_versions_that_lie = assert_survived(short(:api_versions))
  def test_metadata_that_lies = assert_survived(short(:metadata))
  def test_answers_to_produce_that_lie = assert_survived(short(:produce))
  def test_answers_to_sasl_that_lie = assert_survived(short(:sasl_handshake, :sasl_authenticate))
  def test_coordinators_that_lie = assert_survived(short(:find_coordinator))
  def test_groups_that_lie = assert_survived(short(:join_group, :sync_group, :heartbeat, :leave_group))
  def test_offsets_that_lie = assert_survived(short(:list_offsets, :offset_fetch, :offset_commit))
  def test_answers_to_fetch_that_lie = assert_survived(short(:fetch))
  def test_record_batches_that_lie = assert_survived(HostileBroker::Batches.attacks)

  def test_transactions_that_lie
    assert_survived(short(:init_producer_id, :add_partitions_to_txn, :end_txn) + HostileBroker::Fields.transaction_errors)
  end

  def test_metadata_of_100_000_topics_partitions_and_brokers = assert_survived(HostileBroker::Giants.attacks(%i[produce]), 2)
  def test_bombs_that_a_setting_bounds = assert_survived(HostileBroker::Bombs.bounded, 6)
  def test_bombs_are_bounded_by_what_arrives = assert_survived(HostileBroker::Bombs.unbounded, 2)
  def test_answers_changed_at_random = assert_survived(Array.new(ROUNDS) { |round| HostileBroker::Mutations.new(SEED, round) })

  def test_a_batch_of_messages_with_many_headers_ends_early_and_the_rest_follows
    bytes = HostileBroker::Batches.headers(40_000, messages: 5)
    attack = HostileBroker::Batches.attack("headers", bytes)
    broker = HostileBroker.new { |exchange| attack.call(exchange) }
    consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": broker.address, "fetch.wait.max.ms": 10 } }
    consumer.assign(HostileBroker::GoodAnswers::TOPIC => { 0 => :beginning })
    eventually { !consumer.poll_batch(1, 1_000).empty? }
    assert_equal [1, 2, 3], (consumer.poll_batch(100, 5_000).map(&:offset))
    assert_equal 4, consumer.poll(5_000).offset
  ensure
    consumer&.close
    broker&.close
  end

  # What ends a process with Penstock in a place that faults.rb names ends one without it, too.
  def test_faults_of_librdkafka_are_its_own
    HostileBroker::FAULTS.each do |fault|
      attacks = HostileBroker::Catalogue.of(fault.example[/\w+/].to_sym) + HostileBroker::Batches.attacks
      attack = attacks.find { |candidate| candidate.name == fault.example } or flunk fault.example
      next unless with_victim { |victim| victim.suffer(attack) && victim.died? }

      assert dies_without_penstock?(attack), "only Penstock dies of: #{fault.example}"
    end
  end

  private

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
      problems.concat(found) unless victim.died? && librdkafkas_own?(attack)
    end
    problems
  end

  def librdkafkas_own?(attack)
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

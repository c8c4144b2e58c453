# frozen_string_literal: true

require_relative "faults"
require_relative "mutations"
require_relative "plain_client"
require_relative "victim"

class HostileBroker
  # Round after round of Mutations, several at once, and their figures. A round repeats itself for the same seed and number, as
  # far as the client's threads behave the same.
  class Campaign
    ATTACKERS = 8
    ROUNDS_OF_A_CHILD = 200
    KEPT = 250 # MB that a child may still have after its rounds
    TRIES = 45 # of the plain client: some faults depend on microseconds

    attr_reader :findings

    def initialize(seed)
      @seed = seed
      @lock = Mutex.new
      @rounds = @findings = @own = @catalogue = @kept = 0
      @counts = Hash.new(0)
      @mutations = Hash.new(0)
      @defects = Hash.new(0)
      @start = now
    end

    # @param seconds [Numeric]
    # @param catalogue [Boolean] whether to run every attack of the catalogue first
    def run(seconds, catalogue: false)
      attack_all if catalogue
      deadline = now + seconds
      attackers { |victim| suffer(victim, Mutations.new(@seed, next_round)) while now < deadline }
    end

    # @param round [Integer]
    def one(round) = attackers(1) { |victim| suffer(victim, Mutations.new(@seed, round)) }

    # @return [String]
    def to_s
      requests = @counts.except(:connections).values.sum
      kinds = @mutations.sort.map { |kind, count| "#{kind} #{count}" }.join(", ")
      "hostile broker: seed #{@seed}, #{@catalogue} attacks of the catalogue and #{@rounds} random rounds in " \
        "#{(now - @start).round} s: #{@counts[:connections]} connections, #{requests} requests, " \
        "#{@mutations.values.sum} answers changed (#{kinds}), #{@own} ended by a fault of " \
        "librdkafka's own, #{@defects.values.sum} by a recognised defect of librdkafka#{known}, " \
        "clients at most #{@kept} MB; findings #{@findings}; " \
        "Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"
    end

    private

    def known = @defects.empty? ? "" : " (#{@defects.map { |name, count| "#{name} #{count}" }.join(", ")})"
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    def next_round = @lock.synchronize { (@rounds += 1) - 1 }

    def attackers(count = ATTACKERS)
      Array.new(count) do
        Thread.new do
          victim = Victim.new(slack: 3)
          yield victim
        ensure
          victim.close
        end
      end.each(&:join)
    end

    def attack_all
      attacks = Catalogue.all
      @catalogue = attacks.size
      queue = attacks.each_with_object(Queue.new) { |attack, all| all << attack }.close
      attackers do |victim|
        while (attack = queue.pop)
          suffer(victim, attack)
        end
      end
    end

    def suffer(victim, attack)
      found = victim.suffer(attack)
      defect = HostileBroker.defect(attack, found)
      own = !defect && victim.died? && librdkafkas_own?(attack)
      @lock.synchronize do
        @defects[defect.name] += 1 if defect
        count(victim, attack, own || defect ? [] : found, own)
      end
      replace(victim)
    end

    def count(victim, attack, found, own)
      victim.counts.each { |name, number| @counts[name] += number }
      attack.counts.each { |kind, number| @mutations[kind] += number } if attack.is_a?(Mutations)
      @own += 1 if own
      @kept = [@kept, victim.kept_mb || 0].max
      @findings += found.size
      puts found
    end

    # Memory that children keep would show over many rounds, and not in one.
    def replace(victim)
      return if victim.ran < ROUNDS_OF_A_CHILD

      kept = victim.kept_mb
      victim.close
      return if kept <= KEPT * Victim::GROWTH

      @lock.synchronize { @findings += 1 }
      puts "a client had #{kept} MB after #{ROUNDS_OF_A_CHILD} rounds"
    end

    def librdkafkas_own?(attack)
      return true if FAULTS.any? { |fault| fault.pattern.match?(attack.name) }

      PlainClient.dies?(attack.client, attack.settings, tries: TRIES) do |try|
        again = attack.again(try)
        HostileBroker.new { |exchange| again.call(exchange) }
      end
    end
  end
end

# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../proofs/support/consumer_storm"

# Several threads use each consumer at once, as users do: they poll, process, mark, commit, rewind and seek, within Timeout, while
# other threads interrupt and kill them, and members join, close and are killed. `rake test:consumer_threads` is the long form.
#
# A failure names the seed of the storm. To get the same random choices: STORM_SEED=seed. Threads run differently each time.
class ConsumerThreadsTest < PenstockTest
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }
  SECONDS = 20
  PRELOAD = 10_000 # messages, so that batches are large from the beginning
  LONGEST = [PenstockTest::LONGEST, ConsumerStorm.longest(SECONDS)].max
  SEED = Integer(ENV.fetch("STORM_SEED") { rand(2**32) })

  def storm(kind, manual)
    ConsumerStorm.new(SERVERS, kind, manual:, threads: true, seed: SEED, most: 2, pause: 2.0..4.0, preload: PRELOAD)
  end

  slow def test_threads_of_one_consumer_lose_no_message_and_commit_only_what_is_processed
    newer = ConsumerStorm.consumer_protocol?
    storms = [storm("range", false), storm(newer ? "consumer" : "range", true)]
    problems = storms.map { |storm| quiet_thread { storm.run(SECONDS) } }.flat_map(&:value)
    assert problems.empty?, "#{ConsumerStorm.report(problems)}\nThe same choices again: STORM_SEED=#{SEED}"
    rare = %i[life rewound false_marks committed].select { |kind| storms.sum { |storm| storm.checker.counts[kind] } < 5 }
    assert_empty rare, "too little has happened: #{storms.join("; ")}"
  end
end

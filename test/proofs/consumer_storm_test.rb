# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/consumer_storm"
require_relative "support/storm_kafka"

# Groups whose members join, close, freeze and are killed, for 40 s, while partitions are added. All groups run at the same time
# on a Kafka of three brokers. `rake test:consumer_storm` is the long form, in which brokers are killed too.
class ConsumerStormTest < PenstockTest
  include StormKafka

  SECONDS = 40
  LONGEST = [PenstockTest::LONGEST, StormKafka.longest(SECONDS)].max

  def kinds = ConsumerStorm::KINDS.keys - (ConsumerStorm.consumer_protocol? ? [] : ["consumer"])

  # defect C13
  def test_groups_lose_no_message_and_repeat_and_reorder_only_what_is_not_committed
    on_storm_kafka do |servers|
      storms = kinds.product([false, true]).map do |kind, manual|
        ConsumerStorm.new(servers, kind, manual:, grow: true)
      end
      faults = %i[early skip].map { |fault| ConsumerStorm.new(servers, "range", manual: true, fault:) }
      running = storms.map { |storm| quiet_thread { storm.run(SECONDS) } }
      wrong = faults.map { |storm| quiet_thread { storm.run(SECONDS) } }
      problems = running.flat_map(&:value)
      assert problems.empty?, ConsumerStorm.report(problems)
      storms.each { |storm| assert_operator storm.checker.counts.fetch(:starts), :>, 5, storm.to_s }
      %i[early skip].zip(wrong.map(&:value)).each { |fault, found| refute_empty found, "a member with the fault #{fault}" }
    end
  end

  def test_the_protocol_consumer_is_among_them
    return if ConsumerStorm.consumer_protocol?

    skip "librdkafka #{Penstock.librdkafka_version} has no group.protocol=consumer, or only a preview of it (before 2.12)"
  end
end

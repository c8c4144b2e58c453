# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/consumer_storm"
require_relative "support/storm_kafka"

# Applications in the storm of consumer_storm_test.rb: members join, stop, freeze and are killed, for 40 s, while partitions are
# added. One group gets its messages one by one, one in batches. `KINDS=application rake test:consumer_storm` is the long form, in
# which brokers are killed too.
class AppStormTest < PenstockTest
  include StormKafka

  SECONDS = 40
  LONGEST = [PenstockTest::LONGEST, StormKafka.longest(SECONDS)].max

  def test_applications_lose_no_message_and_repeat_and_reorder_only_what_is_not_committed
    on_storm_kafka do |servers|
      storms = [false, true].map { |batches| ConsumerStorm.new(servers, "application", manual: batches, grow: true) }
      problems = storms.map { |storm| quiet_thread { storm.run(SECONDS) } }.flat_map(&:value)
      assert problems.empty?, ConsumerStorm.report(problems)
      storms.each { |storm| assert_operator storm.checker.counts.fetch(:starts), :>, 5, storm.to_s }
    end
  end
end

# frozen_string_literal: true

require_relative "reader"

# What the producer's tests share.
class ProducerTestCase < PenstockTest
  # @return [Array<Reader::Record>] the topic's records; keywords are settings of librdkafka's consumer
  def stored(topic, partitions: 1, on: cluster, **settings)
    Reader.new(on.bootstrap_servers, **settings).read(topic, partitions: 0...partitions)
  end

  def places(handles) = handles.map { |handle| [handle.report.topic, handle.report.partition, handle.report.offset] }

  def assert_handed_out_in_order(handles)
    places(handles).group_by { |topic, partition, _| [topic, partition] }.each_value do |group|
      assert_equal (0...group.size).to_a, group.map(&:last)
    end
  end
end

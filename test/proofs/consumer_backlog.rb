# frozen_string_literal: true

require "penstock"
require_relative "support/consumer_backlog"
require_relative "../support/kafka_cluster"

# The long version of test/integration/consumer_backlog_test.rb: 1 GB, read with several budgets.
#
#   rake test:consumer_backlog [MEGABYTES=1000]
megabytes = Integer(ENV.fetch("MEGABYTES", "1000"))
mib = 1 << 20
default = Penstock::Consumer.new("bootstrap.servers": "127.0.0.1:1").config.kafka.key?(:"fetch.queue.backoff.ms") ? 256 : 512
$stdout.sync = true
KafkaCluster.with(1) do |kafka|
  backlog = ConsumerBacklog.new(kafka.servers, megabytes).produce
  [32, 128, nil].each do |memory|
    sizes = backlog.read(memory && (memory * mib), seconds: 600)
    most = (memory || default) * mib
    puts "budget #{memory || "#{default} (default)"} MiB: a stalled reader took #{sizes.stalled / mib} MiB; " \
         "#{sizes.held} messages were kept, and returned #{sizes.released / mib} MiB when they were released"
    abort "more than the budget and a fifth" if sizes.stalled > most * 1.2
    abort "released batches returned too little" if sizes.released < sizes.held * ConsumerBacklog::SIZE * 0.9
    abort "#{sizes.read} of #{backlog.total} messages" unless sizes.read == backlog.total
  end
  puts "#{megabytes} MB of 1 KB messages in 16 partitions, librdkafka #{Penstock.librdkafka_version}: never more than the " \
       "budget and a fifth"
end

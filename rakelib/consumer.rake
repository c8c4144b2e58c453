# frozen_string_literal: true

namespace :test do
  desc "Groups whose members and brokers fail for 10 minutes: rake test:consumer_storm [MINUTES=1] [KINDS=range]"
  task consumer_storm: :compile do
    ruby "-Ilib", "test/proofs/consumer_storm.rb"
  end

  desc "Threads that use one consumer, 10 minutes each way: rake test:consumer_threads [MINUTES=1] [KINDS=range] [MARK=manual]"
  task consumer_threads: :compile do
    ruby "-Ilib", "test/proofs/consumer_threads.rb"
  end

  desc "Transactions of consumers, whose members and brokers fail for 10 minutes: rake test:exactly_once_storm [MINUTES=1]"
  task exactly_once_storm: :compile do
    ruby "-Ilib", "test/proofs/exactly_once_storm.rb"
  end

  desc "Members that close in every phase of a rebalance: rake test:consumer_closing [ROUNDS=100] [KINDS=range]"
  task consumer_closing: :compile do
    ruby "-Ilib", "test/proofs/consumer_closing.rb"
  end

  desc "The memory of a consumer with a backlog of 1 GB: rake test:consumer_backlog [MEGABYTES=200]"
  task consumer_backlog: :compile do
    ruby "-Ilib", "test/proofs/consumer_backlog.rb"
  end
end

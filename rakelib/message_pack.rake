# frozen_string_literal: true

namespace :test do
  desc "A million random values through MessagePack and the gem, both ways: rake test:message_pack_rounds [ROUNDS=1000000]"
  task message_pack_rounds: :compile do
    sh RbConfig.ruby, "-Ilib", "test/message_pack/support/rounds.rb", ENV.fetch("ROUNDS", "1000000")
  end

  desc "A million documents read as the gem and Python read them, split everywhere: " \
       "rake test:message_pack_differential [DOCUMENTS=1000000]"
  task message_pack_differential: :compile do
    sh RbConfig.ruby, "-w", "-Ilib", "test/message_pack/support/differential.rb", ENV.fetch("DOCUMENTS", "1000000")
  end

  desc "MessagePack in 8 Ractors, with collections and compaction: rake test:message_pack_storm [RACTORS=8 SIZE=60000]"
  task message_pack_storm: :compile do
    sh RbConfig.ruby, "-w", "-Ilib", "test/message_pack/support/storm.rb", ENV.fetch("RACTORS", "8"), ENV.fetch("SIZE", "60000")
  end
end
